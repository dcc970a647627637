// Sim runs seeded schedules of the ownership protocol, or replays one with its narration.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/shardtest"
)

func main() {
	seeds := flag.Uint64("seeds", 100_000, "how many schedules to run")
	from := flag.Uint64("from", 1, "the first seed")
	seed := flag.Uint64("seed", 0, "replay this seed alone, with narration")
	keep := flag.String("keep", "", "with -seed: keep only the faults of these numbers (\"1,4\" or \"none\")")
	verbose := flag.Bool("v", false, "with -seed: narrate renewals too")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	debug.SetGCPercent(400) // the heap is tiny
	if err := run(*seeds, *from, *seed, *keep, *profile, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(seeds, from, seed uint64, keep, profile string, verbose bool) error {
	if seed != 0 {
		return replay(seed, keep, verbose)
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return fmt.Errorf("creating the profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("starting the profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	start, busy := time.Now(), processorTime()
	var sim shardtest.Simulator
	total, failed := shardtest.RunSeeds(&sim, from, seeds)
	total.Print(os.Stdout, time.Since(start), processorTime()-busy)
	if failed != 0 {
		fmt.Println(sim.Explain(failed))
		return fmt.Errorf("seed %d fails", failed)
	}
	return nil
}

// processorTime is what this process has used so far: on a busy machine the honest measure of speed.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func replay(seed uint64, keep string, verbose bool) error {
	schedule := shardtest.NewSchedule(seed)
	if keep != "" {
		var kept []int
		for _, field := range strings.Split(keep, ",") {
			if field == "none" {
				continue
			}
			i, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("reading -keep: %w", err)
			}
			kept = append(kept, i)
		}
		schedule = schedule.Keep(kept)
	}
	for i, f := range schedule.Faults {
		fmt.Printf("fault %d: %v\n", i, f)
	}
	sim := shardtest.Simulator{Verbose: verbose}
	if r := sim.Run(schedule, os.Stdout); r.Failure != "" {
		return fmt.Errorf("seed %d: %s", seed, r.Failure)
	}
	return nil
}
