package audit

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoLogs says that a directory has no audit logs at all.
var ErrNoLogs = errors.New("no audit logs found")

// ErrTruncated says that the last line of a log is incomplete and didn't become complete while we waited.
var ErrTruncated = errors.New("the last line is cut short: its API server was killed while it wrote, or the copy was " +
	"made meanwhile; copy the log again")

// Log is one file of an API server's audit log.
type Log struct {
	Path string
	// Cluster is the name of the folder that contains the file.
	Cluster string
	// Rotated is when the file was closed and the next one begun, according to its name; zero if the name doesn't say.
	Rotated time.Time
	// number is logrotate's number: higher is older; zero is the file that is being written.
	number int
}

// logName also matches rotated logs: audit-TIME.log of an API server, audit.log.1 of logrotate.
var logName = regexp.MustCompile(`^audit(?:-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}))?.*\.log(?:\.([0-9]+))?(\.gz)?$`)

// Logs finds the audit logs below dir, each cluster's from the oldest to the newest.
func Logs(dir string) ([]Log, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && logName.MatchString(entry.Name()) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for audit logs: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w below %s (files named audit*.log, one folder per cluster)", ErrNoLogs, dir)
	}
	var logs []Log
	for _, path := range paths {
		// While a rotated log is being compressed, both files exist. Reading both would count every write twice.
		if plain, zipped := strings.CutSuffix(path, ".gz"); zipped && slices.Contains(paths, plain) {
			continue
		}
		l, err := logAt(path)
		if err != nil {
			return nil, err
		}
		logs = append(logs, l)
	}
	slices.SortStableFunc(logs, func(a, b Log) int {
		return cmp.Or(strings.Compare(filepath.Dir(a.Path), filepath.Dir(b.Path)), cmp.Compare(b.number, a.number),
			cmp.Compare(a.age(), b.age()))
	})
	return logs, nil
}

func logAt(path string) (Log, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Log{}, fmt.Errorf("naming the cluster of %s: %w", path, err)
	}
	l := Log{Path: path, Cluster: filepath.Base(filepath.Dir(abs))}
	if parts := logName.FindStringSubmatch(filepath.Base(path)); parts != nil {
		l.number, _ = strconv.Atoi(parts[2])
		l.Rotated, _ = time.Parse("2006-01-02T15-04-05.000", parts[1])
	}
	return l, nil
}

// age orders the files of an API server: closed ones first, then the one that is being written.
func (l Log) age() int64 {
	if l.Rotated.IsZero() {
		return 1<<63 - 1
	}
	return l.Rotated.UnixMicro()
}

// Missing returns the files that must be missing, judging by the names of the others.
func Missing(logs []Log) []string {
	var missing []string
	for i, l := range logs {
		dir, next := filepath.Dir(l.Path), 0
		last := i == len(logs)-1 || filepath.Dir(logs[i+1].Path) != dir
		if !last {
			next = logs[i+1].number
		}
		for n := l.number - 1; n > next; n-- {
			missing = append(missing, filepath.Join(dir, fmt.Sprintf("audit.log.%d", n)))
		}
		if last && (l.number > 0 || !l.Rotated.IsZero()) {
			missing = append(missing, filepath.Join(dir, "audit.log"))
		}
	}
	return missing
}

// Input counts what was read.
type Input struct {
	Files int   `json:"files"`
	Lines int   `json:"lines"`
	Bytes int64 `json:"bytes"`
}

// Events reads one log. An error ends it, and names file and line. The log may still be written to: an incomplete last
// line is waited for, for a moment.
func Events(path string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		l, err := logAt(path)
		if err != nil {
			yield(Event{}, err)
			return
		}
		new(Reader).Read(l)(yield)
	}
}

