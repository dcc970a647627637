package run

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// options builds the programs, so that what is tested is what the sources say.
func options(t *testing.T) Options {
	t.Helper()
	o := Options{Command: "go test", Progress: testWriter{t}, Dir: t.TempDir()}
	var err error
	if o.ControlPlane, err = localplane.FindBinary(); err != nil {
		t.Fatalf("%v (make controlplane)", err)
	}
	bin := t.TempDir()
	for program, path := range map[string]*string{"tenure": &o.Tenure, lab.Hooked: &o.Hooked, "bench": &o.Bench} {
		*path, err = lab.Build(t.Context(), bin, program, false)
		must.Succeed(t, err)
	}
	return o
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

const smoke = `
schema: tenure.dev/bench/scenario/v1
name: smoke
summary: everything that a run has, as small as can be
fleet: {clusters: 1, replicas: 2, workers: 4, shardsPerCluster: 4, leaseDuration: 10s}
load: {arrivals: burst, count: 20}
compare: [floor]
limit: 60s
thresholds:
- {figure: results.lost, max: 0, why: I4}
- {figure: results.duplicates, max: 0, why: I7}
- {figure: results.violations, max: 0, why: I1 and I2}
- {figure: results.api_writes_per_object, max: 3, min: 3, why: the three writes of a life}
- {figure: references.floor.api_writes_per_object, max: 3, min: 3, why: what the floor is}
`

// carryOut runs a scenario.
func carryOut(t *testing.T, o Options, text string, settings ...string) *report.Report {
	t.Helper()
	s, err := scenario.Parse([]byte(text), settings)
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := Run(ctx, s, o)
	must.Succeed(t, err)
	return r
}

func TestARunOfEverythingAsSmallAsCanBe(t *testing.T) {
	r := carryOut(t, options(t), smoke)
	if !r.Valid {
		t.Errorf("not valid: %v", r.Reasons)
	}
	verdicts, err := check.Check(r, r.Config.Thresholds, nil)
	must.Succeed(t, err)
	for _, v := range verdicts {
		if !v.OK {
			t.Error(v.Text())
		}
	}
	res := r.Results
	if res.Objects != 20 || res.Converge == nil || res.Converge.N != 20 {
		t.Errorf("%d objects, converged %v; want 20", res.Objects, res.Converge)
	}
	for name, q := range map[string]bool{
		"queue latency": res.QueueLatency != nil, "event to reconcile": res.EventToReconcile != nil, "work": res.Work != nil,
		"lateness": res.Lateness != nil, "throughput": res.Throughput != nil, "conflicts": res.Conflicts != nil,
	} {
		if !q {
			t.Errorf("%s was not measured", name)
		}
	}
	if len(res.Replicas) != 2 || len(res.CPUSeconds) != 2 || len(res.RSS) != 2 || len(res.WatchBytes) != 2 {
		t.Errorf("replicas %v, CPU %v, memory %v, bytes %v", res.Replicas, res.CPUSeconds, res.RSS, res.WatchBytes)
	}
	spans := map[string]int{}
	for _, span := range res.Ownership {
		spans[span.Shard]++
	}
	for shard, n := range spans {
		if n > 2 { // the replica that comes second takes shards of the first
			t.Errorf("shard %s was held by %d replicas one after the other", shard, n)
		}
	}
	if len(spans) != 4 {
		t.Errorf("spans of %d shards, want 4", len(spans))
	}
	if total := sum(res.WatchBytes); total < 20*1000 {
		t.Errorf("the replicas received %v bytes for 20 Ats", total)
	}
	if ratio := r.Ratios["throughput_per_s/floor"]; !(ratio.Value > 0) || math.IsInf(ratio.Value, 0) {
		t.Errorf("throughput over the floor's: %v", ratio)
	}
	page, err := os.Create(filepath.Join(t.TempDir(), "page.html"))
	must.Succeed(t, err)
	defer page.Close()
	if err := report.HTML(page, r); err != nil {
		t.Error(err)
	}
}

const turning = `
schema: tenure.dev/bench/scenario/v1
name: turning
summary: tracing nothing, some and all in turns
fleet: {clusters: 1, replicas: 1, workers: 4, shardsPerCluster: 1, tracingTurns: 1s}
load: {arrivals: closed, clients: 8, count: 1200}
`

func TestARunInTurns(t *testing.T) {
	r := carryOut(t, options(t), turning)
	if !r.Valid || r.Results.Lost > 0 || len(r.Results.Turns[samples.Untraced]) == 0 {
		t.Errorf("valid %v (%v), %d lost, turns %v", r.Valid, r.Reasons, r.Results.Lost, r.Results.Turns)
	}
	for _, name := range []string{"traced", "sampled"} {
		for _, figure := range []string{"reconciles_per_s/", "cpu_seconds_per_reconcile/",
			"server_cpu_seconds_per_reconcile/"} {
			if ratio := r.Ratios[figure+name]; !(ratio.Value > 0) {
				t.Errorf("%s%s: %v", figure, name, ratio)
			}
		}
	}
}
