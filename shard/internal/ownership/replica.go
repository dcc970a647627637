package ownership

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// Replica is the state of one incarnation. It is not safe for concurrent use: one loop owns it.
type Replica struct {
	cfg    Config
	memory *Memory // left by the previous incarnation of the process, empty for the first
	now    Instant
	step   uint64 // counts steps
	seq    uint64
	out    []Effect

	synced    bool // the first listing is complete
	empty     bool // the first listing showed a home cluster that no fleet has used
	syncedAt  Instant
	watched   bool    // some incarnation of this process has watched this home cluster for a lease duration
	watchedAt Instant // when watched becomes true
	// another: the process has followed another history of the home cluster, or may have. A shard that is unheld by the
	// records may have been held since.
	another  bool
	wentBack bool // the incarnation is over because the home cluster went back, or may have
	leaving  bool // told to stop
	over     bool // lapsed or left: no effect will ever follow

	own         ownLease
	caughtUp    [watches]Instant // the instant up to which each watch is known to be complete
	listAskedAt Instant          // when a live list was last asked for
	peers       map[Incarnation]*peer
	peerOrder   []*peer                  // peers, sorted by id
	ended       map[string][]Incarnation // incarnations whose end a kubelet reported, by container
	shards      map[keyspace.ShardID]*shardState
	order       []*shardState // shards, sorted by id: the machine must be deterministic
	dirty       []*shardState // shards to decide on in this step
	// timed has all shards that need a decision when some time has passed. touchDue drops those that need none any more.
	timed   []*shardState
	timedAt time.Duration // on the monotonic clock: no shard of timed needs a decision before
	orphans int           // shards that wait for a holder: see isUnserved
	// given is the last input about clusters. ownNames holds the names in it under which clusters may be served. It leaves
	// out a cluster whose UID isn't its layout's, and one that is served under another name already.
	given       Clusters
	ownNames    map[keyspace.ClusterName]bool
	givenNames  []keyspace.ClusterName            // the names of all clusters given, sorted
	aliases     map[string][]keyspace.ClusterName // the names of each cluster, by its UID
	aliased     bool                              // some cluster has more than one name
	namesStale  bool                              // which of the names counts may have changed with who serves them
	layouts     map[keyspace.ClusterName]*layout
	layoutOrder []*layout  // layouts, sorted by cluster
	asked       []question // live reads of layouts under way, oldest first

	fit    fit // who can serve which cluster
	lead   leadership
	epochs epochs

	filling int // planned moves whose successor isn't warm, in the whole fleet
	handing int // shards that this replica is handing off or releasing
	keptBy  int // where in order it last found a shard that kept it from leaving

	replan    bool
	planAfter Instant
	lastPlan  latestPlan
	// lastClaims is the plan in which fresh replicas get nothing new.
	lastClaims latestPlan
	// planBuffer is reused for the planner's arguments.
	planBuffer struct {
		shards   []plan.Shard
		replicas []plan.Replica
	}
	standing bool // this replica may be standing by for a late peer
	// lastStandby is the plan for the case that all late peers are dead.
	lastStandby latestPlan
	heardAt     Instant // when a Lease event last arrived, for our own lease or a peer's
	// hearingSince is when the first Lease event after the latest silence arrived.
	hearingSince Instant
	remakeAt     Instant // when missing records and layouts may be made (mayRemake); zero for no wait
	reportAt     Instant
	writes       []*write // not yet settled
	waiting      []*write // those of writes that will be repeated
	recordedAt   Instant  // when a write of a shard's record was last committed
	budget       repeats
}

// New returns the state machine of a new incarnation. The configuration must be valid. The memory comes from the
// process's previous incarnation; nil for the first.
func New(cfg Config, memory *Memory) *Replica {
	if memory == nil {
		memory = &Memory{}
	}
	r := &Replica{
		cfg:      cfg,
		memory:   memory,
		peers:    map[Incarnation]*peer{},
		ended:    map[string][]Incarnation{},
		shards:   map[keyspace.ShardID]*shardState{},
		ownNames: map[keyspace.ClusterName]bool{},
		budget:   repeats{left: repeatsAtFirst},
		layouts:  map[keyspace.ClusterName]*layout{},
	}
	r.remember()
	return r
}

