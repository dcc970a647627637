package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// The states of a replica.
const (
	starting = "starting"
	alive    = "alive"
	leaving  = "leaving"
	killed   = "killed"
	ended    = "ended"
)

// replicaView is what is shown of a replica.
type replicaView struct {
	name   string
	state  string
	shards int
	figures
	asked bool // figures were read at least once
}

// clusterView is what is shown of a workload cluster.
type clusterView struct {
	name                   string
	pending, running, done int
	copies                 int // of Deployments, as wanted and available
	frozen                 bool
}

// snapshot is the whole board at one moment.
type snapshot struct {
	elapsed  time.Duration
	headline string
	ats      int
	// deployments is how many Deployments ask for copies, replicated how many have them.
	deployments, replicated int
	replicas                []replicaView
	clusters                []clusterView
	wanted                  int // shards that there will be once all clusters are known
	shards                  int // not retired
	held                    int // by a replica that is alive and has begun to serve them
	handoffs                []handoff
}

func (s snapshot) done() int { return s.total().done }

// total sums the clusters up.
func (s snapshot) total() clusterView {
	all := clusterView{name: "all"}
	for _, c := range s.clusters {
		all.pending, all.running, all.done = all.pending+c.pending, all.running+c.running, all.done+c.done
		all.copies += c.copies
	}
	return all
}

// settled says that every shard is held by a live replica, and the shares differ by one at most.
func (s snapshot) settled() bool {
	if s.shards < max(1, s.wanted) || s.held != s.shards {
		return false
	}
	low, high := s.shards, 0
	for _, r := range s.replicas {
		if r.state == alive || r.state == starting {
			low, high = min(low, r.shards), max(high, r.shards)
		}
	}
	return high-low <= 1
}

// board collects what the watches, the logs and the metrics show. All its methods may be called at any time.
type board struct {
	began            time.Time
	ats, deployments int

	mu          sync.Mutex // guards what follows; never held over I/O
	headline    string
	replicas    []*lab.Replica
	figures     map[string]figures
	seen        map[atID]*cnatv1alpha1.At
	shards      map[string]*tenurev1alpha1.Shard
	handoffs    []handoff
	activations map[tenureID]lab.Line
	lapses      map[string]time.Time // by incarnation
	kept        map[deploymentID]*appsv1.Deployment
	frozen      string // cluster
}

func newBoard(ats, deployments int) *board {
	return &board{
		began: time.Now(), ats: ats, deployments: deployments,
		figures: map[string]figures{}, seen: map[atID]*cnatv1alpha1.At{}, shards: map[string]*tenurev1alpha1.Shard{},
		activations: map[tenureID]lab.Line{}, lapses: map[string]time.Time{}, kept: map[deploymentID]*appsv1.Deployment{},
	}
}

func (b *board) say(headline string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.headline = headline
}

func (b *board) addReplica(r *lab.Replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, r)
}

func (b *board) allReplicas() []*lab.Replica {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.replicas)
}

func (b *board) setFigures(replica string, f figures) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.figures[replica] = f
}

func (b *board) activated(a lab.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activations[tenureID{a.Shard, a.Epoch}] = a
}

func (b *board) lapsed(incarnation string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lapses[incarnation] = at
}

func (b *board) setAt(cluster string, at *cnatv1alpha1.At) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[atID{cluster, at.Namespace, at.Name}] = at
}

// setShard takes a new version of a record, and notes it if the holder changed.
func (b *board) setShard(s *tenurev1alpha1.Shard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.shards[s.Name]
	b.shards[s.Name] = s
	move := s.Status.LastMove
	if move == nil || (old != nil && old.Status.Epoch == s.Status.Epoch) {
		return
	}
	if protocol.MoveKind(move.Kind) == protocol.Join && move.From == "" {
		return // the shard had no holder before, so nothing was handed off
	}
	h := handoff{
		Shard: s.Spec.Cluster + "/" + s.Spec.Prefix, Kind: protocol.MoveKind(move.Kind), From: move.From, To: move.To,
		Epoch: s.Status.Epoch, time: move.Time.Time,
	}
	h.waiting = b.waiting(h.Shard, h.time.Add(soon))
	b.handoffs = append(b.handoffs, h)
}

// soon is how long after a move an At may be due to count. A move's trace waits 10 s for a first reconcile, and such an
// At causes one in time.
const soon = 5 * time.Second

// waiting counts the Ats of a shard that are due by that time and whose run isn't claimed yet; the lock is held.
func (b *board) waiting(shard string, by time.Time) (n int) {
	id, err := keyspace.ParseShardID(shard)
	if err != nil {
		return 0
	}
	for of, at := range b.seen {
		over := at.Status.Phase == cnatv1alpha1.AtRunning || at.Status.Phase == cnatv1alpha1.AtDone
		if !over && dueTime(*at).Before(by) && of.cluster == string(id.Cluster) && id.Contains(string(at.UID)) {
			n++
		}
	}
	return n
}

// snapshot computes what there is to see.
func (b *board) snapshot() snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := snapshot{
		elapsed: time.Since(b.began), headline: b.headline, ats: b.ats, deployments: b.deployments,
		wanted: shardsPerCluster * (1 + len(workloadClusters)),
	}
	share, served := map[string]int{}, map[string]int{}
	for _, shard := range b.shards {
		s.shards++
		holder := lab.ReplicaOf(shard.Status.Holder)
		share[holder]++
		if _, ok := b.activations[tenureID{shard.Spec.Cluster + "/" + shard.Spec.Prefix, shard.Status.Epoch}]; ok {
			served[holder]++
		}
	}
	kills := map[string]time.Time{}
	for _, r := range b.replicas {
		f, asked := b.figures[r.Name]
		v := replicaView{name: r.Name, state: stateOf(r, asked), shards: share[r.Name], figures: f, asked: asked}
		s.replicas = append(s.replicas, v)
		if v.state == alive || v.state == leaving {
			s.held += served[r.Name]
		}
		if at := r.KilledAt(); !at.IsZero() {
			kills[r.Name] = at
		}
	}
	s.clusters = b.clusterViews()
	s.replicated = b.countCopies(s.clusters)
	began := slices.Collect(maps.Values(b.activations))
	for _, h := range b.handoffs {
		h.GapMS = gap(h, lab.FirstActive(began, h.Shard, h.Epoch, time.Time{}), b.endOf(h.From, kills))
		s.handoffs = append(s.handoffs, h)
	}
	return s
}

func stateOf(r *lab.Replica, asked bool) string {
	switch {
	case !r.KilledAt().IsZero():
		return killed
	case r.Ended():
		return ended
	case r.Asked():
		return leaving
	case asked:
		return alive
	}
	return starting
}

// endOf is when an incarnation ended: its lapse, else the killing of its process, else zero. The lock is held.
func (b *board) endOf(incarnation string, kills map[string]time.Time) time.Time {
	if at, ok := b.lapses[incarnation]; ok {
		return at
	}
	return kills[lab.ReplicaOf(incarnation)]
}

// clusterViews counts the Ats; the lock is held.
func (b *board) clusterViews() []clusterView {
	views := make([]clusterView, len(workloadClusters))
	for i, name := range workloadClusters {
		views[i].name = name
	}
	for id, at := range b.seen {
		v := &views[slices.Index(workloadClusters, id.cluster)]
		switch at.Status.Phase {
		case cnatv1alpha1.AtDone:
			v.done++
		case cnatv1alpha1.AtRunning:
			v.running++
		default:
			v.pending++
		}
	}
	return views
}