// All reads one log, as [Events] does, and returns the events to be kept, without their raw objects. A log without any
// event is an error: whatever is looked for in it would seem not to have happened.
func All(path string, keep func(*Event) bool) (kept []Event, err error) {
	empty := true
	for e, err := range Events(path) {
		if err != nil {
			return nil, err
		}
		if empty = false; keep(&e) {
			e.Request, e.Response = nil, nil
			kept = append(kept, e)
		}
	}
	if empty {
		return nil, fmt.Errorf("%s: no event at all", path)
	}
	return kept, nil
}

// Refused returns the writes of our program that API servers refused, by their logs below dir.
func Refused(dir string) (all []Event, err error) {
	logs, err := Logs(dir)
	for _, log := range logs {
		of, logErr := All(log.Path, func(e *Event) bool {
			return e.Ours() && e.Ended() && e.Mutating() && e.Outcome() == Rejected
		})
		all, err = append(all, of...), errors.Join(err, logErr)
	}
	return all, err
}

// Reader reads logs one after another. Its zero value is ready for use, by one goroutine.
type Reader struct {
	// Input counts what was read so far.
	Input Input
}

// Read reads one log, as [Events] does.
func (r *Reader) Read(l Log) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r.Input.Files++
		f, err := os.Open(l.Path)
		if err != nil {
			yield(Event{}, fmt.Errorf("opening an audit log: %w", err))
			return
		}
		defer f.Close()
		var in io.Reader = &tail{in: f}
		if strings.HasSuffix(l.Path, ".gz") {
			z, err := gzip.NewReader(f)
			if err != nil {
				yield(Event{}, fmt.Errorf("%s:1: unpacking: %w", l.Path, err))
				return
			}
			in = z
		}
		r.lines(l, in, yield)
	}
}

func (r *Reader) lines(l Log, in io.Reader, yield func(Event, error) bool) {
	br := bufio.NewReaderSize(in, 1<<18)
	var long []byte
	for n := 1; ; n++ {
		line, err := readLine(br, &long)
		if err == io.EOF {
			return
		}
		r.Input.Lines++
		r.Input.Bytes += int64(len(line))
		var e Event
		switch {
		case err == io.ErrUnexpectedEOF:
			// A whole event that only lacks its newline counts as a line.
			if e, err = decode(line); err != nil {
				err = ErrTruncated
			}
		case err == nil && len(strings.TrimSpace(string(line[:min(len(line), 8)]))) == 0:
			continue
		case err == nil:
			if e, err = decode(line); err != nil {
				err = fmt.Errorf("unreadable line: %w; take the log as its API server wrote it", err)
			}
		}
		e.File, e.Line, e.Cluster = l.Path, n, l.Cluster
		if err != nil {
			yield(Event{File: l.Path, Line: n, Cluster: l.Cluster}, fmt.Errorf("%s:%d: %w", l.Path, n, err))
			return
		}
		if !yield(e, nil) {
			return
		}
	}
}

// readLine returns the next line, valid until the next call. The error is [io.ErrUnexpectedEOF] if the line is
// incomplete.
func readLine(br *bufio.Reader, long *[]byte) ([]byte, error) {
	*long = (*long)[:0]
	for {
		part, err := br.ReadSlice('\n')
		switch {
		case err == nil && len(*long) == 0:
			return part, nil
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			*long = append(*long, part...)
			if err == nil {
				return *long, nil
			}
		case (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && len(part)+len(*long) > 0:
			return append(*long, part...), io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// tail reads a file that may still be written to. It doesn't end within a line unless that line stays incomplete for a
// while.
type tail struct {
	in   io.Reader
	last byte
}

const (
	tailPatience = 500 * time.Millisecond
	tailPause    = 20 * time.Millisecond
)

func (t *tail) Read(p []byte) (n int, err error) {
	for waited := time.Duration(0); ; waited += tailPause {
		n, err = t.in.Read(p)
		if n > 0 {
			t.last = p[n-1]
		}
		if n > 0 || err != io.EOF || t.last == '\n' || t.last == 0 || waited >= tailPatience {
			return n, err
		}
		time.Sleep(tailPause)
	}
}