// Step takes one input, with the current reading of the local clocks, and returns the effects to carry out, in order.
// The slice is valid until the next call. After [Lapse] or [DropLease], Step returns nothing.
func (r *Replica) Step(now Instant, in Input) []Effect {
	r.now = now
	r.step++
	r.out = r.out[:0]
	if r.over {
		return nil
	}
	if r.own.member && !r.Valid(now) {
		r.lapse(r.unrenewed())
		return r.out
	}
	if r.own.late(now, r.cfg) {
		r.lapse("lease not created in time")
		return r.out
	}
	r.take(in)
	if !r.over {
		r.advance()
	}
	r.lead.read = false
	return r.out
}

// take records an input. It decides nothing about shards.
func (r *Replica) take(in Input) {
	switch in := in.(type) {
	case LeaseSeen:
		r.leaseSeen(in.Lease)
	case LeaseGone:
		r.leaseGone(in.ID)
	case ContainerSeen:
		r.containerSeen(in)
	case ShardSeen:
		r.shardSeen(in.Shard)
	case ShardGone:
		r.shardGone(in)
	case LayoutSeen:
		r.layoutSeen(in.Layout)
	case LayoutGone:
		r.layoutGone(in)
	case LayoutRead:
		r.layoutRead(in)
	case LeadSeen:
		r.leadSeen(in.Lead)
	case LeadFound:
		r.leadFound(in.Lead)
	case LeadGone:
		r.leadGone()
	case WentBack:
		r.lapseAfresh(in.Reason)
	case Synced:
		r.firstListed()
	case Clusters:
		r.clustersGiven(in)
	case Written:
		r.written(in)
	case Warmed:
		r.warmed(in.ID)
	case Drained:
		r.drained(in.ID)
	case Measured:
		if t := r.shards[in.ID]; t != nil {
			t.objects, t.load = in.Objects, asRecorded(in.Load)
		}
	case Health:
		r.healthSeen(in)
	case Counted:
		r.counted(in)
	case CaughtUp:
		r.noteCaughtUp(in.Watch, in.At)
	case Listing:
		r.listed(in)
	case Leave:
		r.leave()
	case Tick:
		r.touchDue()
	}
}

// firstListed begins to draw conclusions from what isn't there.
func (r *Replica) firstListed() {
	r.synced, r.syncedAt = true, r.now
	r.empty = r.neverUsed()
	r.foundRecords()
	r.waitUntilWatched()
	r.peersSynced()
	r.touchAll()
}

func (r *Replica) clustersGiven(in Clusters) {
	r.given, r.givenNames = in, slices.Sorted(maps.Keys(in.Bits))
	r.chooseNames()
	r.clustersKnown()
	r.touchAll()
}

func (r *Replica) warmed(id keyspace.ShardID) {
	if t := r.shards[id]; t != nil && t.phase == warming {
		r.enter(t, warm)
		r.filled(t)
		r.touch(t)
	}
}

func (r *Replica) drained(id keyspace.ShardID) {
	if t := r.shards[id]; t != nil && t.phase == draining {
		r.enter(t, drained)
		r.touch(t)
	}
}

func (r *Replica) leave() {
	if !r.leaving {
		r.leaving = true
		r.own.renewAt = r.now
		r.touchAll()
	}
}

// advance does everything that is due now. The own lease goes first, since nothing else matters without it.
func (r *Replica) advance() {
	r.refit()
	r.noteWatched()
	r.renew()
	if !r.Valid(r.now) {
		return // not a member yet
	}
	r.requestList()
	r.watchPeers()
	r.elect()
	r.repeat()
	if r.aliased && r.namesStale {
		r.chooseNames()
	}
	r.unbar()
	r.decideDirty()
	if r.replan && r.synced && !r.mayPlan() {
		r.replan = false
	}
	if r.replan && r.synced && (r.lead.read || r.now.AtLeast(r.planAfter) >= 0) {
		r.replan = false
		r.planAfter = r.now.Add(r.planEvery())
		r.plan()
	}
	r.findLead()
	r.report()
	r.leaveIfDone()
}

