package driver

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Config sets one process's part in the fleet.
type Config struct {
	// Protocol holds what all incarnations have in common; the ID is set for each.
	Protocol ownership.Config
	// DrainTimeout is how long running reconciles may take to end. DrainTimeout plus a lease duration, or plus
	// leastHandover if that is longer, bounds how long leaving may take.
	DrainTimeout time.Duration
	// Name returns a new name for an incarnation, which was never used before.
	Name func() ownership.Incarnation
}

// The bounds that don't depend on the lease duration.
const (
	// leastPatience is the shortest timeout of a request to the home cluster.
	leastPatience = 500 * time.Millisecond
	// confirmEvery is the time between two attempts to confirm that a record was deleted.
	confirmEvery = time.Second
	// leastHandover is the least time that a process which leaves has for its handoffs beside DrainTimeout. A reconcile
	// that doesn't return although it is cancelled takes five seconds of it (engage.ReturnGrace).
	leastHandover = 8 * time.Second
	// leastSealPatience is the least time that an ending process allows for sealing its last lease.
	leastSealPatience = 2 * time.Second
	// firstPause is the shortest time between two incarnations. It doubles each time an incarnation lives for less than
	// a lease duration.
	firstPause = 100 * time.Millisecond
)

// Driver is the state of one process. It is not safe for concurrent use: one loop owns it.
type Driver struct {
	cfg    Config
	now    ownership.Instant
	out    []Request
	number uint64

	id      ownership.Incarnation // the present incarnation, or the last
	machine *ownership.Replica    // of the present incarnation, nil between two
	memory  *ownership.Memory
	afresh  bool // the home cluster went back: the next incarnation lists everything again
	shards  map[keyspace.ShardID]*engaged
	known   Clusters
	stale   bool // the machine must be told that clusters came, went or were replaced
	// unusable are the clusters whose API servers can't be used from here.
	unusable map[keyspace.ClusterName]bool

	pending []pending // requests that will be answered
	lanes   [ownership.Lanes]lane
	pace    time.Duration // how long the home cluster takes to answer
	givenUp int           // requests in a row that were given up without an answer
	echoes  echoes

	unconfirmed []deletion
	doubts      doubts
	vouch       vouch
	stoodStill  ownership.Instant // when it went on after a time without events that was longer than vouchFor
	// blank: the last incarnation ended because an earlier one's Lease was missing, and it had held no shard.
	blank    bool
	past     []past // earlier incarnations whose Leases this home cluster hasn't shown yet
	measured ownership.Instant

	// The life of the process, one incarnation after the other.
	began  ownership.Instant // when the present one began
	pause  time.Duration
	stop   uint64 // the number of the Stop that isn't answered yet, 0 for none
	joined bool   // the last one may have had a Lease
	// stoppedAt is when the last one had stopped.
	stoppedAt ownership.Instant
	beginAt   ownership.Instant // when the next one begins, set when the last one has stopped
	sealings  sealings
	leaving   bool
	leftAt    ownership.Instant
	took      time.Duration // how long leaving took, 0 if there was nothing to leave
	failure   error         // why the process gave up, nil if it didn't
	ended     bool
}

// New returns the driver of a process. The configuration must be valid.
func New(cfg Config) *Driver {
	d := &Driver{
		cfg: cfg, shards: map[keyspace.ShardID]*engaged{},
		pending: make([]pending, 0, 4), out: make([]Request, 0, 4),
	}
	// Shards whose successors aren't warm go cold before the process gives up.
	d.cfg.Protocol.LeaveTimeout = min(cfg.Protocol.LeaveTimeout, d.leaveTimeout()*2/3)
	return d
}

