package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func keyOf(ref load.Ref) uint64 { return samples.KeyOf(ref.Cluster, ref.Namespace, ref.Name) }

// tally adds the rounds of one fleet up.
type tally struct {
	fleet *fleet
	out   report.Results

	queue, backfill, event, work, converge, late, live, repair stats.Latencies
	generator, changes                                         stats.Latencies
	seconds                                                    float64
	reads                                                      float64
	arrivals                                                   int
	sent                                                       time.Duration
	perReplica                                                 map[string]*replicaTally
	servers                                                    map[string]report.Process
	noises                                                     map[scenario.Noise]*neighbours
	// missing is what couldn't be measured: the run isn't valid then.
	missing    []string
	namespaces []string  // of the rounds that count
	from, to   time.Time // of all rounds
}

// replicaTally is about one replica's name; restarts are added up.
type replicaTally struct {
	cpu, peak, bytes float64
	reconciles       int
	objects          map[uint64]bool // that it reconciled
}

func newTally(f *fleet) *tally {
	return &tally{fleet: f, perReplica: map[string]*replicaTally{}, servers: map[string]report.Process{},
		noises: map[scenario.Noise]*neighbours{}}
}

func (t *tally) replica(name string) *replicaTally {
	if t.perReplica[name] == nil {
		t.perReplica[name] = &replicaTally{objects: map[uint64]bool{}}
	}
	return t.perReplica[name]
}

// add adds one round.
func (t *tally) add(r *round) error {
	lives := t.fleet.ledger.Sum(r.namespace, nil, keyOf)
	last := r.end
	if !lives.Last.IsZero() {
		last = lives.Last
	}
	seconds := last.Sub(r.start).Seconds()
	if t.from.IsZero() {
		t.from = r.start
	}
	t.to = r.end
	figures := map[string]float64{}
	if r.rate > 0 {
		quantilesOf(figures, "lateness_ms", &lives.Lateness)
		figures[rateFigure] = r.rate
	}
	if r.generator != nil {
		t.generator.Merge(&r.generator.Lateness)
		t.arrivals += r.generator.Arrivals
		t.sent += r.generator.End.Sub(r.generator.Start)
	}
	if r.rate > 0 { // the round is judged alone: it decides alone whether its rate was too high
		what := fmt.Sprintf("load of %g a second", r.rate)
		if complaint := lateWith(what, r.generator.Lateness.Quantiles()); complaint != "" {
			t.missing = append(t.missing, complaint)
		}
	}
	if r.over { // it only shows that its rate was too high
		t.out.Rounds = append(t.out.Rounds, report.Round{Seconds: seconds, Figures: figures})
		return nil
	}
	t.namespaces = append(t.namespaces, r.namespace)
	t.out.Objects += lives.Objects
	t.out.Lost += lives.Lost
	t.out.Duplicates += lives.Duplicates
	t.out.Early += lives.Early
	t.converge.Merge(&lives.Converge)
	t.late.Merge(&lives.Lateness)
	t.repair.Merge(&lives.Repair)
	t.out.Copies += lives.Copies
	t.seconds += seconds
	if done := lives.Objects - lives.Lost; done > 0 {
		figures["throughput_per_s"] = float64(done) / seconds
	}
	quantilesOf(figures, "converge_ms", &lives.Converge)
	quantilesOf(figures, "lateness_ms", &lives.Lateness)
	quantilesOf(figures, "drift_repair_ms", &lives.Repair)
	if r.changes != nil {
		t.changes.Merge(&r.changes.Lateness)
	}
	t.addUse(r, lives.Objects, figures)
	if err := t.addMetrics(r, lives.Objects, figures); err != nil && !slices.Contains(t.missing, err.Error()) {
		t.missing = append(t.missing, err.Error())
	}
	if err := t.addSamples(r, lives, figures); err != nil {
		return err
	}
	if !r.pausedTo.IsZero() {
		live := t.fleet.ledger.Sum(r.namespace, func(a load.Arrival) bool {
			return !t.fleet.site.disturbed(a.Cluster) && a.Intended.After(r.pausedFrom) && a.Intended.Before(r.pausedTo)
		}, keyOf)
		t.live.Merge(&live.Converge)
		t.addNoise(r, &live.Converge)
	}
	t.out.QueueDepth = r.watch.depths() // of the last round
	t.out.Steps = r.marks
	if t.fleet.sharded() {
		t.out.Ownership = t.fleet.timeline.Spans(r.start, r.end)
	}
	t.out.Rounds = append(t.out.Rounds, report.Round{Seconds: seconds, Figures: figures})
	return nil
}

// quantilesOf enters the two quantiles that rounds are compared by, if anything was measured.
func quantilesOf(figures map[string]float64, name string, l *stats.Latencies) {
	if q := l.Quantiles(); q != nil {
		figures[name+".p50"], figures[name+".p99"] = q.P50, q.P99
	}
}

