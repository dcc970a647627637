// Command gate decides whether the sources are good: it builds, lints and tests everything, and prints what each suite
// took beside what it may take. It fails when a test fails or is skipped, when a package with tests runs none, when a
// package that it should run isn't there, and when a suite takes longer than its budget. With all suites, it fails too
// when a right that config/ grants was used by none of them, or a request of a replica refused.
//
//	go run ./test/gate                  everything
//	go run ./test/gate -only NAME,...   these suites alone
//	go run ./test/gate -list            their names
//	go run ./test/gate -allow-skips     tests may be skipped
//
// In a shallow clone the test of upgrades may be skipped anyway. On a machine that turns out to be slow, the suites run
// one at a time and have twice their budgets. The output says both.
//
// What each suite printed is in out/gate.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

const (
	// logs is where the suites' output goes, and binaries where the programs that they share are built.
	logs     = "out/gate"
	binaries = "out/gate/bin"
	// usedRights is where control planes leave which rights the replicas used; the suite "rights" judges that.
	usedRights = "out/gate/rights"
	// budget is for all suites together, once everything is built. On two cores they took 20 to 28 minutes, and 35 at a
	// load of 20 to 35; the rest is for slower machines.
	budget = 50 * time.Minute
	// slowBudget is the same for a slow machine.
	slowBudget = 80 * time.Minute
)

// pace is how a machine goes through the suites.
type pace struct {
	atOnce  int           // how many suites of a phase run at a time
	stretch time.Duration // by how much the suites' budgets are multiplied
	budget  time.Duration // of all suites together
}

// On a slow machine two suites of fleets would be too much at a time: each gives its API servers as much to do as a
// machine of half the speed can.
var (
	usual = pace{atOnce: 4, stretch: 1, budget: budget}
	slow  = pace{atOnce: 1, stretch: 2, budget: slowBudget}
)

// after returns the pace for what follows. The pure packages, which only compute, take a third of their budget or less.
func (p pace) after(results []*result) pace {
	for _, r := range results {
		if r.suite.name == "pure" && r.took() > r.suite.budget/2 {
			return slow
		}
	}
	return p
}

func main() {
	only := flag.String("only", "", "run these `suites` alone, and what they need built; separated by commas")
	list := flag.Bool("list", false, "list the suites")
	allowSkips := flag.Bool("allow-skips", false, "pass though tests were skipped; they are named all the same")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "gate: unexpected argument %q: see -only\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *only, *list, *allowSkips, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list, allowSkips bool, to io.Writer) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	phases, err := suites(ctx)
	if err != nil {
		return err
	}
	if phases, err = choose(phases, only); err != nil {
		return err
	}
	if list {
		for _, s := range slices.Concat(phases...) {
			fmt.Fprintf(to, "%-14s %v\n", s.name, s.budget)
		}
		return nil
	}
	if err := lacks(ctx, phases); err != nil {
		return err
	}
	if err := makeFolders(); err != nil {
		return err
	}
	out := &printer{to: to}
	var all []*result
	speed := usual
	for _, phase := range phases {
		results := make([]*result, len(phase))
		var wg sync.WaitGroup
		free := make(chan struct{}, speed.atOnce)
		for i, s := range phase {
			s.budget *= speed.stretch
			free <- struct{}{} // in their order
			wg.Go(func() { results[i] = s.run(ctx, out); <-free })
		}
		wg.Wait()
		all = append(all, results...)
		if next := speed.after(results); next != speed {
			out.line("gate", "a slow machine: from now on one suite at a time, with twice the budget")
			speed = next
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if slices.ContainsFunc(results, func(r *result) bool { return r.suite.essential && !r.ok() }) {
			break // nothing else can pass
		}
	}
	err = table(to, all, speed.budget, func(test string) bool { return allowSkips || untestable(test) && isShallow() })
	fmt.Fprint(to, "\n", strings.Join(out.failures, "\n"))
	if n := len(slices.Concat(phases...)); err == nil && len(all) < n {
		err = fmt.Errorf("%d suites weren't run", n-len(all))
	}
	return err
}

// makeFolders makes the folders that suites write to, and deletes the used rights that an earlier run has left.
func makeFolders() error {
	return errors.Join(os.RemoveAll(usedRights), os.MkdirAll(usedRights, 0o755), os.MkdirAll(binaries, 0o755))
}

// choose leaves out the suites that weren't asked for, except essential ones.
func choose(phases [][]suite, only string) ([][]suite, error) {
	if only == "" {
		return phases, nil
	}
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		wanted[name] = false
	}
	var chosen [][]suite
	for _, phase := range phases {
		phase = slices.DeleteFunc(slices.Clone(phase), func(s suite) bool {
			_, ok := wanted[s.name]
			wanted[s.name] = true
			return !ok && !s.essential
		})
		if len(phase) > 0 {
			chosen = append(chosen, phase)
		}
	}
	for name := range strings.SplitSeq(only, ",") {
		if !wanted[name] {
			return nil, fmt.Errorf("-only %s: there is no such suite (-list shows them)", name)
		}
	}
	return chosen, nil
}

