package plan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
)

// bigFleet is 10,000 clusters of 8 shards over 1,000 replicas.
func bigFleet() fleet { return newFleet(1000, 10_000, 3) }

// place makes the target real.
func (f fleet) place() {
	target := f.target()
	for i, s := range f.shards {
		f.shards[i].Holder, f.shards[i].Assignee = target[s.ID], target[s.ID]
	}
}

// bigEvents are what planning takes long for at that size.
func bigEvents() map[string]fleet {
	fresh := bigFleet()
	settled := bigFleet()
	settled.place()
	join := settled.clone()
	join.join(1000)
	death := settled.clone()
	death.replicas = death.replicas[1:]
	// Records come from a cache in no order.
	for _, f := range []fleet{fresh, settled, join, death} {
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(f.shards), func(i, j int) {
			f.shards[i], f.shards[j] = f.shards[j], f.shards[i]
		})
	}
	halved := settled.clone()
	for i := range halved.replicas {
		halved.replicas[i].Leaving = i%2 == 0
	}
	return map[string]fleet{
		"fresh": fresh, "settled": settled, "join": join, "death": death, "half leave": halved,
	}
}

func BenchmarkPlan(b *testing.B) {
	for name, f := range bigEvents() {
		b.Run(fmt.Sprintf("%s/shards=%d/replicas=%d", name, len(f.shards), len(f.replicas)), func(b *testing.B) {
			b.ReportAllocs()
			moves := 0
			for b.Loop() {
				moves = len(f.plan())
			}
			b.ReportMetric(float64(moves), "moves")
		})
	}
}

func TestPlanningStaysLinearInTheSizeOfTheFleet(t *testing.T) {
	// Processor time, so that other programs don't count. The limit is some fifty times what it takes, so that the race
	// detector doesn't matter and anything quadratic does: 80,000 shards times 1,000 replicas would take minutes.
	const limit = 4 * time.Second
	for name, f := range bigEvents() {
		start := machine.ProcessorTime()
		f.plan()
		if took := machine.ProcessorTime() - start; took > limit {
			t.Errorf("%s: planning took %v of processor time, want less than %v", name, took, limit)
		}
	}
}