// addUse adds CPU time and memory.
func (t *tally) addUse(r *round, objects int, figures map[string]float64) {
	var total float64
	for p, after := range r.after {
		cpu := (after.CPU - r.before[p].CPU).Seconds() // none before, for one that was started meanwhile
		total += cpu
		one := t.replica(p.Name)
		one.cpu += cpu
		one.peak = max(one.peak, float64(after.Peak)/1e6)
	}
	if objects > 0 {
		figures["cpu_seconds_per_object"] = total / float64(objects)
	}
	for name, after := range r.servers[1] {
		s := t.servers[name]
		s.CPUSeconds += (after.CPU - r.servers[0][name].CPU).Seconds()
		s.RSS = max(s.RSS, float64(after.RSS)/1e6)
		t.servers[name] = s
	}
}

// addMetrics adds what the replicas count themselves.
func (t *tally) addMetrics(r *round, objects int, figures map[string]float64) error {
	var asked []*process
	for _, p := range t.fleet.all() {
		if p.scraped {
			asked = append(asked, p)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	reads, err := r.watch.delta(asked, "rest_client_requests_total", map[string]string{"method": "GET"})
	if err != nil {
		return err
	}
	if len(reads) == 0 {
		return fmt.Errorf("%s: no replica's metrics were read", r.namespace)
	}
	t.reads += sum(reads)
	if !t.fleet.sharded() {
		return nil // plain leader election has no such metrics
	}
	var total float64
	for _, p := range asked {
		bytes, err := r.watch.delta([]*process{p}, "tenure_watch_bytes_total", nil)
		if err != nil {
			return err
		}
		total += sum(bytes)
		t.replica(p.Name).bytes += sum(bytes)
	}
	if objects > 0 {
		figures["watch_bytes_per_object"] = total / float64(objects)
	}
	discarded, err := r.watch.delta(asked, "tenure_watch_objects_discarded_total", nil)
	if err != nil {
		return err
	}
	if t.out.WatchDiscarded == nil {
		t.out.WatchDiscarded = new(0.0)
	}
	*t.out.WatchDiscarded += sum(discarded)
	return nil
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// addSamples adds the replicas' samples of a round's keys.
func (t *tally) addSamples(r *round, lives record.Lives, figures map[string]float64) error {
	first, sampled := map[uint64]time.Time{}, map[uint64]bool{}
	var ends []time.Time
	var queue stats.Latencies
	var low []samples.Sample
	others := 0 // reconciles of other objects than the round's
	for _, p := range t.fleet.all() {
		if p.samples == "" {
			continue
		}
		list, err := samples.ReadFile(p.samples)
		if err != nil {
			return err
		}
		for _, s := range list {
			arrival, ok := lives.Ats[s.Key]
			if !ok {
				if s.Start.After(r.start) && s.Start.Before(r.end) {
					others++
				}
				continue
			}
			one := t.replica(p.Name)
			one.reconciles++
			one.objects[s.Key], sampled[s.Key] = true, true
			ends = append(ends, s.End)
			t.work.Add(s.End.Sub(s.Start))
			// Earlier reconciles were about the At as it was before its edit.
			if known, ok := first[s.Key]; s.Start.After(arrival.Sent) && (!ok || s.Start.Before(known)) {
				first[s.Key] = s.Start
			}
			switch {
			case s.ReadyUnknown:
			case s.Backfill:
				low = append(low, s)
			default:
				queue.Add(s.Start.Sub(s.Ready))
			}
		}
	}
	active, err := t.activated()
	if err != nil {
		return err
	}
	for _, s := range low {
		if first[s.Key].Equal(s.Start) && active != nil && !activeBetween(active, lives.Ats[s.Key].Sent, s.Start) {
			queue.Add(s.Start.Sub(s.Ready)) // a live key, whatever its replica says
		} else {
			t.backfill.Add(s.Start.Sub(s.Ready))
		}
	}
	// A replica whose disk is full writes no more samples, and what is left is no fair sample of them.
	if done := lives.Objects - lives.Lost; t.fleet.sharded() && t.fleet.config.Samples && len(sampled) < done {
		t.missing = append(t.missing, fmt.Sprintf("%s: %d of %d objects that are done have no sample", r.namespace,
			done-len(sampled), done))
	}
	if r.changes != nil {
		if complaint := judgeChanges(t.fleet.as, r.changes.Arrivals, others); complaint != "" {
			t.missing = append(t.missing, fmt.Sprintf("%s: %s", r.namespace, complaint))
		}
	}
	t.queue.Merge(&queue)
	quantilesOf(figures, "queue_latency_ms", &queue)
	for key, at := range first {
		t.event.Add(at.Sub(lives.Ats[key].Sent))
	}
	if rate, ok := saturated(ends, r.start); ok {
		figures["reconciles_per_s"] = rate
	}
	return t.addTurns(r, ends)
}

// activated returns when shards became active, sorted; nil if the fleet isn't sharded.
func (t *tally) activated() ([]time.Time, error) {
	if !t.fleet.sharded() {
		return nil, nil
	}
	lines, err := t.fleet.activations()
	times := []time.Time{}
	for _, l := range lines {
		times = append(times, l.Time)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times, err
}

// activeBetween reports whether some shard became active between two times. A key that arrived at the first one may
// then have been enqueued with what the shard holds, behind all live keys.
func activeBetween(active []time.Time, from, to time.Time) bool {
	i, _ := slices.BinarySearchFunc(active, from, time.Time.Compare)
	return i < len(active) && active[i].Before(to)
}

// addTurns adds what a round showed of turns.
func (t *tally) addTurns(r *round, ends []time.Time) error {
	if r.turns == nil {
		return nil
	}
	slices.SortFunc(ends, time.Time.Compare)
	for name, rounds := range r.turns.rounds(ends) {
		if t.out.Turns == nil {
			t.out.Turns = map[string][]report.Round{}
		}
		t.out.Turns[name] = append(t.out.Turns[name], rounds...)
	}
	return r.turns.err
}

// saturated returns the rate of reconciles between the 20th and the 60th percent of those that ended after the
// start. In a burst every replica still has work in that time.
func saturated(ends []time.Time, start time.Time) (float64, bool) {
	ends = slices.DeleteFunc(ends, func(t time.Time) bool { return t.Before(start) })
	if len(ends) < 50 {
		return 0, false
	}
	slices.SortFunc(ends, time.Time.Compare)
	from, to := len(ends)/5, len(ends)*3/5
	seconds := ends[to].Sub(ends[from]).Seconds()
	return float64(to-from) / seconds, seconds > 0
}

// results closes the tally. What comes from the audit logs is added by the caller.
func (t *tally) results() (*report.Results, error) {
	out := &t.out
	for _, l := range []struct {
		to   **stats.Quantiles
		from *stats.Latencies
	}{
		{&out.QueueLatency, &t.queue}, {&out.QueueLatencyBackfill, &t.backfill}, {&out.EventToReconcile, &t.event},
		{&out.Work, &t.work}, {&out.Converge, &t.converge}, {&out.Lateness, &t.late}, {&out.LiveConverge, &t.live},
		{&out.DriftRepair, &t.repair},
	} {
		*l.to = l.from.Quantiles()
	}
	if done := out.Objects - out.Lost; done > 0 && t.seconds > 0 {
		out.Throughput = new(float64(done) / t.seconds)
	}
	out.Noises = t.noiseResults()
	out.Reconciles = meanOf(out.Rounds, "reconciles_per_s")
	out.CPUPerObject = meanOf(out.Rounds, "cpu_seconds_per_object")
	if t.reads > 0 && out.Objects > 0 {
		out.APIReads = new(t.reads / float64(out.Objects))
	}
	if held := t.fleet.held.Seconds(); held > 0 {
		out.TimeToHeld = &held
	}
	out.Servers = t.servers
	out.Generator = &report.Generator{Lateness: t.generator.Quantiles(), Changes: t.changes.Quantiles()}
	if seconds := t.sent.Seconds(); seconds > 0 {
		out.Generator.Achieved = float64(t.arrivals) / seconds
	}
	for _, name := range sortedKeys(t.perReplica) {
		one := t.perReplica[name]
		out.Replicas = append(out.Replicas, name)
		out.CPUSeconds = append(out.CPUSeconds, one.cpu)
		out.RSS = append(out.RSS, one.peak)
		if t.fleet.sharded() {
			out.WatchBytes = append(out.WatchBytes, one.bytes)
		}
		if t.fleet.config.Samples {
			out.ReconcilesPerReplica = append(out.ReconcilesPerReplica, one.reconciles)
			out.ObjectsPerReplica = append(out.ObjectsPerReplica, len(one.objects))
		}
	}
	return out, t.addHandoffs()
}

// meanOf is the mean of a figure over the rounds, nil if a round doesn't have it.
func meanOf(rounds []report.Round, figure string) *float64 {
	values := report.Column(rounds, figure)
	if len(values) == 0 {
		return nil
	}
	return new(sum(values) / float64(len(values)))
}

// addHandoffs reads from the replicas' logs what moves cost.
func (t *tally) addHandoffs() error {
	if !t.fleet.sharded() {
		return nil
	}
	var planned, crash, over stats.Latencies
	began, err := t.fleet.activations()
	if err != nil {
		return err
	}
	began = slices.DeleteFunc(began, func(l lab.Line) bool { // not under the load
		return l.Time.Before(t.from) || l.Time.After(t.to)
	})
	for _, a := range began {
		if a.Kind == protocol.Planned || a.Kind == protocol.Exit {
			planned.Add(a.Gap())
		}
	}
	gaps, complaints := crashGaps(t.fleet.kills, t.fleet.timeline.HeldAt, began)
	for _, gap := range gaps {
		crash.Add(gap)
		over.Add(gap - t.fleet.config.LeaseDuration.D())
	}
	t.missing = append(t.missing, complaints...)
	t.out.HandoffGap, t.out.CrashGap, t.out.CrashGapOverLease = planned.Quantiles(), crash.Quantiles(), over.Quantiles()
	return nil
}
