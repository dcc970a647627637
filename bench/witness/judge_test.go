package witness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/bench/audit"
)

// broken is what a report found, kinds with a count of zero left out.
func broken(r *Report) map[Kind]int {
	found := make(map[Kind]int)
	for k, n := range r.Counts {
		if n > 0 {
			found[k] = n
		}
	}
	return found
}

// few waives all evidence: a log of a few lines can't have it.
var few = func() Rules {
	r := Rules{Waived: map[Kind]string{}}
	for _, k := range kinds {
		if k.invariant == Evidence {
			r.Waived[k.kind] = "the log has a few lines"
		}
	}
	return r
}()

func judged(m *model) *Report { return Judge(slices.Values(m.events), Facts{}, few) }

// spoil gives the n-th write under a shard another epoch, which was never granted, or was another's.
func (m *model) spoil(n int) {
	var signed []int
	for i := range m.events {
		if a := audit.ParseAgent(m.events[i].UserAgent); a.Fenced && m.events[i].Code < 300 {
			signed = append(signed, i)
		}
	}
	if len(signed) > 0 {
		e := &m.events[signed[n%len(signed)]]
		a := audit.ParseAgent(e.UserAgent)
		e.UserAgent = fmt.Sprintf("tenure/v1 (shard=%s; epoch=%d; incarnation=%s)", a.Shard, a.Epoch+1, a.Incarnation)
	}
}

func TestACorrectModelHasNoViolation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.Uint64().Draw(t, "seed"))
		m.newAt() // without any there is nothing to judge
		m.run(rapid.IntRange(40, 400).Draw(t, "steps"))
		r := Judge(slices.Values(m.events), Facts{}, Rules{Users: []string{"fleet"}})
		if diff := cmp.Diff(map[Kind]int{}, broken(r)); diff != "" {
			t.Fatalf("violations in a correct log (-want +got):\n%s\n%+v", diff, r.Violations)
		}
	})
}

func TestAWrongEpochAnywhereIsFoundWhateverTheOrderOfTheLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.Uint64().Draw(t, "seed"))
		m.run(200)
		m.spoil(rapid.IntRange(0, 1000).Draw(t, "write"))
		want := judged(m)
		if want.OK {
			t.Fatal("not found")
		}
		m.rng.Shuffle(len(m.events), func(i, j int) { m.events[i], m.events[j] = m.events[j], m.events[i] })
		if diff := cmp.Diff(want.Counts, judged(m).Counts); diff != "" {
			t.Fatalf("shuffling the log changed the counts (-want +got):\n%s", diff)
		}
	})
}

func TestPercentilesAreOfTheSamplesThemselves(t *testing.T) {
	var ds []time.Duration
	for i := range 100 {
		ds = append(ds, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := SpreadOf(ds), (Spread{N: 100, P50: 50, P99: 99, Max: 100}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := SpreadOf(nil); got != (Spread{}) {
		t.Errorf("got %v of nothing", got)
	}
}
