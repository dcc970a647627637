package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/hooks"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// gates is a run of all gates.
type gates struct {
	dir    string
	tenure string // with hooks
	out    io.Writer
	only   *regexp.Regexp
	facts  witness.Facts // of the control without a crash
	table  [][4]string
	failed int
}

// runGates plants each fault, and judges a control without one. It returns the exit code.
func runGates(ctx context.Context, args []string, out io.Writer) int {
	fs := flag.NewFlagSet("gates", flag.ContinueOnError)
	only := fs.String("only", "", "gates whose name or fault matches this `expression`")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(out, "gates: unexpected argument %q: see --only\n", fs.Arg(0))
		return 2
	}
	expression, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintf(out, "gates: --only %q: %v\n", *only, err)
		return 2
	}
	g := &gates{out: out, only: expression}
	if names := allGates(); !slices.ContainsFunc(names, expression.MatchString) {
		fmt.Fprintf(out, "gates: --only %q matches none of these gates and faults:\n  %s\n", *only,
			strings.Join(names, "\n  "))
		return 2
	}
	began := time.Now()
	err = g.all(ctx)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nGATE\tPLANTED\tCAUGHT BY\tCONTROL")
	for _, row := range g.table {
		fmt.Fprintln(w, strings.Join(row[:], "\t"))
	}
	_ = w.Flush()
	took := time.Since(began).Round(time.Second)
	fmt.Fprintf(out, "%s\n%d gates, %d failed, in %v\n", unplanted, len(g.table), g.failed, took)
	if err != nil || g.failed > 0 || len(g.table) == 0 {
		fmt.Fprintln(out, "gates:", cmp.Or(err, errors.New("not everything was caught, or a control wasn't clean")))
		return 1
	}
	return 0
}

func (g *gates) all(ctx context.Context) (err error) {
	dir, remove, err := localplane.TempDir()
	if err != nil {
		return err
	}
	g.dir = dir
	defer func() { err = errors.Join(err, remove()) }()
	if g.tenure, err = lab.Build(ctx, g.dir, lab.Hooked, false); err != nil {
		return err
	}
	if err := g.onOneFleet(ctx); err != nil {
		return err
	}
	return g.programs(ctx)
}

// allGates are the names and the faults of all gates.
func allGates() (names []string) {
	for _, one := range ofReplicas {
		names = append(names, one.name, one.plant)
	}
	for _, l := range ofLogs {
		names = append(names, l.name, l.plant)
	}
	for _, p := range ofPrograms {
		names = append(names, p.name, p.plant)
	}
	return names
}

// wants reports whether a gate was selected.
func (g *gates) wants(name, plant string) bool {
	return g.only.MatchString(name) || g.only.MatchString(plant)
}

// judge records the result of a gate: its fault must be found, and its control must pass.
func (g *gates) judge(name, plant, caught string, found, control error) {
	row := [4]string{name, plant, "NOT CAUGHT", "passed"}
	if found != nil {
		for line := range strings.Lines(found.Error()) {
			if ok, _ := regexp.MatchString(caught, line); ok {
				row[2] = clip(strings.TrimSpace(line), 90)
				break
			}
		}
		if row[2] == "NOT CAUGHT" {
			fmt.Fprintf(g.out, "%s: not by %q, but: %v\n", name, caught, found)
		}
	}
	if control != nil {
		row[3] = "FAILED: " + clip(control.Error(), 90)
	}
	if row[2] == "NOT CAUGHT" || control != nil {
		g.failed++
	}
	g.table = append(g.table, row)
	fmt.Fprintf(g.out, "%-32s %-22s %s\n", row[0], row[1], row[2])
}

func clip(text string, most int) string {
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > most {
		text = text[:most-3] + "..."
	}
	return text
}

