package shardtest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Result is what became of one schedule.
type Result struct {
	Seed    uint64
	Failure string // "" if every invariant held
	Stats   Stats
}

// Simulator runs schedules one after another. It is not safe for concurrent use.
type Simulator struct {
	Verbose bool // narrate renewals too
	world   world
}

// Run runs a schedule. Where narration isn't nil, what happens is told there.
func (s *Simulator) Run(schedule Schedule, narration io.Writer) Result {
	w := &s.world
	w.out, w.all = narration, s.Verbose
	schedule.Faults = slices.Clone(schedule.Faults) // a run appends to them
	w.reset(schedule)
	w.run()
	return Result{Seed: schedule.Seed, Failure: w.failure, Stats: w.Stats}
}

// Keep returns the schedule with only the faults of these numbers.
func (s Schedule) Keep(faults []int) Schedule {
	kept := make([]Fault, 0, len(faults))
	for i, f := range s.Faults {
		if slices.Contains(faults, i) {
			kept = append(kept, f)
		}
	}
	s.Faults = kept
	return s
}

// Shrink drops faults from a failing schedule for as long as it still fails, and returns the numbers of those left.
func (s *Simulator) Shrink(schedule Schedule) []int {
	kept := make([]int, len(schedule.Faults))
	for i := range kept {
		kept[i] = i
	}
	for size := (len(kept) + 1) / 2; size > 0; {
		dropped := false
		for at := 0; at < len(kept); {
			fewer := slices.Concat(kept[:at], kept[min(at+size, len(kept)):])
			if s.Run(schedule.Keep(fewer), nil).Failure != "" {
				kept, dropped = fewer, true
			} else {
				at += size
			}
		}
		if size == 1 && !dropped {
			break
		}
		size = max(1, size/2)
	}
	return kept
}

// Explain shrinks a failing seed and describes it: what failed, how to replay it, and what happened.
func (s *Simulator) Explain(seed uint64) string {
	schedule := NewSchedule(seed)
	kept := s.Shrink(schedule)
	small := schedule.Keep(kept)
	var story strings.Builder
	result := s.Run(small, &story)
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d: %s\n", seed, result.Failure)
	fmt.Fprintf(&text, "%d of %d faults are enough:\n", len(kept), len(schedule.Faults))
	for _, f := range small.Faults {
		fmt.Fprintf(&text, "  %v\n", f)
	}
	fmt.Fprintf(&text, "replay: go run ./shard/internal/shardtest/cmd/sim -seed %d -keep=%s\n", seed, FormatKeep(kept))
	text.WriteString(tail(story.String(), 45))
	return text.String()
}

// FormatKeep writes fault numbers as the sim command reads them.
func FormatKeep(kept []int) string {
	if len(kept) == 0 {
		return "none"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(kept), "[]"), " ", ",")
}

func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	if len(all) <= lines {
		return text
	}
	return fmt.Sprintf("(the last %d of %d lines)\n", lines, len(all)) + strings.Join(all[len(all)-lines:], "")
}

// RunSeeds runs that many schedules from the first seed on, and stops at the first that fails. It returns that seed, or 0.
func RunSeeds(s *Simulator, first, seeds uint64) (total Stats, failed uint64) {
	for seed := first; seed < first+seeds; seed++ {
		r := s.Run(NewSchedule(seed), nil)
		total.add(r.Stats)
		if r.Failure != "" {
			return total, seed
		}
	}
	return total, 0
}

// Print writes the figures.
func (s Stats) Print(out io.Writer, took, processor time.Duration) {
	fmt.Fprintf(out, "%d schedules in %v: %.0f a minute, %.0f a minute of processor time\n", s.Schedules,
		took.Round(time.Millisecond), float64(s.Schedules)/took.Minutes(), float64(s.Schedules)/processor.Minutes())
	fmt.Fprintf(out, "%d events, %d steps of a machine, %d writes committed\n", s.Events, s.Steps, s.Writes)
	fmt.Fprintf(out, "%d planned moves, %d claims, %d leases sealed, %d lapses\n", s.Moves, s.Claims, s.Seals, s.Lapses)
	fmt.Fprintf(out, "faults:")
	for k := range faultKinds {
		fmt.Fprintf(out, " %s %d", k, s.Faults[k])
	}
	fmt.Fprintln(out)
}
