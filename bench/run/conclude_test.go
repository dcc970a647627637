package run

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

func quantiles(each time.Duration, n int) *stats.Quantiles {
	var l stats.Latencies
	for range n {
		l.Add(each)
	}
	return l.Quantiles()
}

func TestSaturationIsMeasuredInTheMiddle(t *testing.T) {
	start := time.Unix(1000, 0)
	var ends []time.Time
	for i := range 100 { // before the start: creations that were not due
		ends = append(ends, start.Add(-time.Duration(i)*time.Millisecond))
	}
	for i := range 1000 { // 200 a second
		ends = append(ends, start.Add(time.Duration(i+1)*5*time.Millisecond))
	}
	for i := range 100 { // a long tail
		ends = append(ends, start.Add(5*time.Second+time.Duration(i)*time.Second))
	}
	rate, ok := saturated(ends, start)
	if !ok || math.Abs(rate-200) > 1 {
		t.Errorf("got %v, %v; want 200", rate, ok)
	}
	if _, ok := saturated(ends[:10], start); ok {
		t.Error("ten reconciles were enough")
	}
}

func TestEfficiencyIsCapacityOverNTimesTheSmallestFleet(t *testing.T) {
	point := func(n int, reconciles, throughput float64) report.SweepPoint {
		return report.SweepPoint{Replicas: n, Results: &report.Results{Reconciles: new(reconciles),
			Throughput: new(throughput)}}
	}
	got := scaleOut(scenario.Load{Arrivals: scenario.Burst},
		[]report.SweepPoint{point(1, 50, 20), point(2, 99, 38), point(5, 245, 90)})
	want := &report.ScaleOut{
		Unit:       "reconciles per second",
		Capacity:   map[string]float64{"1": 50, "2": 99, "5": 245},
		Efficiency: map[string]float64{"1": 1, "2": 0.99, "5": 0.98},
		Makespan:   map[string]float64{"1": 1, "2": 0.95, "5": 0.9},
	}
	expect.Equal(t, "efficiency", want, got, cmpopts.EquateApprox(1e-9, 0))
	if scaleOut(scenario.Load{Arrivals: scenario.Burst}, nil) != nil {
		t.Error("no sweep has a curve")
	}
}

