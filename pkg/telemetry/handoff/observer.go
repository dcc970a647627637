package handoff

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// patience is how long a move's root span stays open for a first reconcile. A shard without work has none.
const patience = 10 * time.Second

// calledOff is after how long the steps of a shard that was claimed, warmed or drained are forgotten. No call reports
// that a move was called off, or that a claimed shard was retired before it was served.
const calledOff = time.Hour

// Watcher is a [shard.Observer] that makes traces and metrics of what it observes. It is safe for concurrent use.
type Watcher struct {
	shard.NopObserver
	now  func() time.Time
	sink func(...telemetry.Span) // nil without tracing

	// open is len(steps)+len(arrivals). Every reconcile reads it, without the lock.
	open atomic.Int64

	mu       sync.Mutex          // guards all below
	served   map[string]tenure   // the last tenure here, by shard name, as all below
	steps    map[string]*pending // of moves to here or from here
	arrivals map[string]*arrival // root spans that are open

	moves  *prometheus.CounterVec
	gap    *prometheus.HistogramVec
	lapses prometheus.Counter
	margin prometheus.Gauge
	writes *prometheus.CounterVec
}

// tenure is a tenure of this replica.
type tenure struct {
	epoch  protocol.Epoch
	closed time.Time // zero while it lasts
}

// NewWatcher returns a Watcher that sends its spans by a function. That is called under a lock, so it must return at
// once. With nil there are no traces, and the metrics name none.
func NewWatcher(send func(...telemetry.Span)) *Watcher {
	w := &Watcher{
		now: time.Now, sink: send,
		served: map[string]tenure{}, steps: map[string]*pending{}, arrivals: map[string]*arrival{},
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_shard_moves_total",
			Help: "Moves of shards to this replica, by kind (Join, Planned, Exit, Crash), counted when it begins to serve them.",
		}, []string{"kind"}),
		gap: prometheus.NewHistogramVec(telemetry.NewLatency("tenure_handoff_gap_seconds",
			"Time in which nobody worked on a shard while it moved here, by the clocks of both machines. Only of the kinds "+
				"Planned and Exit: after a crash nobody knows when work ended."), []string{"kind"}),
		lapses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_lapses_total", Help: "Incarnations of this replica that ended because their lease wasn't renewed in " +
				"time, or was sealed.",
		}),
		margin: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tenure_lease_margin_seconds", Help: "Time that was left before this replica would have had to stop, at the " +
				"last renewal of its lease. 0 from a lapse to the next renewal.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_record_writes_total", Help: "Writes of coordination records by this replica, by what they were for " +
				"(Renew, Assign, Planned, Crash and so on) and outcome: committed, rejected, or unknown without an answer.",
		}, []string{"write", "outcome"}),
	}
	// A rate needs a series that starts at zero.
	for _, kind := range []protocol.MoveKind{protocol.Join, protocol.Planned, protocol.Exit, protocol.Crash} {
		w.moves.WithLabelValues(string(kind))
	}
	return w
}

func (w *Watcher) send(spans ...telemetry.Span) {
	if w.sink != nil {
		w.sink(spans...)
	}
}

// pending holds steps of one shard until a later step shows which epoch they belong to.
type pending struct {
	warm, activate, claim, drain *shard.Step
	early                        *telemetry.Reconciled // a reconcile that ended before Activated was called
}

// last is when the last of the steps ended.
func (p *pending) last() (end time.Time) {
	for _, s := range []*shard.Step{p.warm, p.activate, p.claim, p.drain} {
		if s != nil && s.End.After(end) {
			end = s.End
		}
	}
	return end
}

// of returns what is pending for a shard; w.mu is held.
func (w *Watcher) of(name string) *pending {
	p := w.steps[name]
	if p == nil {
		p = &pending{}
		w.steps[name] = p
		w.open.Add(1)
	}
	return p
}

// drop forgets what is pending for a shard; w.mu is held.
func (w *Watcher) drop(name string) {
	if w.steps[name] != nil {
		delete(w.steps, name)
		w.open.Add(-1)
	}
}

// Stepped implements [shard.Observer].
func (w *Watcher) Stepped(s shard.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := s.Shard.String()
	if s.Outcome != protocol.Committed {
		// One that was rejected is part of no move. One with an unknown outcome is tried again: its span shows what the move
		// waited for.
		if s.Outcome == protocol.Unknown && s.Epoch > 0 && s.Record != "" {
			s = released(s)
			w.send(stepSpan(s, s.Epoch))
		}
		return
	}
	switch s.Name {
	case shard.StepWarm:
		w.of(name).warm = &s
	case shard.StepActivate:
		w.of(name).activate = &s
	case shard.StepDrain:
		w.of(name).drain = &s
	case shard.StepClaim:
		w.of(name).claim = &s
	case shard.StepHandOff:
		w.handedOff(name, s)
	default:
		w.send(stepSpan(s, s.Epoch))
	}
}

// handedOff sends the spans of a tenure's end.
func (w *Watcher) handedOff(name string, s shard.Step) {
	if ours := s.Epoch - 1; w.served[name].epoch != ours {
		w.send(w.of(name).unserved(s, ours)...)
	}
	s = released(s)
	if drain := w.of(name).drain; drain != nil {
		w.send(stepSpan(*drain, s.Epoch))
	}
	w.send(stepSpan(s, s.Epoch))
	w.drop(name)
}