// table prints what became of the suites. Its error says which failed. A skipped test fails the gate unless it may be
// skipped.
func table(to io.Writer, all []*result, budget time.Duration, maySkip func(test string) bool) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nsuite\ttests\ttime\tprocessor\tbudget\t")
	var sum counts
	var built, ended time.Time
	var failed []string
	for _, r := range all {
		verdict := "ok"
		if !r.ok() {
			verdict = "FAILED: " + strings.Join(r.faults, "; ")
			failed = append(failed, r.suite.name)
		}
		sum.add(r.counts)
		if ended = later(ended, r.ended); r.suite.essential {
			built = later(built, r.ended)
		}
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t  %s\n", r.suite.name, r.counts.total(), seconds(r.took()), seconds(r.processor),
			r.suite.budget, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range sum.skipped {
		fmt.Fprintln(to, "NOT TESTED:", name)
	}
	took := ended.Sub(later(built, all[0].began))
	fmt.Fprintf(to, "\n%d passed, %d failed, %d skipped in %v of %v, builds in %v\n", sum.passed, sum.failed,
		len(sum.skipped), seconds(took), budget, seconds(ended.Sub(all[0].began)-took))
	if took > budget {
		failed = append(failed, "over the budget of all suites")
	}
	if slices.ContainsFunc(sum.skipped, func(test string) bool { return !maySkip(test) }) {
		failed = append(failed, "a test was skipped: -allow-skips accepts that")
	}
	if sum.passed == 0 {
		failed = append(failed, "no test ran")
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s (output in %s)", strings.Join(failed, ", "), logs)
	}
	return nil
}

// untestable reports whether a test compares this version with the one before, which a shallow clone lacks.
func untestable(test string) bool {
	return strings.HasSuffix(test, " TestAFleetIsUpgradedAndRolledBackUnderLoad")
}

// isShallow reports whether the clone lacks older commits.
func isShallow() bool {
	said, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	return err == nil && strings.TrimSpace(string(said)) == "true"
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func seconds(d time.Duration) time.Duration { return d.Round(time.Second) }

// printer keeps lines of suites that run side by side apart.
type printer struct {
	mu       sync.Mutex // guards all below
	to       io.Writer
	failures []string
}

func (p *printer) line(suite, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, "%-12s %s\n", suite, fmt.Sprintf(format, args...))
}

// failure prints the output of something that failed. It keeps the end of the output, to print it once more beside
// the verdicts at the end of a long run, where people look first. Log lines of the tested programs aren't kept:
// they would leave no room for the test's own words.
func (p *printer) failure(suite, what string, said []byte) {
	p.line(suite, "%s\n%s", what, said)
	lines := slices.DeleteFunc(slices.Collect(bytes.Lines(said)),
		func(l []byte) bool { return bytes.Contains(l, []byte(`{"time":"`)) })
	said = bytes.Join(lines, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	const kept = 2000
	p.failures = append(p.failures, fmt.Sprintf("--- %s: %s\n%s\n", suite, what, said[max(0, len(said)-kept):]))
}
