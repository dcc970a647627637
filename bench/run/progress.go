package run

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
)

// progress shows a person how far a run is.
type progress struct {
	out      io.Writer
	inPlace  bool       // a terminal: the line is written over
	columns  func() int // of that terminal, which may be resized
	started  time.Time
	total    int        // rounds
	mu       sync.Mutex // guards all below
	finished int
	what     string
	last     time.Time
}

func newProgress(out io.Writer, s scenario.Scenario) *progress {
	if out == nil {
		out = io.Discard
	}
	p := &progress{out: out, started: time.Now(),
		total: s.Rounds * (1 + len(s.Compare)) * max(1, len(s.Sweep)) * max(1, len(s.Noises))}
	if file, ok := out.(*os.File); ok {
		p.inPlace = term.IsTerminal(int(file.Fd()))
		p.columns = func() int {
			columns, _ := lab.TerminalSize(file)
			return columns
		}
	}
	return p
}

// doing says what comes next.
func (p *progress) doing(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = fmt.Sprintf(format, args...)
	p.line("")
}

// round says whose turn it is.
func (p *progress) round(as scenario.Reference, replicas, n int) {
	p.doing("%s with %d replicas, round %d", as, replicas, n)
}

// show says how far a round is.
func (p *progress) show(done, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := 5 * time.Second
	if p.inPlace {
		pause = 200 * time.Millisecond
	}
	if time.Since(p.last) >= pause {
		p.line(fmt.Sprintf(": %d of %d done", done, of))
	}
}

// rounded says that a round is over.
func (p *progress) rounded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
}

// say writes a line that stays.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := ""
	if p.inPlace {
		end = "\r\x1b[K"
	}
	fmt.Fprintf(p.out, end+format+"\n", args...)
}

// line writes the present state. The lock is held.
func (p *progress) line(more string) {
	p.last = time.Now()
	spent := time.Since(p.started)
	left := ""
	if p.finished > 0 {
		each := spent / time.Duration(p.finished)
		left = fmt.Sprintf(", about %s left", (each * time.Duration(p.total-p.finished)).Round(time.Second))
	}
	text := fmt.Sprintf("[%d/%d] %s%s (%s%s)", p.finished, p.total, p.what, more, spent.Round(time.Second), left)
	if p.inPlace {
		// A line that wraps can't be written over. Some terminals wrap already when the last column is filled.
		fmt.Fprint(p.out, "\r\x1b[K"+lab.Clip(text, p.columns()-1))
		return
	}
	fmt.Fprintln(p.out, text)
}

// close ends the line that is written over.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inPlace {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