// planEvery is PlanEvery, or longer in a fleet of thousands of shards. A plan takes longer the more there are, and
// events have to be handled between two plans, renewals first of all.
func (r *Replica) planEvery() time.Duration {
	per := func(shard time.Duration) time.Duration { return time.Duration(len(r.order)) * shard }
	return max(r.cfg.PlanEvery, min(per(10*time.Microsecond), max(250*time.Millisecond, per(5*time.Microsecond))))
}

// decideDirty decides the next step of each touched shard.
func (r *Replica) decideDirty() {
	for i := 0; i < len(r.dirty); i++ { // deciding may touch further shards
		t := r.dirty[i]
		t.dirty = false
		r.decide(t)
		r.track(t)
	}
	r.dirty = r.dirty[:0]
}

// touch queues a shard for a decision in this step.
func (r *Replica) touch(t *shardState) {
	if !t.dirty {
		t.dirty = true
		r.dirty = append(r.dirty, t)
		t.layout.stir()
	}
	r.replan = true
}

// touchAll queues all shards for a decision, after something that may concern any of them.
func (r *Replica) touchAll() {
	for _, t := range r.order {
		r.recount(t)
		r.touch(t)
	}
	for _, l := range r.layoutOrder {
		l.stir()
	}
	r.namesStale = true
	r.replan, r.fit.stale = true, true // whether a holdOff ends depends on who else there is
}

// shard returns the state of a shard, new if it was unknown.
func (r *Replica) shard(id keyspace.ShardID) *shardState {
	if t := r.shards[id]; t != nil {
		return t
	}
	t := &shardState{id: id, layout: r.layout(id.Cluster), excluded: r.excludes(id)}
	r.shards[id] = t
	r.order, t.layout.shards = insert(r.order, t), insert(t.layout.shards, t)
	return t
}

func (r *Replica) emit(e Effect) { r.out = append(r.out, e) }

func (r *Replica) lapse(reason string) {
	r.over = true
	r.out = append(r.out[:0], Lapse{Reason: reason})
}

// insert adds a shard to a list that is sorted by shard.
func insert(in []*shardState, t *shardState) []*shardState {
	at, _ := slices.BinarySearchFunc(in, t.id, func(o *shardState, id keyspace.ShardID) int { return o.id.Compare(id) })
	return slices.Insert(in, at, t)
}

// Wake returns the monotonic time by which [Tick] must be fed if nothing else happens. It can't foresee that the
// machine sleeps or that the wall clock is set, so the driver also ticks every tenth of the lease duration. Gates don't
// wait for a tick: they ask [Replica.Valid].
func (r *Replica) Wake() time.Duration {
	wake := r.now.Mono + time.Hour
	if r.over {
		return wake
	}
	at := func(d time.Duration) { wake = min(wake, d) }
	at(r.own.wake(r.cfg, r.watchStale()))
	if !r.own.member {
		return max(wake, r.now.Mono) // all else waits for that
	}
	at(r.wakeToList())
	if again, ok := r.repeatAt(); ok {
		at(again)
	}
	if r.lead.wanted {
		at(r.lead.seekAt.Mono)
	}
	if r.synced && !r.watched {
		at(r.watchedAt.Mono)
	}
	if r.synced {
		for _, p := range r.peerOrder {
			at(p.wake(r))
		}
	}
	if len(r.timed) > 0 {
		at(r.timedAt)
	}
	if len(r.asked) > 0 {
		at(r.asked[0].at.Mono)
	}
	if r.replan && r.synced {
		at(r.planAfter.Mono)
	}
	if !r.remakeAt.IsZero() {
		at(r.remakeAt.Mono)
	}
	at(r.reportAt.Mono)
	at(r.wakeFit())
	return max(wake, r.now.Mono)
}
