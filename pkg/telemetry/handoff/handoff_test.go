package handoff

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func shardID(t *testing.T, text string) keyspace.ShardID {
	t.Helper()
	id, err := keyspace.ParseShardID(text)
	must.Succeed(t, err)
	return id
}

// story feeds watchers and keeps what they tell.
type story struct {
	t     *testing.T
	id    keyspace.ShardID
	clock time.Duration
	spans []telemetry.Span
}

// newStory is one of shard west/01, with a watcher.
func newStory(t *testing.T) (*story, *Watcher) {
	t.Helper()
	s := &story{t: t, id: shardID(t, "west/01")}
	return s, s.watcher()
}

func (s *story) watcher() *Watcher {
	w := NewWatcher(func(spans ...telemetry.Span) { s.spans = append(s.spans, spans...) })
	w.now = func() time.Time { return began.Add(s.clock) }
	return w
}

// step is one step that takes a millisecond.
func (s *story) step(w *Watcher, name shard.StepName, epoch protocol.Epoch, peer protocol.Incarnation) {
	start := began.Add(s.clock)
	s.clock += time.Millisecond
	w.Stepped(shard.Step{Name: name, Shard: s.id, Epoch: epoch, Record: "record", Peer: peer, Start: start,
		End: began.Add(s.clock)})
}

func (s *story) activated(w *Watcher, epoch protocol.Epoch, objects int64) {
	s.step(w, shard.StepActivate, epoch, "")
	w.Activated(shard.Activation{Shard: s.id, Epoch: epoch, Kind: protocol.Planned, Record: "record", Objects: objects,
		Gap: 5 * time.Millisecond})
}

func (s *story) reconciled(w *Watcher) {
	start := began.Add(s.clock)
	s.clock += time.Millisecond
	req := mcreconcile.Request{ClusterName: multicluster.ClusterName(s.id.String())}
	w.Reconciled(telemetry.Reconciled{Request: req, Start: start, End: began.Add(s.clock)})
}

// trace returns the names of one epoch's spans below its root; "no root" is one of them if there is none, or several.
func (s *story) trace(epoch protocol.Epoch) []string {
	s.t.Helper()
	traceID, root := idsOf("record", s.id, epoch)
	var names []string
	roots := 0
	for _, span := range s.spans {
		switch {
		case span.TraceID != traceID:
		case span.SpanID == root:
			roots++
			if span.Failed != "" {
				names = append(names, span.Failed)
			}
		case span.Parent != root:
			s.t.Errorf("%s isn't a child of the root", span.Name)
		default:
			names = append(names, span.Name)
		}
	}
	if roots != 1 {
		names = append(names, "no root")
	}
	return names
}

// wants checks the trace of one epoch.
func (s *story) wants(epoch protocol.Epoch, names ...string) {
	s.t.Helper()
	expect.Equal(s.t, fmt.Sprintf("the trace of epoch %d", epoch), names, s.trace(epoch))
}

func TestAMoveIsOneTraceOfAllWhoTakePart(t *testing.T) {
	s, coordinator := newStory(t)
	from, to := s.watcher(), s.watcher()
	from.served["west/01"] = tenure{epoch: 4}
	s.step(coordinator, shard.StepPlan, 5, "to")
	s.step(to, shard.StepWarm, 0, "")
	s.step(to, shard.StepAnnounce, 5, "from")
	s.step(from, shard.StepDrain, 5, "")
	s.step(from, shard.StepHandOff, 5, "to")
	s.activated(to, 5, 3)
	s.reconciled(to)
	s.reconciled(to) // only the first belongs to the move
	s.wants(5, "plan", "announce warm", "drain", "hand off", "warm", "activate", "first reconcile")
	root := s.spans[4]
	if !root.Start.Equal(began.Add(time.Millisecond)) || !root.End.Equal(began.Add(s.clock-time.Millisecond)) {
		t.Errorf("the root is from %v to %v, want from warming to the end of the first reconcile", root.Start, root.End)
	}
	if to.open.Load() != 0 || from.open.Load() != 0 {
		t.Error("reconciles still have to ask")
	}
}

