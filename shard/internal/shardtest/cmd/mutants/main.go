// Mutants seeds one bug after another into the source and expects the tests to fail. It prints which test caught
// which bug, and fails if a bug got away. The test that caught a bug last is tried first; if it passes now, all others
// are, too. Run it from the module's root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/shard/internal/shardtest/mutants"
)

// verdict is the outcome of one mutant.
type verdict struct {
	name   string
	caught string // the test that failed, "" if none did
	took   time.Duration
	err    error // it couldn't be judged
}

func main() {
	var by judge
	var only, list string
	var parallel int
	cmd := &cobra.Command{
		Use: "mutants", Short: "Seeds bugs into protocol and queue, one at a time, and expects their tests to fail",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), only, by, parallel, list) },
	}
	fs := cmd.Flags()
	fs.StringVar(&only, "run", "", "only the mutants whose names match this regular `expression`")
	fs.IntVar(&by.seeds, "seeds", 20_000, "how many schedules of the simulator each mutant must survive to get away")
	fs.BoolVar(&by.simOnly, "sim", false, "judge by the simulator alone")
	fs.IntVar(&parallel, "parallel", 2, "how many to judge at once")
	fs.StringVar(&list, "remember", "", "the `path` of mutants.txt, to write there which test caught which")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if cmd.ExecuteContext(ctx) != nil {
		os.Exit(1) // the error is printed already
	}
}

func run(ctx context.Context, only string, by judge, parallel int, list string) error {
	if parallel < 1 {
		return fmt.Errorf("--parallel is %d, want at least 1", parallel)
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("reading --run: %w", err)
	}
	all, err := mutants.All()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tenure-mutants-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	chosen := slices.DeleteFunc(all, func(m mutants.Mutant) bool { return !match.MatchString(m.Name) })
	for i, sound := range onePerPackage(chosen) {
		sound.New, sound.Test = sound.Old, ""
		if caught, err := (judge{seeds: 1000}).verdict(ctx, sound, filepath.Join(dir, fmt.Sprint("sound", i))); err != nil {
			return fmt.Errorf("the tests of %s without any seeded bug: %w", path.Dir(sound.File), err)
		} else if caught != "" {
			return fmt.Errorf("the tests of %s fail without any seeded bug: %s", path.Dir(sound.File), caught)
		}
	}
	var group sync.WaitGroup
	slots, verdicts := make(chan struct{}, parallel), make(chan verdict)
	for i, m := range chosen {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			began := time.Now()
			v := verdict{name: m.Name}
			v.caught, v.err = by.verdict(ctx, m, filepath.Join(dir, fmt.Sprint(i)))
			v.took = time.Since(began)
			if ctx.Err() == nil || v.caught != "" { // otherwise it was interrupted, which is no verdict
				verdicts <- v
			}
		})
	}
	go func() {
		group.Wait()
		close(verdicts)
	}()
	caught, err := report(len(chosen), verdicts, start)
	if list != "" {
		err = errors.Join(err, remember(list, caught))
	}
	return err
}

func remember(list string, caught map[string]string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("reading --remember: %w", err)
	}
	if err := os.WriteFile(list, []byte(mutants.Remember(string(text), caught)), 0o644); err != nil {
		return fmt.Errorf("writing --remember: %w", err)
	}
	return nil
}

// onePerPackage returns the first mutant of each package.
func onePerPackage(all []mutants.Mutant) (found []mutants.Mutant) {
	for _, m := range all {
		same := func(other mutants.Mutant) bool { return path.Dir(other.File) == path.Dir(m.File) }
		if !slices.ContainsFunc(found, same) {
			found = append(found, m)
		}
	}
	return found
}

// report prints the verdicts as they come, and returns the tests that caught the mutants, by the mutants' names. Those
// that weren't caught are named again at the end.
func report(of int, verdicts <-chan verdict, start time.Time) (map[string]string, error) {
	judged, away, tests := 0, []string{}, map[string]string{}
	for v := range verdicts {
		judged++
		caught := v.caught
		switch {
		case v.err != nil:
			caught = "ERROR: " + v.err.Error()
		case caught == "":
			caught = "GOT AWAY"
		}
		if v.err != nil || v.caught == "" {
			away = append(away, v.name)
		} else {
			tests[v.name] = topmost(v.caught)
		}
		fmt.Printf("%3d of %d  %-60s %6.1fs  %s\n", judged, of, v.name, v.took.Seconds(), caught)
	}
	fmt.Printf("%d seeded bugs, %d caught, in %v\n", judged, judged-len(away), time.Since(start).Round(time.Second))
	var errs []error
	if of == 0 {
		errs = append(errs, errors.New("no seeded bug was judged: --run names none"))
	}
	if len(away) > 0 {
		errs = append(errs, fmt.Errorf("%d seeded bugs weren't caught: %s", len(away), strings.Join(away, "; ")))
	}
	if judged < of {
		errs = append(errs, fmt.Errorf("interrupted: %d seeded bugs weren't judged", of-judged))
	}
	return tests, errors.Join(errs...)
}

