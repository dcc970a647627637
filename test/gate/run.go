package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/lab/rights"
)

// suite is a list of commands that run one after the other, and how long they may take together.
type suite struct {
	name   string
	budget time.Duration
	// essential suites come first and are always run; nothing else is when one fails.
	essential bool
	steps     []step
}

// step is one command.
type step struct {
	dir  string
	args []string
	env  []string // besides the gate's own
	// tests: the command is go test -json, whose tests are counted.
	tests bool
}

func command(args ...string) step { return step{args: args} }

// goTest runs tests in a module; args are packages and flags. The suite's budget bounds them. The limit of go test is
// for each package, and above every budget, doubled as on a slow machine.
func goTest(dir string, args ...string) step {
	return step{dir: dir, args: append([]string{"go", "test", "-json", "-timeout=45m"}, args...), tests: true}
}

// result is what became of a suite.
type result struct {
	suite        suite
	began, ended time.Time
	processor    time.Duration // of all its processes
	counts       counts
	faults       []string
}

func (r *result) ok() bool { return len(r.faults) == 0 }

func (r *result) took() time.Duration { return r.ended.Sub(r.began) }

// counts are tests, subtests and benchmarks.
type counts struct {
	passed, failed int
	skipped        []string
}

func (c *counts) total() int { return c.passed + c.failed + len(c.skipped) }

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped = append(c.skipped, o.skipped...)
}

// run runs all steps up to the first that fails. A suite that takes three times its budget is killed.
func (s suite) run(ctx context.Context, out *printer) *result {
	ctx, cancel := context.WithTimeout(ctx, 3*s.budget)
	defer cancel()
	r := &result{suite: s, began: time.Now()}
	defer func() {
		r.ended = time.Now()
		if r.took() > s.budget {
			r.faults = append(r.faults, "over its budget")
		}
	}()
	log, err := os.Create(filepath.Join(logs, s.name+".log"))
	if err != nil {
		r.faults = append(r.faults, err.Error())
		return r
	}
	defer log.Close()
	for _, step := range s.steps {
		out.line(s.name, "%.100s", strings.Join(step.args, " "))
		if err := step.run(ctx, r, log, out); err != nil {
			r.faults = append(r.faults, err.Error())
			return r
		}
	}
	return r
}

func (s step) run(ctx context.Context, r *result, log io.Writer, out *printer) error {
	began := time.Now()
	c := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	c.Dir = s.dir
	// When the gate is stopped, the tests get SIGINT, as by Ctrl-C, and clean up. Those that don't end are killed.
	group := func(s syscall.Signal) error { return syscall.Kill(-c.Process.Pid, s) }
	c.Cancel = func() error { return group(syscall.SIGINT) }
	c.WaitDelay = 10 * time.Second
	built, err := filepath.Abs(binaries)
	used, usedErr := filepath.Abs(usedRights)
	if err := errors.Join(err, usedErr); err != nil {
		return err
	}
	// A data race ends its process, so that it can't go unnoticed in a replica.
	c.Env = slices.Concat(os.Environ(), []string{
		lab.BinariesVariable + "=" + built, rights.Variable + "=" + used, "GORACE=halt_on_error=1",
	}, s.env)
	tail := &tail{}
	both := io.MultiWriter(log, tail)
	c.Stderr = both
	var results io.Reader
	if s.tests {
		if results, err = c.StdoutPipe(); err != nil {
			return err
		}
	} else {
		c.Stdout = both // since it is the same writer, only one goroutine writes to it
	}
	if err := localplane.StartChild(c); err != nil { // it ends with us, and has a process group of its own
		return fmt.Errorf("starting %s: %w", s.args[0], err)
	}
	defer func() { _ = group(syscall.SIGKILL) }() // nothing of it is left, unless it was stopped
	verdicts := &reader{log: log, out: out, suite: r.suite.name, packages: map[string]*pkg{}}
	if s.tests {
		err = verdicts.read(results)
	}
	failed := c.Wait()
	r.processor += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	if s.tests && err == nil {
		err = verdicts.verdict(&r.counts)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped after %v", seconds(time.Since(began)))
	case err != nil:
		return err
	case failed != nil:
		out.failure(r.suite.name, failed.Error(), tail.last)
		return fmt.Errorf("%s: %w", strings.Join(s.args[:min(3, len(s.args))], " "), failed)
	}
	return nil
}

// tail keeps the last of what was written.
type tail struct{ last []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	t.last = t.last[max(0, len(t.last)-1<<14):]
	return len(p), nil
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// pkg is what is known of a package's tests.
type pkg struct {
	tests   map[string]string // verdicts; empty for one that runs
	output  map[string][]byte // by test, and the package's own
	verdict string
	empty   bool // it has no test files
}

// reader reads the output of go test -json.
type reader struct {
	log      io.Writer
	out      *printer
	suite    string
	packages map[string]*pkg
}

func (r *reader) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "output", Output: string(line)} // of go itself, or of a test that bypasses testing
			}
			r.take(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the tests' output: %w", err)
		}
	}
}

func (r *reader) take(e event) {
	io.WriteString(r.log, e.Output) // what can't be kept is still judged
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]string{}, output: map[string][]byte{}}
		r.packages[e.Package] = p
	}
	name, _, _ := strings.Cut(e.Test, "/")
	switch e.Action {
	case "output", "build-output":
		p.output[name] = append(p.output[name], e.Output...)
		p.empty = p.empty || e.Test == "" && strings.HasSuffix(e.Output, "[no test files]\n")
	case "run":
		p.tests[e.Test] = ""
	case "pass", "fail", "skip":
		if e.Test != "" {
			p.tests[e.Test] = e.Action
			break
		}
		p.verdict = e.Action
		if !p.empty {
			short := strings.TrimPrefix(e.Package, "github.com/tenure-dev/tenure/")
			r.out.line(r.suite, "%s %s: %d tests in %.1fs", e.Action, short, len(p.tests), e.Elapsed)
		}
	}
}

// verdict counts the tests and says what is wrong.
func (r *reader) verdict(c *counts) error {
	var faults []string
	for name, p := range r.packages {
		if name == "" || p.empty && len(p.tests) == 0 {
			continue // go's own lines, or nothing to test
		}
		for test, verdict := range p.tests {
			if verdict == "" { // a benchmark has none of its own, and what was cut short neither
				verdict = p.verdict
			}
			switch verdict {
			case "pass":
				c.passed++
			case "skip":
				c.skipped = append(c.skipped, name+" "+test)
			default:
				c.failed++
				if !strings.Contains(test, "/") {
					faults = append(faults, test)
					r.out.failure(r.suite, test, p.output[test])
				}
			}
		}
		switch {
		case p.verdict != "pass" && p.verdict != "fail":
			faults = append(faults, name+" has no verdict")
			r.out.failure(r.suite, name, p.output[""])
		case p.verdict == "fail":
			faults = append(faults, name)
			r.out.failure(r.suite, name, p.output[""])
		case len(p.tests) == 0:
			faults = append(faults, name+" ran no test")
		}
	}
	if len(r.packages) == 0 {
		faults = append(faults, "no package was tested")
	}
	slices.Sort(c.skipped)
	slices.Sort(faults)
	if len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, ", "))
	}
	return nil
}