func TestTheRootComesThoughNothingIsReconciled(t *testing.T) {
	for name, end := range map[string]func(*story, *Watcher){
		"an empty shard": func(s *story, w *Watcher) { s.activated(w, 5, 0) },
		"nothing for ten s": func(s *story, w *Watcher) {
			s.activated(w, 5, 3)
			s.clock += time.Minute
			w.Renewed(time.Second)
		},
		"the shard goes again":    func(s *story, w *Watcher) { s.activated(w, 5, 3); w.Closed(s.id, 5) },
		"the process ends":        func(s *story, w *Watcher) { s.activated(w, 5, 3); w.Flush() },
		"it came before the news": func(s *story, w *Watcher) { s.reconciled(w); s.activated(w, 5, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			s, w := newStory(t)
			s.step(w, shard.StepWarm, 0, "")
			end(s, w)
			want := []string{"warm", "activate"}
			if strings.HasPrefix(name, "it came") {
				want = append(want, "first reconcile")
			}
			s.wants(5, want...)
			if w.open.Load() != 0 {
				t.Error("reconciles still have to ask")
			}
		})
	}
}

func TestAShardThatCouldNotBeServedLeavesNoOrphans(t *testing.T) {
	s := &story{t: t, id: shardID(t, "away/")}
	w := s.watcher()
	s.step(w, shard.StepClaim, 1, "")
	s.step(w, shard.StepHandOff, 2, "other")
	other := s.watcher()
	s.step(other, shard.StepHandOff, 3, "") // nobody is left: a release
	s.wants(1, "never served", "claim")
	s.wants(2, "hand off", "never served", "release")
	last := s.watcher()
	s.step(last, shard.StepClaim, 3, "")
	last.Lapsed("me", "because")
	s.wants(3, "never served", "claim")
}

func TestAShardThatIsLostByALapseAndTakenAgainLeavesTwoRoots(t *testing.T) {
	s, w := newStory(t)
	s.activated(w, 5, 3)
	w.Lapsed("me", "because")
	s.activated(w, 6, 3)
	s.reconciled(w)
	s.wants(5, "activate")
	s.wants(6, "activate", "first reconcile")
	if w.open.Load() != 0 {
		t.Error("reconciles still have to ask")
	}
}

func TestAShardThatClosesBeforeTheNewsOfItsHandoffWasServed(t *testing.T) {
	s, w := newStory(t)
	s.activated(w, 5, 0)
	s.step(w, shard.StepDrain, 6, "")
	w.Closed(s.id, 5)
	s.step(w, shard.StepHandOff, 6, "other")
	s.wants(5, "activate")
}

func TestATryWithoutAResultIsInTheTraceThatItsStepBelongsTo(t *testing.T) {
	for name, c := range map[string]struct {
		step  shard.Step
		epoch protocol.Epoch // of the trace
		want  []string
	}{
		"a handoff":         {shard.Step{Name: shard.StepHandOff, Peer: "to", Epoch: 6}, 6, []string{"hand off"}},
		"a release":         {shard.Step{Name: shard.StepHandOff, Epoch: 6}, 5, []string{"release"}},
		"a claim":           {shard.Step{Name: shard.StepClaim, Epoch: 6}, 6, []string{"claim"}},
		"an unknown record": {shard.Step{Name: shard.StepPlan, Peer: "to"}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := newStory(t)
			c.step.Shard, c.step.Start, c.step.End = s.id, began, began.Add(time.Second)
			if c.step.Epoch > 0 {
				c.step.Record = "record"
			}
			for _, c.step.Outcome = range []protocol.Outcome{protocol.Unknown, protocol.Rejected} {
				w.Stepped(c.step)
			}
			s.wants(c.epoch, append(c.want, "no root")...)
			if len(s.spans) != len(c.want) || len(c.want) > 0 && s.spans[0].Failed != "unknown" {
				t.Errorf("spans: %+v", s.spans)
			}
		})
	}
}

func TestShardsThatComeAndGoLeaveNothingBehind(t *testing.T) {
	w := NewWatcher(nil)
	now, most := began, 0
	w.now = func() time.Time { return now }
	for i := range 100_000 { // 100 a second, of clusters that nobody has heard of before
		id := keyspace.ShardID{Cluster: keyspace.ClusterName(fmt.Sprint("cluster-", i))}
		w.Stepped(shard.Step{Name: shard.StepWarm, Shard: id, Outcome: protocol.Committed})
		w.Activated(shard.Activation{Shard: id, Epoch: 1, Objects: 1})
		w.Closed(id, 1)
		if now = now.Add(10 * time.Millisecond); i%100 == 0 {
			w.Renewed(time.Second)
		}
		most = max(most, len(w.served)+len(w.steps)+len(w.arrivals))
	}
	if most > 1200 {
		t.Errorf("%d shards are remembered at a time, want those of the last %v", most, patience)
	}
}