// Handle takes one event, with the current reading of the process's clocks, and returns the requests to carry out, in
// order. The slice is valid until the next call.
func (d *Driver) Handle(now ownership.Instant, e Event) []Request {
	if now.AtMost(d.now) > vouchFor {
		d.stoodStill = now
	}
	d.now, d.out = now, d.out[:0]
	if d.ended {
		return nil
	}
	switch e := e.(type) {
	case Seen:
		if e.By == d.id { // else it is what an earlier incarnation was shown
			d.noteOlder(e.What)
			d.shown(e.What)
		}
	case Reconnected:
		d.doubtAll()
	case Written:
		d.written(e)
	case Found:
		d.found(e)
	case Tick:
		d.step(ownership.Tick{})
		d.measure()
	case Start:
		if !d.leaving {
			d.begin()
		}
	case Clusters:
		d.clustersKnown(e)
	case Listed:
		if e.By == d.id {
			d.step(ownership.Synced{})
		}
	case Opened:
		d.opened(e)
	case Warmed:
		d.warmed(e)
	case Drained:
		d.drained(e)
	case Stopped:
		d.stopped(e)
	case Measured:
		d.step(ownership.Measured(e))
	case Health:
		d.health(e)
	case Counted:
		d.step(ownership.Counted(e))
	case Leave:
		if !d.leaving {
			d.leaving, d.leftAt = true, now
			d.step(ownership.Leave{})
		}
	case Quit:
		d.giveUp(nil)
	}
	d.advance()
	return d.out
}

// shown handles what a watch shows. A deletion after which the machine would stop is read live first: an API server may
// lag, and a record that lost the labels by which the watch selects is still there.
func (d *Driver) shown(what ownership.Input) {
	switch gone := what.(type) {
	case ownership.ShardGone:
		d.confirm(Subject{Shard: gone.ID})
		return
	case ownership.LeadGone:
		d.confirm(Subject{})
		return
	case ownership.LayoutGone:
		d.confirm(Subject{Layout: gone.Cluster})
		return
	case ownership.LeaseGone:
		if gone.ID == d.id && d.machine != nil {
			d.confirm(Subject{Lease: d.id})
			return
		}
	}
	d.step(what)
	d.watched(what)
}

// step feeds the machine and carries out its effects.
func (d *Driver) step(in ownership.Input) {
	if d.machine == nil {
		if d.memory != nil && !d.afresh {
			d.memory.See(in, d.now)
		}
		return
	}
	for _, e := range d.machine.Step(d.now, in) {
		d.perform(e)
	}
}

// perform turns an effect into requests. It must not feed the machine.
func (d *Driver) perform(effect ownership.Effect) {
	switch e := effect.(type) {
	case ownership.WriteLease:
		d.write(pending{why: written, effect: effect, seq: e.Seq}, d.leasePatience())
	case ownership.SealLease, ownership.WriteLead, ownership.WriteLayout, ownership.CreateShard, ownership.WriteAssignee,
		ownership.WriteShard:
		d.queue(effect)
	case ownership.FindLease:
		d.read(pending{why: found}, Subject{Lease: e.ID})
	case ownership.FindLead:
		d.read(pending{why: found}, Subject{})
	case ownership.ListRecords:
		d.list()
	case ownership.FindLayout:
		d.read(pending{why: found, seq: e.Ask}, Subject{Layout: e.Cluster})
	case ownership.ForgetLease:
		d.emit(Write{Effect: effect, Patience: d.patience()}) // no answer needed: see its comment
	case ownership.DropLease:
		d.write(pending{why: left, effect: effect}, d.patience())
	case ownership.Probe:
		d.emit(Probe(e))
	case ownership.Count:
		d.emit(Count(e))
	case ownership.Warm:
		d.warm(e.ID)
	case ownership.Activate:
		d.open(e)
	case ownership.Drain:
		d.drain(e.ID)
	case ownership.Close:
		d.close(e.ID)
	case ownership.Lapse:
		d.lapse(e.Reason)
	default:
		d.end(fmt.Errorf("unknown effect %T", effect), 0)
	}
}