func TestReconcilesThatAreRepeatedAreNoCapacity(t *testing.T) {
	point := func(objects int, reconciles ...int) report.SweepPoint {
		return report.SweepPoint{Replicas: len(reconciles),
			Results: &report.Results{Objects: objects, ReconcilesPerReplica: reconciles}}
	}
	for name, c := range map[string]struct {
		last report.SweepPoint
		want string
	}{
		"as many":           {point(200, 300, 310), ""},
		"a fifth more":      {point(200, 300, 420), "2 replicas took 3.60 reconciles per object, the smallest fleet 3.00"},
		"a fifth fewer":     {point(200, 300, 180), "2 replicas took 2.40"},
		"none was measured": {point(200, 0, 0), ""},
	} {
		if got := judgeRepeats([]report.SweepPoint{point(100, 300), c.last}); !strings.HasPrefix(got, c.want) ||
			(got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestObjectsThatNoWriteServedHaveNoFigureOfWrites(t *testing.T) {
	for _, c := range []struct {
		done, unlogged int
		want           string
	}{{0, 0, ""}, {2, 0, ""}, {2, 1, "2 done objects, and the audit logs don't show who served 1 of them"}} {
		if got := judgeWrites(c.done, c.unlogged); got != c.want {
			t.Errorf("%d of %d done aren't in the logs: %q, want %q", c.unlogged, c.done, got, c.want)
		}
	}
}

// A replica that enqueues live keys behind the others would otherwise hide them from the figure that judges that.
func TestAKeyIsLiveUnlessItsShardBecameActiveMeanwhileWhateverItsReplicaSays(t *testing.T) {
	began := time.Unix(1000, 0).UTC()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	dir := t.TempDir()
	p := &process{samples: filepath.Join(dir, "samples")}
	var err error
	p.Replica, err = lab.StartProgram(lab.Program{Name: "r1", Binary: "/bin/sh", LogPath: filepath.Join(dir, "log"),
		Args: func([]string) []string {
			return []string{"-c", `echo '{"msg":"shard active","time":"` + at(100).Format(time.RFC3339Nano) + `"}'`}
		}})
	must.Succeed(t, err)
	must.Succeed(t, p.Wait(10*time.Second))
	lives := record.Lives{Ats: map[uint64]load.Arrival{}}
	file, err := samples.Create(p.samples)
	must.Succeed(t, err)
	for key, sent := range []int{90, 110, 120} {
		lives.Ats[uint64(key)] = load.Arrival{Sent: at(sent)}
		ready := at(sent + 5)
		first := samples.Sample{Key: uint64(key), Ready: ready, Start: ready.Add(300 * time.Millisecond), Backfill: key < 2}
		again := first
		again.Start, again.Backfill = first.Start.Add(time.Second), true
		file.Add(first)
		file.Add(again)
	}
	must.Succeed(t, file.Err())
	tally := newTally(&fleet{as: ours, processes: []*process{p}})
	must.Succeed(t, tally.addSamples(&round{}, lives, map[string]float64{}))
	if live, others := tally.queue.Quantiles(), tally.backfill.Quantiles(); live.N != 2 || others.N != 4 {
		t.Errorf("%+v are live and %+v are not; want two that arrived later, and what was repeated", live, others)
	}
}

func TestWatchCostIsPerObjectAndAgainstTheShare(t *testing.T) {
	point := func(own []int, bytes ...float64) report.SweepPoint {
		all := 0
		for _, n := range own {
			all += n
		}
		return report.SweepPoint{Replicas: len(bytes),
			Results: &report.Results{Objects: all, WatchBytes: bytes, ObjectsPerReplica: own}}
	}
	// The second of two has 80 objects of 200 and received as much as for 90.
	got := watchCost([]report.SweepPoint{point([]int{100}, 1000), point([]int{120, 80}, 1200, 900)})
	want := &report.WatchCost{
		SumOverOne: map[string]float64{"1": 1, "2": 1.05}, MaxOverShare: map[string]float64{"1": 1, "2": 1.125},
		MaxOverEqual: map[string]float64{"1": 1, "2": 1.2},
	}
	expect.Equal(t, "watch cost", want, got, cmpopts.EquateApprox(1e-9, 0))
	if watchCost([]report.SweepPoint{point([]int{100}), point([]int{100})}) != nil {
		t.Error("nothing was received, and it was compared")
	}
}

func TestARunWhoseGeneratorFellBehindIsNotValid(t *testing.T) {
	steady := scenario.Load{Arrivals: scenario.Constant, Rate: 10}
	changing := steady
	changing.Changes = 100
	onTime, late := quantiles(10*time.Millisecond, 100), quantiles(80*time.Millisecond, 100)
	cases := map[string]struct {
		load          scenario.Load
		late, changes *stats.Quantiles
		want          string // in the reason; "" is valid
	}{
		"on time":   {steady, onTime, nil, ""},
		"late":      {steady, late, nil, "fell behind with its load: 80 ms"},
		"not known": {steady, nil, nil, "not known"},
		"a burst has no schedule": {scenario.Load{Arrivals: scenario.Burst, Due: scenario.DueNow},
			quantiles(time.Second, 9), nil, ""},
		"a herd has to be in time": {scenario.Load{Arrivals: scenario.Burst, Due: scenario.DueTogether},
			quantiles(time.Second, 1), nil, "fell behind"},
		"nothing was to arrive":     {scenario.Load{Arrivals: scenario.Nothing}, nil, nil, ""},
		"both on time":              {changing, onTime, onTime, ""},
		"changes on time, load not": {changing, late, onTime, "fell behind with its load"},
		"load on time, changes not": {changing, onTime, late, "fell behind with its changes"},
		"changes not known":         {changing, onTime, nil, "changes is not known"},
		"late changes, beside a burst": {scenario.Load{Arrivals: scenario.Burst, Due: scenario.DueNow, Changes: 9}, nil, late,
			"fell behind with its changes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &runner{scenario: scenario.Scenario{Load: c.load}, report: &report.Report{}}
			r.judgeGenerator("tenure", &report.Results{Generator: &report.Generator{Lateness: c.late, Changes: c.changes}})
			got := strings.Join(r.report.Reasons, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestARateIsNotTooHighBecauseTheGeneratorWasLate(t *testing.T) {
	tally := newTally(&fleet{as: ours, ledger: record.NewLedger()})
	late := &load.Outcome{Arrivals: 9}
	late.Lateness.Add(80 * time.Millisecond)
	must.Succeed(t, tally.add(&round{rate: 40, over: true, generator: late}))
	if got := strings.Join(tally.missing, "\n"); !strings.Contains(got, "its load of 40 a second: 80 ms") {
		t.Errorf("got %q, want that the generator fell behind", got)
	}
}

func TestAViolationMakesEveryScenarioInvalidAndNoneDoesNot(t *testing.T) {
	for _, name := range scenario.Names() {
		s, err := scenario.Read(name, nil)
		must.Succeed(t, err)
		for violations, want := range map[int]string{0: "",
			2: "tenure: the witness found 2 violations in the audit logs: I2 falling-epoch"} {
			r := &runner{scenario: s, report: &report.Report{}}
			r.judgeWitness("tenure", &report.Results{Violations: &violations, FirstViolation: "I2 falling-epoch"})
			if got := strings.Join(r.report.Reasons, "\n"); got != want {
				t.Errorf("%s with %d violations: got %q, want %q", name, violations, got, want)
			}
		}
	}
}

func TestProgressTellsWhatRunsAndHowLongItTakes(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b, scenario.Scenario{Rounds: 2, Compare: []scenario.Reference{scenario.Floor}})
	p.round(ours, 3, 1)
	p.rounded()
	p.show(1, 10) // too soon after the line before
	p.round(scenario.Floor, 3, 1)
	text := b.String()
	for _, want := range []string{"[0/4] tenure with 3 replicas, round 1", "[1/4] floor", "left"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if strings.Contains(text, "of 10") {
		t.Errorf("a line for every change: %q", text)
	}
}

func TestHandoffsWithoutDueKeysMeasureNothing(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(second int, kind protocol.MoveKind, unserved *float64) witness.Handoff {
		return witness.Handoff{Kind: kind, Time: start.Add(time.Duration(second) * time.Second), GapMs: new(9.0),
			UnservedMs: unserved}
	}
	idle := []witness.Handoff{at(1, protocol.Planned, nil), at(2, protocol.Exit, nil), at(3, protocol.Crash, nil)}
	handoffs, crashes := unserved(idle, start, start.Add(time.Minute))
	if handoffs.Quantiles() != nil || crashes.Quantiles() != nil {
		t.Error("no key was due at any handoff, and yet there is a figure, which would meet its threshold")
	}
	due := append(idle, at(4, protocol.Planned, new(100.0)), at(5, protocol.Exit, new(300.0)),
		at(6, protocol.Crash, new(5000.0)), at(7, protocol.Join, new(70.0)), at(90, protocol.Planned, new(800.0)))
	handoffs, crashes = unserved(due, start, start.Add(time.Minute))
	if got := handoffs.Quantiles(); got.N != 2 || math.Abs(got.P50-100) > 1 || math.Abs(got.Max-300) > 1 {
		t.Errorf("handoffs: got %+v; want 100 and 300 ms, not diluted by those without due keys", got)
	}
	if got := crashes.Quantiles(); got.N != 1 || math.Abs(got.Max-5000) > 5 {
		t.Errorf("crashes: got %+v; want 5000 ms alone", got)
	}
}

func TestTheKneeIsTheHighestRateThatWasServedInTime(t *testing.T) {
	round := func(rate, late float64) report.Round {
		return report.Round{Figures: map[string]float64{rateFigure: rate, lateFigure: late}}
	}
	l := scenario.Load{SLO: scenario.Duration(100 * time.Millisecond)}
	got := knee(l, []report.Round{round(40, 9), round(60, 99), round(80, 300)})
	if got.Rate != 60 || !got.Found || got.SLO != 100 || len(got.Points) != 3 {
		t.Errorf("got %+v; want a knee at 60", got)
	}
	if got = knee(l, []report.Round{round(40, 9)}); got.Rate != 40 || got.Found {
		t.Errorf("got %+v; want none found, and 40 served", got)
	}
	unmeasured := report.Round{Figures: map[string]float64{rateFigure: 60}}
	if got = knee(l, []report.Round{round(40, 9), unmeasured}); got.Rate != 40 || !got.Found || len(got.Points) != 1 {
		t.Errorf("got %+v; want 40, since nothing is known of 60", got)
	}
	if knee(scenario.Load{}, []report.Round{round(40, 9)}) != nil {
		t.Error("a knee that nobody looked for")
	}
}

func TestReplicasAreReadyWhenEachHoldsShardsThatMay(t *testing.T) {
	for name, c := range map[string]struct {
		as               scenario.Reference
		replicas, shards int // of four clusters
		want             int
	}{
		"ours":                            {ours, 3, 32, 3},
		"fewer shards than replicas":      {ours, 9, 4, 4},
		"both fleets of the control":      {scenario.Apart, 3, 32, 6},
		"with fewer shards for the apart": {scenario.Apart, 3, 4, 4},
	} {
		f := &fleet{as: c.as, site: &site{bad: 1},
			config: scenario.Fleet{Replicas: c.replicas, ShardsPerCluster: c.shards / 4}}
		if got := f.holders(c.shards); got != c.want {
			t.Errorf("%s: %d must hold shards, want %d", name, got, c.want)
		}
	}
}

func TestTheProfilesOfASweepAreToldApart(t *testing.T) {
	titles := func(swept bool) (all []string) {
		for _, replicas := range []int{1, 4} {
			f := &fleet{as: ours, swept: swept, config: scenario.Fleet{Replicas: replicas}}
			all = append(all, f.taken(nil).Fleet)
		}
		return all
	}
	expect.Equal(t, "in a sweep", []string{"tenure-of-1", "tenure-of-4"}, titles(true))
	expect.Equal(t, "otherwise", []string{"tenure", "tenure"}, titles(false))
}

func TestChangesReachTheFleetTheyAreMeantFor(t *testing.T) {
	cases := map[string]struct {
		as         scenario.Reference
		reconciles int
		complains  bool
	}{
		"one for each":             {ours, 100, false},
		"some at a time":           {ours, 50, false},
		"none":                     {ours, 0, true},
		"one with leader election": {scenario.Stock, 0, true},
		"unserved":                 {scenario.Unserved, 5, false},
		"unserved and yet served":  {scenario.Unserved, 6, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := judgeChanges(c.as, 100, c.reconciles); (got != "") != c.complains {
				t.Errorf("%d reconciles of 100 changes: %q", c.reconciles, got)
			}
		})
	}
}

func TestANoiseThatNobodyFeltIsNotMeasured(t *testing.T) {
	type hits = map[scenario.Noise]int
	cases := map[string]struct {
		noise scenario.Noise
		hits  hits
		done  int
		want  string // "" is felt
	}{
		"a fault hit requests":          {scenario.Late, hits{scenario.Late: 3}, 0, ""},
		"it hit none":                   {scenario.Late, hits{scenario.Late: 0}, 9, "late hit no request"},
		"it was injected nowhere":       {scenario.Late, nil, 9, "no fault was injected"},
		"one of several hit none":       {scenario.Mixed, hits{scenario.Late: 3, scenario.Silent: 0}, 9, "silent hit no"},
		"several were injected nowhere": {scenario.Mixed, nil, 9, "no fault was injected"},
		"a backlog was worked at":       {scenario.Backlog, nil, 1, ""},
		"a backlog wasn't":              {scenario.Backlog, nil, 0, "due at once none became DONE"},
		"a cluster that came wasn't":    {scenario.Added, nil, 0, "due at once none became DONE"},
		"calm has nothing to be felt":   {scenario.Quiet, nil, 0, ""},
	}
	for name, c := range cases {
		if got := judgeNoise(c.noise, c.hits, c.done); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestReplicasThatWereNeverAskedHaveNotReceivedNothing(t *testing.T) {
	f := &fleet{as: ours, processes: []*process{{scraped: true}}}
	r := &round{namespace: "round-1", watch: newWatcher(f, time.Now())}
	if err := newTally(f).addMetrics(r, 1, map[string]float64{}); err == nil {
		t.Error("no metrics were read, and no event is said to have been received for others")
	}
}

func TestAReplicaThatAnswersAgainMissedNothing(t *testing.T) {
	p := &process{Replica: &lab.Replica{Name: "r1"}, scraped: true}
	f := &fleet{as: ours, processes: []*process{p}}
	page := func(reconciles int) lab.Metrics {
		m, err := lab.ParseMetrics(strings.NewReader(fmt.Sprintf("# TYPE reconciles counter\nreconciles %d\n", reconciles)))
		must.Succeed(t, err)
		return m
	}
	silent := errors.New("it doesn't answer")
	for name, c := range map[string]struct {
		first error // of the baseline
		later []error
		want  float64 // negative: an error
	}{
		"it always answers":             {nil, []error{nil, nil}, 2},
		"not once, in between":          {nil, []error{silent, nil}, 2},
		"not in the end":                {nil, []error{nil, silent}, -1},
		"not when the baseline is read": {silent, []error{nil, nil}, -1},
	} {
		w := newWatcher(f, time.Now())
		w.note(p, page(5), c.first)
		w.rebase()
		for i, err := range c.later {
			w.note(p, page(6+i), err)
		}
		got, err := w.delta(f.processes, "reconciles", nil)
		switch {
		case c.want < 0 && !errors.Is(err, silent):
			t.Errorf("%s: %v (%v), want that it didn't answer", name, got, err)
		case c.want >= 0 && (err != nil || !slices.Equal(got, []float64{c.want})):
			t.Errorf("%s: %v (%v), want %v", name, got, err, c.want)
		}
	}
}

func TestAPileIsPacedUntilAllOfItIsDone(t *testing.T) {
	from := time.Unix(100, 0)
	to := from.Add(10 * time.Second)
	dones := []time.Time{from.Add(-1), from.Add(time.Second), from.Add(2 * time.Second), to.Add(10 * time.Second)}
	if got := pace(dones, from, to, false); got != 0.2 {
		t.Errorf("%v a second while it was noisy, want 0.2", got)
	}
	if got := pace(dones, from, to, true); math.Abs(got-0.15) > 1e-6 {
		t.Errorf("%v a second until all were done, want 0.15", got)
	}
	if got := pace(nil, from, to, false); got != 0 {
		t.Errorf("%v a second of nothing", got)
	}
}

func TestWhatIsDoneBesideANoiseIsToldFromWhatIsDoneAfterIt(t *testing.T) {
	from := time.Unix(100, 0)
	to := from.Add(time.Minute)
	during, after := beside([]time.Time{from.Add(-1), from, to.Add(-1), to.Add(2 * time.Second), to}, from, to)
	if diff := cmp.Diff([]time.Duration{2 * time.Second, 0}, after); diff != "" || during != 2 {
		t.Errorf("%d during it, want 2; after it (- want, + got):\n%s", during, diff)
	}
}
