package shardtest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Result is the outcome of one schedule.
type Result struct {
	Failure string // "" if every invariant held
	Kind    string // Failure without names and figures: failures of one kind have the same
	Stats   Stats
}

// Simulator runs schedules one after another. It is not safe for concurrent use.
type Simulator struct {
	Verbose bool // narrate renewals too
	world   world
}

// Run runs a schedule. It writes what happens to narration; nil means no narration. A panic counts as a failure.
func (s *Simulator) Run(schedule Schedule, narration io.Writer) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result.Kind = fmt.Sprint("panic: ", p)
			result.Failure = result.Kind
		}
	}()
	w := &s.world
	w.out, w.all = narration, s.Verbose
	schedule.Faults = slices.Clone(schedule.Faults) // a run appends to them
	w.reset(schedule)
	w.run()
	return Result{Failure: w.failure, Kind: w.kind, Stats: w.Stats}
}

// Shrink returns a simpler schedule with the same kind of failure. It drops as many faults as it can, and then
// makes the other settings plainer. It returns a schedule that doesn't fail as it is.
func (s *Simulator) Shrink(schedule Schedule) Schedule {
	kind := s.Run(schedule, nil).Kind
	if kind == "" {
		return schedule
	}
	try := func(smaller Schedule) bool {
		if s.Run(smaller, nil).Kind != kind {
			return false
		}
		schedule = smaller
		return true
	}
	s.dropFaults(schedule, try)
	plain := []func(*Schedule){
		func(c *Schedule) { c.LongRun = false },
		func(c *Schedule) { c.Fill = 0 },
		func(c *Schedule) { c.Stale = false },
		func(c *Schedule) { c.Previous = nil },
		func(c *Schedule) { c.Bits = c.Bits[:1] },
		func(c *Schedule) { c.Lag = min(c.Lag, 2*time.Millisecond) },
	}
	for i := range schedule.Rates {
		plain = append(plain, func(c *Schedule) { c.Rates = slices.Clone(c.Rates); c.Rates[i] = 1 })
	}
	for _, simplify := range plain {
		plainer := schedule
		simplify(&plainer)
		try(plainer)
	}
	return schedule
}

// dropFaults tries the schedule without half of its faults, and then without smaller and smaller parts of them.
func (s *Simulator) dropFaults(schedule Schedule, try func(Schedule) bool) {
	faults := schedule.Faults
	for size := (len(faults) + 1) / 2; size > 0; {
		dropped := false
		for at := 0; at < len(faults); {
			schedule.Faults = slices.Concat(faults[:at], faults[min(at+size, len(faults)):])
			if try(schedule) {
				faults, dropped = schedule.Faults, true
			} else {
				at += size
			}
		}
		if size == 1 && !dropped {
			return
		}
		size = max(1, size/2)
	}
}

// Explain shrinks a failing schedule. It returns a description of the failure with the last lines of the run's
// narration, and the shrunk schedule.
func (s *Simulator) Explain(schedule Schedule) (string, Schedule) {
	small := s.Shrink(schedule)
	var story, text strings.Builder
	fmt.Fprintf(&text, "seed %d: %s\n", schedule.Seed, s.Run(small, &story).Failure)
	fmt.Fprintf(&text, "%d of %d faults are enough:\n", len(small.Faults), len(schedule.Faults))
	for _, f := range small.Faults {
		fmt.Fprintf(&text, "  %v\n", f)
	}
	const most = 45
	lines := strings.SplitAfter(story.String(), "\n")
	if more := len(lines) - most; more > 0 {
		fmt.Fprintf(&text, "(the last %d of %d lines)\n", most, len(lines))
		lines = lines[more:]
	}
	text.WriteString(strings.Join(lines, ""))
	return text.String(), small
}

// Failures counts the failures of one kind.
type Failures struct {
	Count    int
	Schedule Schedule // the one with the smallest seed
	Replay   string   // the arguments by which command sim replays it
}

// Total is the outcome of many schedules.
type Total struct {
	Stats
	Kinds map[string]*Failures
}

// Seeds draws count schedules from the first seed on, and runs those that have all the given kinds of fault. It
// uses the given number of goroutines. It stops soon after as many failures as the limit; 0 means no limit.
func Seeds(first, count uint64, workers, limit int, with ...FaultKind) Total {
	at := func(i uint64) Schedule { return NewSchedule(first + i) }
	return each(count, workers, limit, with, at, func(i uint64) string { return fmt.Sprint("--shrink --seed ", first+i) })
}

// Recorded runs recorded schedules, which have failed once (see [Regressions]).
func Recorded(known []Regression, workers int) Total {
	at := func(i uint64) Schedule { return known[i].Schedule }
	return each(uint64(len(known)), workers, 0, nil, at, func(i uint64) string { return fmt.Sprint("--recorded ", i+1) })
}

// piece is how many schedules a goroutine takes at a time.
const piece = 256

func each(count uint64, workers, limit int, with []FaultKind, at func(uint64) Schedule,
	replay func(uint64) string) Total {
	total := Total{Kinds: map[string]*Failures{}}
	var next atomic.Uint64
	var failed atomic.Int64
	var lock sync.Mutex // guards total
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			mine := Total{Kinds: map[string]*Failures{}}
			var sim Simulator
			for limit == 0 || failed.Load() < int64(limit) {
				from := next.Add(piece) - piece
				if from >= count {
					break
				}
				for i := from; i < min(from+piece, count); i++ {
					schedule := at(i)
					if !schedule.has(with...) {
						continue
					}
					r := sim.Run(schedule, nil)
					mine.Stats.add(r.Stats)
					if r.Failure != "" {
						failed.Add(1)
						mine.note(r.Kind, Failures{1, schedule, replay(i)})
					}
				}
			}
			lock.Lock()
			defer lock.Unlock()
			total.Add(mine)
		})
	}
	group.Wait()
	return total
}

func (t *Total) note(kind string, more Failures) {
	f := t.Kinds[kind]
	switch {
	case f == nil:
		t.Kinds[kind] = &more
	case more.Schedule.Seed < f.Schedule.Seed:
		more.Count += f.Count
		t.Kinds[kind] = &more
	default:
		f.Count += more.Count
	}
}

// Add adds the outcome of other schedules.
func (t *Total) Add(o Total) {
	t.Stats.add(o.Stats)
	for kind, f := range o.Kinds {
		t.note(kind, *f)
	}
}

// Failed lists the kinds of failure, sorted.
func (t *Total) Failed() []string { return slices.Sorted(maps.Keys(t.Kinds)) }

// Print writes a summary to out. took is the elapsed time, processor the processor time.
func (s Stats) Print(out io.Writer, took, processor time.Duration) {
	fmt.Fprintf(out, "%d schedules in %v: %.0f a minute, %.0f a minute of processor time\n", s.Schedules,
		took.Round(time.Millisecond), float64(s.Schedules)/took.Minutes(), float64(s.Schedules)/processor.Minutes())
	fmt.Fprintf(out, "%d events, %d steps of a machine, %d writes committed\n", s.Events, s.Steps, s.Writes)
	fmt.Fprintf(out, "%d planned moves, %d claims, %d leases sealed (%d by a Pod's word), %d lapses\n",
		s.Moves, s.Claims, s.Seals, s.Proven, s.Lapses)
	fmt.Fprintf(out, "faults:")
	for k := range faultKinds {
		fmt.Fprintf(out, " %s %d", k, s.Faults[k])
	}
	fmt.Fprintln(out)
}
