// Sim runs seeded schedules of the ownership protocol: those that failed once, the first hundred thousand, and fresh
// ones whose base seed it draws and prints. It goes on after a failure and ends with a table of the kinds of failure.
// With --seed or --recorded it replays one schedule with its narration.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/shard/internal/shardtest"
)

// settings are the flags.
type settings struct {
	seeds, from, old uint64
	seed             uint64
	recorded         int
	shrink, verbose  bool
	record           string
	workers          int
	with             []string
}

func main() {
	var s settings
	cmd := &cobra.Command{
		Use: "sim", Short: "Runs seeded schedules of the ownership protocol", Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(400) // the heap is tiny
			return s.run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&s.seeds, "seeds", 400_000, "how many fresh schedules to run")
	fs.Uint64Var(&s.from, "from", 0, "the first fresh seed; 0 draws one")
	fs.Uint64Var(&s.old, "old", 100_000, "how many schedules to run from seed 1 on")
	fs.Uint64Var(&s.seed, "seed", 0, "replay this seed alone, with narration")
	fs.IntVar(&s.recorded, "recorded", 0, "replay the schedule on this line of regressions.jsonl alone, with narration")
	fs.BoolVar(&s.shrink, "shrink", false, "with --seed: replay the least of it that fails in the same way")
	fs.BoolVarP(&s.verbose, "verbose", "v", false, "with a replay: narrate renewals too")
	fs.StringVar(&s.record, "record", "", "add each new kind of failure to this file, shrunk")
	fs.StringSliceVar(&s.with, "with", nil,
		"run only fresh schedules that have all these `kinds` of fault; --seeds still counts those that are drawn")
	fs.IntVar(&s.workers, "workers", runtime.GOMAXPROCS(0), "how many schedules to run at once")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if cmd.ExecuteContext(ctx) != nil {
		os.Exit(1) // the error is printed already
	}
}

// batch is how many schedules run between two lines of progress.
const batch = 20_000

func (s settings) run(ctx context.Context) error {
	known, err := shardtest.Regressions()
	if err != nil {
		return err
	}
	switch {
	case s.recorded > len(known) || s.recorded < 0:
		return fmt.Errorf("--recorded is %d: regressions.jsonl has lines 1 to %d", s.recorded, len(known))
	case s.shrink && s.seed == 0:
		return errors.New("--shrink is for one schedule: name it by --seed")
	case s.recorded > 0:
		return s.replay(known[s.recorded-1].Schedule)
	case s.seed != 0:
		return s.replay(shardtest.NewSchedule(s.seed))
	}
	with := make([]shardtest.FaultKind, len(s.with))
	for i, name := range s.with {
		if err := with[i].UnmarshalText([]byte(name)); err != nil {
			return fmt.Errorf("--with: %w; the figures at a run's end name all", err)
		}
	}
	if s.from == 0 {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return fmt.Errorf("drawing a seed: %w", err)
		}
		s.from = binary.LittleEndian.Uint64(b[:])>>16 + 1 // room for seeds above it, and short enough to read
	}
	fmt.Printf("fresh schedules begin at seed %d (--from %d runs them again)\n", s.from, s.from)
	start, busy := time.Now(), processorTime()
	total := shardtest.Recorded(known, s.workers)
	run := func(kind string, from, count uint64, with ...shardtest.FaultKind) (drawn uint64, ran int) {
		for drawn < count && ctx.Err() == nil {
			next := shardtest.Seeds(from+drawn, min(batch, count-drawn), s.workers, 0, with...)
			drawn, ran = min(drawn+batch, count), ran+next.Schedules
			total.Add(next)
			fmt.Fprintf(os.Stderr, "%v: %d of %d %s schedules, %d kinds of failure so far\n",
				time.Since(start).Round(time.Second), drawn, count, kind, len(total.Kinds))
		}
		return drawn, ran
	}
	old, _ := run("known", 1, s.old)
	drawn, fresh := run("fresh", s.from, s.seeds, with...)
	total.Print(os.Stdout, time.Since(start), processorTime()-busy)
	if old < s.old || drawn < s.seeds {
		return errors.Join(s.judge(total), fmt.Errorf("stopped after %d of %d fresh schedules", drawn, s.seeds))
	}
	if s.seeds > 0 && fresh == 0 {
		return fmt.Errorf("none of %d fresh schedules has all of --with %s: draw more of them with --seeds", s.seeds,
			strings.Join(s.with, ","))
	}
	return s.judge(total)
}

// judge prints the table of failures, and the story of one of each kind.
func (s settings) judge(total shardtest.Total) error {
	kinds, count := total.Failed(), 0
	if len(kinds) == 0 {
		return nil
	}
	var sim shardtest.Simulator
	for _, kind := range kinds {
		f := total.Kinds[kind]
		count += f.Count
		story, small := sim.Explain(f.Schedule)
		fmt.Printf("\n%s", story)
		if s.record != "" && !strings.HasPrefix(f.Replay, "--recorded") {
			if err := record(s.record, shardtest.Regression{Kind: kind, Schedule: small}); err != nil {
				return err
			}
		}
	}
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COUNT\tKIND\tFIRST SEED\tREPLAY")
	for _, kind := range kinds {
		f := total.Kinds[kind]
		fmt.Fprintf(table, "%d\t%s\t%d\tgo run ./shard/internal/shardtest/cmd/sim %s\n",
			f.Count, kind, f.Schedule.Seed, f.Replay)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the failures: %w", err)
	}
	return fmt.Errorf("%d schedules fail, in %d ways", count, len(kinds))
}

// record appends a failure to a file, which must exist.
func record(file string, r shardtest.Regression) error {
	line, err := r.Line()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("recording a failure: %w", err)
	}
	if _, err = f.Write(line); err == nil {
		fmt.Println("recorded in", file)
	}
	return errors.Join(err, f.Close())
}

func (s settings) replay(schedule shardtest.Schedule) error {
	sim := shardtest.Simulator{Verbose: s.verbose}
	if s.shrink {
		schedule = sim.Shrink(schedule)
	}
	for _, f := range schedule.Faults {
		fmt.Printf("  %v\n", f)
	}
	if r := sim.Run(schedule, os.Stdout); r.Failure != "" {
		return fmt.Errorf("seed %d: %s", schedule.Seed, r.Failure)
	}
	return nil
}

// processorTime returns the processor time that this process has used. On a busy machine it measures speed better
// than elapsed time does.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