// onOneFleet judges the gates of replicas and logs, all on the same control planes.
func (g *gates) onOneFleet(ctx context.Context) (err error) {
	var wanted []gate
	for _, one := range ofReplicas {
		if g.wants(one.name, one.plant) {
			wanted = append(wanted, one)
		}
	}
	logs := false
	for _, l := range ofLogs {
		logs = logs || g.wants(l.name, l.plant)
	}
	if len(wanted) == 0 && !logs {
		return nil
	}
	s := settings{
		bound: time.Hour, rate: 20, lease: 3 * time.Second, replicas: 3, shards: 4, scenarios: []string{"handoff"},
		quiet: time.Second, patience: 20 * time.Second, slack: 4, tenure: g.tenure,
	}
	f, err := lab.Start(ctx, lab.Options{
		Workloads: []string{"west"}, LeaseDuration: s.lease, ShardsPerCluster: s.shards, Tenure: s.tenure,
		NoNodes: true, UserAgent: "chaos", Planes: localplane.Config{Progress: g.out, TmpfsData: true},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	var kubelets sync.WaitGroup
	defer kubelets.Wait()
	defer cancel()
	if err := newRun(s, f, io.Discard).playKubelets(ctx, &kubelets); err != nil {
		return err
	}
	control := map[bool]error{} // with a crash, and without
	for _, crash := range []bool{false, true} {
		control[crash] = g.short(ctx, f, s, gate{name: fmt.Sprintf("control-%v", crash), crash: crash})
		fmt.Fprintf(g.out, "control, with a crash %v: %v\n", crash, control[crash])
	}
	g.damaged()
	for _, one := range wanted {
		found := g.short(ctx, f, s, one)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		clean := control[one.crash]
		if one.idle {
			clean = g.short(ctx, f, s, gate{name: "control-rule", idle: true, plant: "rule for r1"})
		}
		if one.restore {
			clean = g.short(ctx, f, s, gate{name: "control-restore", restore: true})
		}
		g.judge(one.name, one.plant, one.caught, found, clean)
	}
	return nil
}

// short makes a short run of chaos on planes that were used before, and returns its verdict.
func (g *gates) short(ctx context.Context, f *lab.Fleet, s settings, one gate) error {
	if one.patient {
		s.patience = 2 * s.patience
	}
	if one.plant != "" && !one.idle && !one.without {
		s.flags = []string{"--plant", one.plant}
	}
	if one.restore {
		s.scenarios = nil // nothing is calm then, and no figure is promised
	}
	r := newRun(s, f, io.Discard)
	dir := filepath.Join(g.dir, strings.ReplaceAll(one.name, " ", "-"))
	var err error
	if r.evidence, err = since(f.Planes.Dir(), dir); err != nil {
		return err
	}
	err = r.playGate(ctx, one)
	if one.name == "control-false" {
		var factsErr error
		g.facts, factsErr = r.facts(ctx)
		g.facts.Whole = true // it is the first run on its planes
		err = errors.Join(err, factsErr)
	}
	for _, p := range r.processes() {
		p.Kill()
	}
	if left := r.load.clear(ctx); left != nil {
		err = errors.Join(err, fmt.Errorf("clearing up: %w", left))
	}
	return errors.Join(append(r.broken, err)...)
}

// playGate moves shards, lets a replica leave and, if wanted, another crash, under load.
func (r *run) playGate(ctx context.Context, one gate) error {
	began := time.Now()
	flags := r.flags
	if one.restore {
		r.flags = nil
	}
	if err := r.startAll(ctx); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	var side sync.WaitGroup
	side.Go(func() { r.supervise(background) })
	if !one.without {
		side.Go(func() { r.load.run(background) })
	}
	if one.idle {
		l := line{proxy: r.fleet.HomeProxy("r1"), name: "r1 to home", role: "home"}
		if one.plant == "rule for nobody" {
			l.agents = []string{"incarnation=nobody-"}
		}
		rule := faultproxy.Rule{Match: homeWrites, Fault: faultproxy.Answer, Status: 409, Limit: 3}
		r.hurt(ctx, l, "409", rule, 2*time.Second)
	}
	while := r.calmly
	if one.restore { // the restore causes errors for a while, which no calm scenario may have
		while = func(do func()) { do() }
		f := fault{Kind: "home restored", Start: time.Now(), Server: true}
		r.restore(ctx, &f, time.Second, 0, 0)
		r.note(ctx, f)
		r.settle(ctx, settleWithin)
		r.starting.Lock() // the supervisor may be about to start one
		r.flags = flags
		r.starting.Unlock()
		r.roll(ctx)
		r.settle(ctx, settleWithin)
	}
	while(func() {
		sleep(ctx, time.Second)
		for i := range 2 {
			r.blame(r.moveOne(ctx, i))
		}
		r.blame(r.fleet.Unpin(ctx))
		r.settle(ctx, settleWithin)
		if one.plant == "lapse" || one.plant == "exit" || one.plant == "excused-error" {
			sleep(ctx, time.Until(began.Add(hooks.After+r.lease+2*time.Second))) // the planted faults occur then
		}
		r.exit(ctx)
		r.settle(ctx, settleWithin)
		if one.crash {
			r.kill(ctx)
			r.settle(ctx, settleWithin)
		}
	})
	stop()
	side.Wait()
	r.rest(ctx)
	r.conclude(ctx)
	return ctx.Err()
}

// damaged judges the control's audit logs, each time with something missing.
func (g *gates) damaged() {
	whole := filepath.Join(g.dir, "control-false")
	judge := func(dir string) error {
		report, err := lab.Judge(dir, g.facts)
		if err != nil {
			return err
		}
		return report.Err()
	}
	control := judge(whole)
	for _, l := range ofLogs {
		if !g.wants(l.name, l.plant) {
			continue
		}
		found := func() error {
			dir := filepath.Join(g.dir, "damaged", strings.ReplaceAll(l.plant, " ", "-"))
			log := filepath.Join(dir, "west", "audit.log")
			if os.CopyFS(dir, os.DirFS(whole)) != nil {
				return nil // nothing was judged
			}
			content, err := os.ReadFile(log)
			if err != nil || os.WriteFile(log, l.damage(content), 0o600) != nil {
				return nil
			}
			return judge(dir)
		}()
		g.judge(l.name, l.plant, l.caught, found, control)
	}
}

// programs judges the gates of demo and bench.
func (g *gates) programs(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(g.dir, "smoke.yaml"), []byte(smoke), 0o600); err != nil {
		return err
	}
	type outcome struct{ found, control error }
	outcomes := map[string]outcome{}
	for _, p := range ofPrograms {
		if !g.wants(p.name, p.plant) {
			continue
		}
		program, err := lab.Build(ctx, g.dir, p.command[0], false)
		if err != nil {
			return err
		}
		of, known := outcomes[program]
		if !known {
			var plants []string
			for _, other := range ofPrograms {
				if other.command[0] == p.command[0] {
					plants = append(plants, other.plant)
				}
			}
			if of.found, err = g.program(ctx, program, p.command[1:], strings.Join(plants, ",")); err != nil {
				return err
			}
			if of.control, err = g.program(ctx, program, p.command[1:], ""); err != nil {
				return err
			}
			outcomes[program] = of
			fmt.Fprintf(g.out, "control of %s: %v\n", p.command[0], of.control)
		}
		g.judge(p.name, p.plant, p.caught, of.found, of.control)
	}
	return nil
}

// program runs one program with replicas that have a fault, and returns its output as found if it failed. err says that
// it couldn't be run, which judges nothing.
func (g *gates) program(ctx context.Context, program string, command []string, plant string) (found, err error) {
	tenure := filepath.Join(g.dir, "tenure-"+cmp.Or(plant, "sound"))
	script := fmt.Sprintf("#!/bin/sh\nexec %s --plant '%s' \"$@\"\n", g.tenure, plant)
	if err := os.WriteFile(tenure, []byte(script), 0o700); err != nil {
		return nil, err
	}
	args := make([]string, len(command))
	for i, a := range command {
		if a == "smoke.yaml" {
			a = filepath.Join(g.dir, a)
		}
		args[i] = strings.ReplaceAll(a, "%s", tenure)
	}
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "TMPDIR="+g.dir) // a demo that fails keeps its logs, which nobody needs here
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	if err := localplane.StartChild(c); err != nil {
		return nil, err
	}
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, output.String()), nil
	}
	return nil, nil
}