// advance does what is due apart from the machine's effects.
func (d *Driver) advance() {
	// feeding may close the last shard over a replaced cluster, which makes it stale again
	for d.stale && d.machine != nil {
		d.feedClusters()
	}
	if d.machine != nil {
		d.release()
	}
	if len(d.unconfirmed) > 0 {
		d.confirmAgain()
	}
	if len(d.sealings.of) > 0 {
		d.sealAgain()
	}
	if len(d.doubts.of) > 0 {
		d.settleDoubts()
	}
	if d.machine != nil && len(d.past) > 0 {
		d.vouched()
	}
	if d.machine == nil || d.leaving {
		d.live()
	}
}

func (d *Driver) emit(r Request) { d.out = append(d.out, r) }

// next returns the number of a new request that will be answered.
func (d *Driver) next() uint64 {
	d.number++
	return d.number
}

// measure requests a sample about twice per lease duration.
func (d *Driver) measure() {
	if d.machine != nil && d.now.AtLeast(d.measured) >= d.cfg.Protocol.LeaseDuration/2 {
		d.measured = d.now
		d.emit(Measure{})
	}
}

// Wake returns the monotonic time by which [Tick] must be fed if nothing else happens. A driver can't foresee that the
// machine sleeps or that the wall clock is set, so it also needs a tick every [Driver.TickEvery].
func (d *Driver) Wake() time.Duration {
	wake := d.now.Mono + time.Hour
	if d.machine != nil {
		wake = d.machine.Wake()
		if d.leaving {
			wake = min(wake, d.leftAt.Mono+d.leaveTimeout())
		}
	} else if d.id != "" && d.stop == 0 {
		wake = d.beginAt.Mono
		if d.leaving {
			wake = d.sealUntil()
		}
	}
	for _, u := range d.unconfirmed {
		wake = min(wake, u.at.Mono)
	}
	if d.machine != nil && len(d.doubts.of) > 0 && !d.awaits(doubted) {
		wake = min(wake, d.doubts.at.Mono)
	}
	if at, waits := d.vouchDue(); waits {
		wake = min(wake, at)
	}
	if d.awaits(vouching) { // so that a time without events is one in which the process stood still
		wake = min(wake, d.now.Mono+vouchFor/2)
	}
	if len(d.sealings.of) > 0 && !d.awaits(sealRead, sealed) {
		wake = min(wake, d.sealings.at.Mono)
	}
	return max(wake, d.now.Mono)
}

// TickEvery is the longest time between two ticks. It bounds how late a lapse is noticed; gates don't wait for it.
func (d *Driver) TickEvery() time.Duration { return d.cfg.Protocol.LeaseDuration / 10 }

// Valid reports whether the incarnation may act at that instant (rule R1).
func (d *Driver) Valid(now ownership.Instant) bool { return d.machine != nil && d.machine.Valid(now) }

// ValidUntil returns the instant at which the incarnation lapses unless a renewal commits first. It is zero if the
// incarnation isn't valid at the last event.
func (d *Driver) ValidUntil() ownership.Instant {
	if !d.Valid(d.now) {
		return ownership.Instant{}
	}
	return d.machine.ValidUntil()
}

// ID returns the present incarnation, or the last.
func (d *Driver) ID() ownership.Incarnation { return d.id }

// Leads reports whether the incarnation coordinates the fleet.
func (d *Driver) Leads() bool { return d.machine != nil && d.machine.Leads() }

// Aliases returns, for each name under which a cluster isn't served, the name under which it is.
func (d *Driver) Aliases() map[keyspace.ClusterName]keyspace.ClusterName {
	if d.machine == nil {
		return nil
	}
	return d.machine.Aliases()
}

// NewestLayout returns the newest version of a cluster's layout that the incarnation has seen; 0 if it has seen none.
func (d *Driver) NewestLayout(c keyspace.ClusterName) ownership.Version {
	if d.machine == nil {
		return 0
	}
	return d.machine.NewestLayout(c)
}

// Leaving reports whether the process was told to stop.
func (d *Driver) Leaving() bool { return d.leaving }

// Holdings lists the shards that are warm or held here, sorted.
func (d *Driver) Holdings() []ownership.Holding {
	if d.machine == nil {
		return nil
	}
	return d.machine.Holdings()
}