// released returns a step as traces show it. A handoff belongs to the trace of the next tenure, a handoff to nobody to
// that of the tenure that ends.
func released(s shard.Step) shard.Step {
	if s.Name == shard.StepHandOff && s.Peer == "" {
		s.Name, s.Epoch = "release", s.Epoch-1
	}
	return s
}

// Activated implements [shard.Observer].
func (w *Watcher) Activated(a shard.Activation) {
	if a.Kind == protocol.Resumed { // nothing moved: the tenure that its trace tells of goes on
		w.mu.Lock()
		defer w.mu.Unlock()
		w.served[a.Shard.String()] = tenure{epoch: a.Epoch}
		w.drop(a.Shard.String())
		return
	}
	a.Kind = cmp.Or(a.Kind, protocol.Join)
	w.moves.WithLabelValues(string(a.Kind)).Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Gap > 0 {
		var of trace.SpanContext
		if w.sink != nil {
			traceID, root := idsOf(string(a.Record), a.Shard, a.Epoch)
			of = trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: root})
		}
		telemetry.ObserveWith(w.gap.WithLabelValues(string(a.Kind)), a.Gap.Seconds(), of)
	}
	name := a.Shard.String()
	w.served[name] = tenure{epoch: a.Epoch}
	p := w.of(name)
	came := &arrival{Activation: a, warm: p.warm, claim: p.claim, activate: p.activate}
	if came.activate == nil {
		now := w.now()
		came.activate = &shard.Step{Name: shard.StepActivate, Shard: a.Shard, Incarnation: a.Incarnation,
			Start: now, End: now}
	}
	early := p.early
	w.drop(name)
	if a.Objects == 0 || early != nil {
		w.send(came.spans(early)...)
		return
	}
	if w.arrivals[name] == nil {
		w.open.Add(1)
	}
	w.arrivals[name] = came
}

// Reconciled records a finished reconcile. It is meant for [telemetry.Config].Reconciled.
func (w *Watcher) Reconciled(r telemetry.Reconciled) {
	if w.open.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := string(r.Request.ClusterName)
	if a := w.arrivals[name]; a != nil {
		w.close(name, a, &r)
	} else if p := w.steps[name]; p != nil && p.warm != nil && p.early == nil {
		p.early = &r // its gate is open, and Activated is about to be called
	}
}

// Closed implements [shard.Observer]. It may be called before Stepped reports the handoff, which needs to know what
// was served.
func (w *Watcher) Closed(id keyspace.ShardID, _ protocol.Epoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := id.String()
	if a := w.arrivals[name]; a != nil {
		w.close(name, a, nil)
	}
	if s, ok := w.served[name]; ok {
		s.closed = w.now()
		w.served[name] = s
	}
}

// Renewed implements [shard.Observer]. It is called regularly, so it also closes root spans that have waited too
// long.
func (w *Watcher) Renewed(margin time.Duration) {
	w.margin.Set(margin.Seconds())
	w.flush(w.now().Add(-patience))
}

// Lapsed implements [shard.Observer].
func (w *Watcher) Lapsed(protocol.Incarnation, string) {
	w.lapses.Inc()
	w.margin.Set(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.served)
	for name, a := range w.arrivals { // their shards may come back under another epoch
		w.close(name, a, nil)
	}
	w.giveUp()
}

// Wrote implements [shard.Observer].
func (w *Watcher) Wrote(what string, outcome protocol.Outcome) {
	w.writes.WithLabelValues(what, outcome.String()).Inc()
}

// Flush sends all that waits. Call it when no more calls will come.
func (w *Watcher) Flush() {
	w.flush(w.now())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveUp()
}

// giveUp sends the claims that led to no tenure, and forgets all pending steps. The caller holds w.mu.
func (w *Watcher) giveUp() {
	for name, p := range w.steps {
		if p.claim != nil {
			w.send(p.unserved(*p.claim, p.claim.Epoch)...)
		}
		w.drop(name)
	}
}

func (w *Watcher) flush(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, a := range w.arrivals {
		if !a.activate.End.After(before) {
			w.close(name, a, nil)
		}
	}
	for name, p := range w.steps {
		if w.now().Sub(p.last()) > calledOff {
			w.drop(name)
		}
	}
	maps.DeleteFunc(w.served, func(_ string, s tenure) bool { return !s.closed.IsZero() && s.closed.Before(before) })
}

// close sends an arrival's spans; w.mu is held.
func (w *Watcher) close(name string, a *arrival, first *telemetry.Reconciled) {
	delete(w.arrivals, name)
	w.open.Add(-1)
	w.send(a.spans(first)...)
}

// Describe implements prometheus.Collector.
func (w *Watcher) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range w.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (w *Watcher) Collect(ch chan<- prometheus.Metric) {
	for _, c := range w.collectors() {
		c.Collect(ch)
	}
}

func (w *Watcher) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.moves, w.gap, w.lapses, w.margin, w.writes}
}