// topmost returns the test without its part and what it said.
func topmost(caught string) string {
	return caught[:min(len(caught), strings.IndexAny(caught+"/", "/,"))]
}

// judge holds the settings by which mutants are judged.
type judge struct {
	seeds   int
	simOnly bool
}

// verdict builds the tests with the mutant and runs them until one fails.
func (j judge) verdict(ctx context.Context, m mutants.Mutant, dir string) (caught string, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir) // the tests' programs take up to 80 MB
	overlay, err := writeOverlay(m, dir)
	if err != nil {
		return "", err
	}
	// The tests of the bug's package come first. Bugs below shard also have the simulator.
	var folders []string
	if !j.simOnly {
		folders = append(folders, path.Dir(m.File))
	}
	if strings.HasPrefix(m.File, "shard/") {
		folders = append(folders, "shard/internal/shardtest")
	}
	for _, folder := range folders {
		test, ok := strings.CutPrefix(m.Test, path.Base(folder)+".")
		if !ok || j.simOnly {
			continue
		}
		if caught, err := j.try(ctx, folder, test, overlay, dir); err != nil || caught != "" {
			return caught, err
		}
	}
	for _, folder := range folders {
		if caught, err := j.try(ctx, folder, "", overlay, dir); err != nil || caught != "" {
			return caught, err
		}
	}
	return "", nil
}

// try builds the tests of a folder with the mutant and runs the one that is named, or else all until one fails.
func (j judge) try(ctx context.Context, folder, test, overlay, dir string) (caught string, err error) {
	name := path.Base(folder)
	binary := filepath.Join(dir, name+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary,
		"./"+folder)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("doesn't build: %w\n%s", err, out)
	}
	args := []string{"-test.failfast", "-test.timeout=3m"}
	if test != "" {
		args = append(args, "-test.run=^"+regexp.QuoteMeta(test)+"$")
	}
	switch name {
	case "shardtest":
		args = append(args, fmt.Sprintf("-seeds=%d", j.seeds), "-fresh=0")
		if j.simOnly {
			args = append(args, "-test.run=TestSim")
		}
	case "at", "keyspace", "plan": // which check properties
		// Skip the timing tests, which fail on a busy machine without any bug. Draw the same inputs each time, so that
		// what fails, fails again. Don't store failing ones in the checkout, where later runs of the tests would use
		// them.
		args = append(args, "-test.skip=Linear", "-rapid.seed=1", "-rapid.nofailfile")
	}
	run := func(more ...string) (string, error) {
		test := exec.CommandContext(ctx, binary, append(args, more...)...)
		test.Dir = folder
		out, err := test.CombinedOutput()
		return string(out), err
	}
	out, err := run()
	if err == nil {
		return "", nil
	}
	failed, err := firstFailure(out, err)
	if err == nil && name != "shardtest" { // whose seeds fail each time
		err = again(run, failed)
	}
	return name + "." + failed, err
}

// again runs a test that failed once more, by itself: one that fails now and then catches nothing.
func again(run func(...string) (string, error), caught string) error {
	test, _, _ := strings.Cut(caught, "/")
	test, _, _ = strings.Cut(test, ",")
	out, err := run("-test.run=^" + regexp.QuoteMeta(test) + "$")
	if err == nil {
		return fmt.Errorf("%s failed, and passed when it ran once more by itself", caught)
	}
	_, err = firstFailure(out, err)
	return err
}

func writeOverlay(m mutants.Mutant, dir string) (string, error) {
	file, err := filepath.Abs(m.File)
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the source: %w", err)
	}
	mutated, err := m.Apply(string(source))
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, "mutated.go")
	if err := os.WriteFile(replacement, []byte(mutated), 0o644); err != nil {
		return "", fmt.Errorf("writing the mutant: %w", err)
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{file: replacement}})
	if err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return overlay, nil
}

var (
	failLine  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	invariant = regexp.MustCompile(`seed \d+: (?:at [0-9.]+s: (?:\S+: )?)?([A-Za-z0-9]+:[^\n]{0,50})`)
)

// firstFailure names the innermost test that failed first, and the invariant if the simulator failed. It returns an
// error if they ended without a failed test, because they ran out of time, were killed, or gave up.
func firstFailure(out string, ended error) (string, error) {
	fails := failLine.FindAllStringSubmatch(out, -1)
	switch exit := (*exec.ExitError)(nil); {
	case strings.Contains(out, "panic: test timed out"):
		return "", errors.New("the tests ran out of time")
	case !errors.As(ended, &exit) || !exit.Exited() || fails == nil:
		return "", fmt.Errorf("no test failed, and they ended with: %w\n%s", ended, out[max(0, len(out)-500):])
	}
	deepest := fails[0][1]
	for _, f := range fails {
		if strings.HasPrefix(f[1], deepest+"/") {
			deepest = f[1]
		}
	}
	if found := invariant.FindStringSubmatch(out); found != nil {
		deepest += ", " + found[1]
	}
	return deepest, nil
}
