package witness

import (
	"bufio"
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
	"strings"
)

// ErrNoLogs says that a directory holds no audit logs at all.
var ErrNoLogs = errors.New("no audit logs found")

// Options says how Read finds and judges logs.
type Options struct {
	// Facts are what the logs need not tell; see Facts.
	Facts Facts
	// Rules are the judgement's tolerances; see Rules.
	Rules Rules
}

// Read judges the audit logs below dir: files named audit*.log, rotated and compressed ones too, each belonging to
// the cluster that its folder is named after. The last line of a file may be torn, as a live log's is; any other
// line that can't be read is an error that names file and line.
func Read(dir string, o Options) (*Report, error) {
	files, err := logFiles(dir)
	if err != nil {
		return nil, err
	}
	r := &reader{}
	report := Judge(r.events(files), o.Facts, o.Rules)
	if r.err != nil {
		return nil, r.err
	}
	report.Dir = dir
	report.Input = r.input
	return report, nil
}

// rotated logs are audit-<time>.log with lumberjack, audit.log.1 with logrotate.
var logName = regexp.MustCompile(`^audit.*\.log(\.[0-9]+)?(\.gz)?$`)

func logFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() && logName.MatchString(entry.Name()) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for audit logs: %w", err)
	}
	// While a rotated log is being compressed both forms exist, and reading both would see every write twice.
	files = slices.DeleteFunc(files, func(path string) bool {
		plain, zipped := strings.CutSuffix(path, ".gz")
		return zipped && slices.Contains(files, plain)
	})
	if len(files) == 0 {
		return nil, fmt.Errorf("%w below %s (files named audit*.log, one folder per cluster)", ErrNoLogs, dir)
	}
	return files, nil
}

// reader reads files one after another and keeps the first error.
type reader struct {
	decoder decoder
	input   Input
	err     error
}

func (r *reader) events(files []string) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for _, path := range files {
			r.input.Files++
			if r.err = r.file(path, yield); r.err != nil {
				return
			}
		}
	}
}

func (r *reader) file(path string, yield func(Event) bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening an audit log: %w", err)
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return fmt.Errorf("%s:1: unpacking: %w", path, err)
		}
		in = z
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("naming the cluster of %s: %w", path, err)
	}
	return r.lines(path, filepath.Base(filepath.Dir(abs)), in, yield)
}

func (r *reader) lines(path, cluster string, in io.Reader, yield func(Event) bool) error {
	br := bufio.NewReaderSize(in, 1<<18)
	var long []byte
	for n := 1; ; n++ {
		line, whole, err := readLine(br, &long)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if len(line) == 0 && !whole {
			return nil
		}
		r.input.Lines++
		r.input.Bytes += int64(len(line))
		if len(strings.TrimSpace(string(line[:min(len(line), 8)]))) == 0 {
			continue
		}
		e, keep, err := r.decoder.decode(line)
		if err != nil && !whole {
			r.input.Torn++
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s:%d: unreadable line: %w", path, n, err)
		}
		e.File, e.Line, e.Cluster = path, n, cluster
		if keep && !yield(e) {
			return nil
		}
	}
}

// readLine returns the next line, valid until the next call. whole says that its end was there.
func readLine(br *bufio.Reader, long *[]byte) (line []byte, whole bool, err error) {
	*long = (*long)[:0]
	for {
		part, err := br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			*long = append(*long, part...)
			continue
		case errors.Is(err, io.EOF):
			return append(*long, part...), false, nil
		case err != nil:
			return nil, false, err
		case len(*long) == 0:
			return part, true, nil
		}
		*long = append(*long, part...)
		return *long, true, nil
	}
}