// Nobody tells of a move that was called off before the shard came here, nor of a claim whose shard was retired before
// it was served.
func TestMovesThatAreCalledOffLeaveNothingBehind(t *testing.T) {
	s, w := newStory(t)
	for i := range 1000 { // one a minute, of clusters that nobody has heard of before
		s.id.Cluster = keyspace.ClusterName(fmt.Sprint("cluster-", i))
		s.step(w, []shard.StepName{shard.StepWarm, shard.StepClaim}[i%2], 1, "")
		s.clock += time.Minute
		w.Renewed(time.Second)
	}
	if n := len(w.steps); n == 0 || n > 61 || w.open.Load() != int64(n) {
		t.Errorf("%d shards are remembered, %d counted; want those of the last %v", n, w.open.Load(), calledOff)
	}
	s.clock += 2 * calledOff
	w.Renewed(time.Second)
	if w.open.Load() != 0 {
		t.Error("reconciles still have to ask")
	}
	if w.Flush(); len(s.spans) > 0 {
		t.Errorf("%d spans of what is long over", len(s.spans))
	}
}

// A holder that had begun to drain goes on in the same epoch, whose trace has its root already.
func TestAHolderThatKeepsItsShardMovesNothing(t *testing.T) {
	s, w := newStory(t)
	s.activated(w, 5, 3)
	s.reconciled(w)
	before := s.trace(5)
	w.Closed(s.id, 5)
	s.step(w, shard.StepDrain, 6, "")
	w.Activated(shard.Activation{Shard: s.id, Epoch: 5, Kind: protocol.Resumed, Record: "record", Objects: 3,
		Gap: 5 * time.Millisecond})
	s.reconciled(w)
	s.wants(5, before...)
	if n := testutil.ToFloat64(w.moves.WithLabelValues(string(protocol.Resumed))); n != 0 {
		t.Errorf("%v moves are counted", n)
	}
	w.Closed(s.id, 5)
	s.step(w, shard.StepHandOff, 6, "to")
	if got := s.trace(6); !slices.Contains(got, "hand off") || slices.Contains(got, "drain") {
		t.Errorf("the next move's trace has %v", got)
	}
}

func TestIDsDifferByShardEpochAndFleet(t *testing.T) {
	a, root := idsOf("record", shardID(t, "west/01"), 5)
	if again, rootAgain := idsOf("record", shardID(t, "west/01"), 5); a != again || root != rootAgain {
		t.Error("two replicas get different ids")
	}
	for _, c := range []struct {
		record, shard string
		epoch         protocol.Epoch
	}{{"record", "west/01", 6}, {"record", "west/0", 5}, {"other", "west/01", 5}} {
		if b, _ := idsOf(c.record, shardID(t, c.shard), c.epoch); a == b {
			t.Errorf("%v has the same trace", c)
		}
	}
}

