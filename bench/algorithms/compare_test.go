package algorithms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// ticking is a clock that goes on by a millisecond each time it is read.
func ticking() func() time.Time {
	now := time.Unix(0, 0)
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

func small() Config {
	return Config{
		Replicas: []int{1, 3}, Clusters: []int{2, 5}, PrefixBits: 3, Names: Sequential, Runs: 3, Now: ticking(),
	}
}

func TestATableHasARowForEachAlgorithmAndSize(t *testing.T) {
	table, err := Run(t.Context(), small())
	must.Succeed(t, err)
	if got, want := len(table.Rows), 2*2*len(All()); got != want {
		t.Fatalf("%d rows, want %d", got, want)
	}
	got := table.Rows[len(All())] // the planner, 2 clusters over 3 replicas
	want := Row{
		Algorithm: "planner", Replicas: 3, Clusters: 2, Shards: 16,
		MaxOverMean: 18.0 / 16, BestMaxOverMean: 18.0 / 16, PlaceMillis: 1,
		Join:  Change{Moves: 4, Minimal: 4, MaxOverMean: 1, Millis: 1},
		Leave: &Change{Moves: 5, Minimal: 5, MaxOverMean: 1, Millis: 1},
	}
	expect.Equal(t, "row", want, got)
	for _, row := range table.Rows {
		if (row.Replicas == 1) != (row.Leave == nil) {
			t.Errorf("%s over %d replicas: leave is %v", row.Algorithm, row.Replicas, row.Leave)
		}
	}
}

func TestATableIsTheSameEachTimeButForItsTimings(t *testing.T) {
	for _, names := range []Names{Sequential, Random} {
		var encoded [2]string
		for i := range encoded {
			config := small()
			config.Names = names
			table, err := Run(t.Context(), config)
			must.Succeed(t, err)
			text, err := json.Marshal(table)
			must.Succeed(t, err)
			encoded[i] = string(text)
		}
		expect.Equal(t, string(names)+" names: two runs differ", encoded[0], encoded[1])
		if !strings.Contains(encoded[0], `"schema":"tenure.dev/bench/algorithms/v1"`) {
			t.Errorf("the schema is missing from %s", encoded[0])
		}
	}
}

func TestTheTextShowsEveryRow(t *testing.T) {
	table, err := Run(t.Context(), small())
	must.Succeed(t, err)
	var text strings.Builder
	must.Succeed(t, table.WriteText(&text))
	blocks := strings.Split(strings.TrimSpace(text.String()), "\n\n")
	if len(blocks) != 4 {
		t.Fatalf("%d blocks, want one for each size:\n%s", len(blocks), text.String())
	}
	for _, block := range blocks {
		if got, want := strings.Count(block, "\n"), 1+len(All()); got != want {
			t.Errorf("block of %d lines after its title, want %d:\n%s", got, want, block)
		}
	}
	title := "2 clusters, 16 shards over 3 replicas (sequential names); max/mean is at best 1.125\n"
	if !strings.HasPrefix(blocks[1], title) {
		t.Errorf("the second block doesn't start with %q:\n%s", title, blocks[1])
	}
	got := strings.Fields(strings.Split(blocks[1], "\n")[2])
	want := strings.Fields("planner 1.125 0 4 4 1.000 5 5 1.000 1.00 1.00 1.00")
	expect.Equal(t, "the planner's line", want, got)
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWritingTextReportsAFailedWrite(t *testing.T) {
	table, err := Run(t.Context(), small())
	must.Succeed(t, err)
	if err := table.WriteText(brokenPipe{}); err == nil || !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("writing to a broken pipe: %v", err)
	}
}

func TestAComparisonEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, small()); !errors.Is(err, context.Canceled) {
		t.Errorf("running with a cancelled context: %v", err)
	}
}

func TestAConfigThatMakesNoSenseIsRefusedWithEveryFieldNamed(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	_, err := Run(t.Context(), Config{Replicas: []int{0}, PrefixBits: 9, Names: "odd"})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, field := range []string{"replicas [0]", "clusters []", "prefix bits 9", `names "odd"`, "runs 0"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q isn't named in: %v", field, err)
		}
	}
}

func TestReplicaNamesAreDifferent(t *testing.T) {
	for _, names := range []Names{Sequential, Random} {
		seen := map[string]bool{}
		for _, name := range (Config{Names: names}).replicaNames(20_000) {
			if seen[name] {
				t.Fatalf("%s names: %s comes twice", names, name)
			}
			seen[name] = true
		}
	}
}

func BenchmarkPlace(b *testing.B) {
	keys := newKeys(1000, 3)
	for _, n := range []int{10, 100} {
		replicas := replicaNames(n)
		for _, a := range All() {
			before := start(a, keys, replicas)
			d := a.prepare(keys, replicas, before)
			b.Run(fmt.Sprintf("%s/shards=%d/replicas=%d", a.Name, len(keys), n), func(b *testing.B) {
				for b.Loop() {
					d.decide()
				}
			})
		}
	}
}