func TestMetricsSayWhatTheStatusSays(t *testing.T) {
	w := NewWatcher(nil)
	w.Lapsed("me", "because")
	w.Renewed(2 * time.Second)
	w.Activated(shard.Activation{Shard: shardID(t, "west/01"), Epoch: 5, Kind: protocol.Planned,
		Gap: 8 * time.Millisecond})
	c := NewCollector(func() shard.Status {
		return shard.Status{
			Coordinator: true, Member: true,
			Shards: []shard.ShardStatus{{ID: shardID(t, "west/01"), Epoch: 5, Phase: "active", Objects: 7, Load: .5},
				{ID: shardID(t, "west/10"), Phase: "warming"}},
			Clusters: map[keyspace.ClusterName]shard.ClusterStatus{
				"west": {Known: true, WatchMode: "server", Kept: 3, FencedWrites: 1, Writes: 4, WaitingWrites: 2,
					Limits: kubeconfig.Limits{QPS: 1.5, Writes: 4}},
				"free": {Known: true, WatchMode: "server"}, "gone": {Discarded: 2},
				"another's": {Known: true, WatchMode: "server", State: protocol.ClusterClosed},
			},
			WithoutHolder: map[keyspace.ShardID]time.Time{shardID(t, "east/"): began},
			Stuck: map[keyspace.ShardID]time.Time{
				shardID(t, "east/1"): began.Add(time.Second), shardID(t, "east/0"): began,
				shardID(t, "west/1"): began.Add(30 * time.Second),
			},
		}
	})
	c.now = func() time.Time { return began.Add(time.Minute) }
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w, c)
	want := `
# HELP tenure_cluster_limit What this replica may ask of a cluster: requests a second (qps), at once after a rest (burst), writes at a time (writes). Absent where there is no limit.
# TYPE tenure_cluster_limit gauge
tenure_cluster_limit{cluster="west",limit="burst"} 2
tenure_cluster_limit{cluster="west",limit="qps"} 1.5
tenure_cluster_limit{cluster="west",limit="writes"} 4
# HELP tenure_cluster_writes Writes to a cluster that this replica has sent and that aren't answered yet (sent), or that wait for their turn by its limits (waiting).
# TYPE tenure_cluster_writes gauge
tenure_cluster_writes{cluster="free",state="sent"} 0
tenure_cluster_writes{cluster="free",state="waiting"} 0
tenure_cluster_writes{cluster="west",state="sent"} 4
tenure_cluster_writes{cluster="west",state="waiting"} 2
# HELP tenure_clusters_known Workload clusters that this replica knows, whether it can use them or not.
# TYPE tenure_clusters_known gauge
tenure_clusters_known 3
# HELP tenure_fenced_writes_total Writes that were refused before they were sent, because their shard wasn't held any more.
# TYPE tenure_fenced_writes_total counter
tenure_fenced_writes_total{cluster="free"} 0
tenure_fenced_writes_total{cluster="gone"} 0
tenure_fenced_writes_total{cluster="west"} 1
# HELP tenure_shard_held_not_served_seconds Age of the oldest problem by cluster: this replica holds a shard and can't serve it, or no longer sees its changes. Absent without one.
# TYPE tenure_shard_held_not_served_seconds gauge
tenure_shard_held_not_served_seconds{cluster="east"} 60
tenure_shard_held_not_served_seconds{cluster="west"} 30
# HELP tenure_lapses_total Incarnations of this replica that ended because their lease wasn't renewed in time, or was sealed.
# TYPE tenure_lapses_total counter
tenure_lapses_total 1
# HELP tenure_shard_epoch Epoch of a shard that this replica holds or warms.
# TYPE tenure_shard_epoch gauge
tenure_shard_epoch{shard="west/01"} 5
tenure_shard_epoch{shard="west/10"} 0
# HELP tenure_shard_moves_total Moves of shards to this replica, by kind (Join, Planned, Exit, Crash), counted when it begins to serve them.
# TYPE tenure_shard_moves_total counter
tenure_shard_moves_total{kind="Crash"} 0
tenure_shard_moves_total{kind="Exit"} 0
tenure_shard_moves_total{kind="Join"} 0
tenure_shard_moves_total{kind="Planned"} 1
# HELP tenure_shards_served Shards that this replica holds and serves.
# TYPE tenure_shards_served gauge
tenure_shards_served 1
# HELP tenure_shard_without_holder_seconds For how long the shard that has waited longest for a live holder has had none, as this replica sees it; 0 while each shard has one.
# TYPE tenure_shard_without_holder_seconds gauge
tenure_shard_without_holder_seconds 60
# HELP tenure_watch_mode Who filters the watches of a cluster, server or client: always 1, with the mode as a label.
# TYPE tenure_watch_mode gauge
tenure_watch_mode{cluster="free",mode="server"} 1
tenure_watch_mode{cluster="west",mode="server"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"tenure_cluster_limit", "tenure_cluster_writes", "tenure_clusters_known", "tenure_fenced_writes_total",
		"tenure_lapses_total", "tenure_shard_epoch", "tenure_shard_held_not_served_seconds", "tenure_shard_moves_total",
		"tenure_shard_without_holder_seconds", "tenure_shards_served", "tenure_watch_mode"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestTheExemplarOfAGapIsATraceThatIsTold(t *testing.T) {
	s := &story{t: t, id: shardID(t, "west/01")}
	for name, w := range map[string]*Watcher{"told": s.watcher(), "tracing is off": NewWatcher(nil)} {
		s.activated(w, 5, 0)
		var gap dto.Metric
		must.Succeed(t, w.gap.WithLabelValues(string(protocol.Planned)).(prometheus.Metric).Write(&gap))
		examples := len(gap.GetHistogram().GetExemplars())
		for _, b := range gap.GetHistogram().GetBucket() {
			if b.GetExemplar() != nil {
				examples++
			}
		}
		if gap.GetHistogram().GetSampleCount() != 1 || (examples > 0) != (name == "told") {
			t.Errorf("%s: %v", name, &gap)
		}
	}
}

func TestAReplicaNamesABoundedNumberOfShards(t *testing.T) {
	shards := make([]shard.ShardStatus, 0, 2*maxShards)
	for i := range 2 * maxShards {
		shards = append(shards, shard.ShardStatus{ID: keyspace.ShardID{
			Cluster: keyspace.ClusterName(strings.Repeat("x", i+1)),
		}, Phase: "active"})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(func() shard.Status { return shard.Status{Shards: shards} }))
	if n, err := testutil.GatherAndCount(registry, "tenure_shard_epoch"); err != nil || n != maxShards {
		t.Errorf("%d series, %v", n, err)
	}
}
