package shardtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// gateState is what a process does about one shard.
type gateState uint8

const (
	closed   gateState = iota
	open               // reconciles start and run
	draining           // running reconciles end; they may still write
)

type gate struct {
	state   gateState
	epoch   ownership.Epoch
	by      ownership.Incarnation // the incarnation that opened it last
	warming uint64                // number of the last Warm, 0 after a Close
	drain   uint64                // number of the last Drain
	claim   uint64                // Seq of the last claim
	pending bool                  // warm-up under way
	warm    bool                  // its caches are filled
	cluster uint64                // the number of the cluster that they are filled from, in schedules that exchange names
	blind   bool                  // it was opened by a process that hadn't seen all layouts
}

// node is one process: it feeds a [driver.Driver] and carries out what that asks for, as package shard does.
type node struct {
	w     *world
	index int
	name  string
	clock clock

	up bool
	// previous: it runs the previous version. nextPrevious: it will do so when it starts next.
	previous, nextPrevious bool
	life                   uint32 // counts processes
	lives                  int    // counts incarnations
	id                     ownership.Incarnation
	// renewed is the newest version of the incarnation's lease that an answer reported as committed.
	renewed ownership.Version
	joined  bool // the process was told that a lease of any of its incarnations was committed
	driver  *driver.Driver
	gates   []gate

	stoppedTill time.Duration // paused or asleep until then
	cutTill     time.Duration
	cutKind     int
	// the faults by which the process is stopped, cut off, and so on
	stoppedFault, cutFault, listlessFault, upgradeFault *Fault
	frozenFault                                         [streams]*Fault

	cursor     [streams]int // how far the watch has been read
	pumping    [streams]bool
	frozenTill [streams]time.Duration
	relist     [streams]bool
	// listlessTill is until when its live lists fail.
	listlessTill time.Duration
	wakeAt       time.Duration           // a wake event is queued for then; 0: none
	ticks        int                     // ticks without progress in a row
	sent         int                     // requests, over all lives
	strikes      []*Fault                // faults on requests
	deaf         *request                // the next read of its record fails
	said         ownership.Incarnation   // what its termination log says, "" for nothing
	ends         []ownership.Incarnation // what the container's last two termination logs said
	slowWarm     *Fault
	slowDrain    *Fault
	backIn       time.Duration // after leaving, start again that much later; 0: never
	warmTime     time.Duration
	pcg          rand.PCG // of random
	random       *rand.Rand
	knows        driver.Clusters
	reaches      []reach       // by cluster
	armed        []strike      // a story's faults on requests
	reconnect    [streams]bool // the watch broke since it was last read
	unaware      bool          // its own Lease didn't show the last restore
}

func (n *node) reset(w *world, index int) {
	strikes, gates, reaches := n.strikes[:0], n.gates[:0], n.reaches
	*n = node{w: w, index: index, name: string('a' + rune(index)), strikes: strikes}
	n.gates = append(gates, make([]gate, len(w.ids))...)
	n.reaches = resized(reaches, len(w.names))
	n.clock = clock{rate: 1, origin: time.Hour}
	if index < len(w.schedule.Rates) {
		n.clock.rate = w.schedule.Rates[index]
		off := w.upTo(time.Hour)
		n.clock.origin += off
		if w.schedule.replaced() {
			n.clock.jumped = -off
		}
	}
	n.nextPrevious = index < len(w.schedule.Previous) && w.schedule.Previous[index]
	n.warmTime = 20 * time.Millisecond
	n.pcg.Seed(w.schedule.Seed, uint64(index))
	n.random = rand.New(&n.pcg)
}

// start begins a new process.
func (n *node) start() {
	w := n.w
	if n.life > 0 && n.previous != n.nextPrevious {
		w.felt(n.upgradeFault)
	}
	n.life++
	n.up, n.joined, n.previous = true, false, n.nextPrevious
	n.wakeAt = 0
	cfg := ownership.DefaultConfig("", n.name, leaseDuration)
	cfg.PlanEvery = 20 * time.Millisecond
	cfg.Container = n.container()
	if w.schedule.Counts && !n.previous {
		cfg.ObjectsPerShard = objectsPerShard
	}
	if !w.script {
		cfg.Random = n.random.Float64
	}
	n.driver = driver.New(driver.Config{Protocol: cfg, DrainTimeout: 2 * leaseDuration, Name: n.newName})
	for s := range streams {
		n.pumping[s], n.frozenTill[s], n.relist[s], n.reconnect[s] = false, 0, false, false
		n.cursor[s] = len(w.store.log[s])
		if w.schedule.Stale && w.now < w.schedule.Faulty {
			n.cursor[s] -= int(w.upTo(time.Duration(min(n.cursor[s]-w.historyFrom[s], 6))))
		}
	}
	for at := range n.reaches {
		n.reaches[at].unusable = false
		if n.reaches[at].awayTill > w.now {
			n.look(at, w.upTo(lookEvery)+probeTimeout)
		}
	}
	life := n.life
	n.knows = driver.Clusters{} // a new process knows nothing
	n.knows = n.identified(w.knownClusters())
	n.handle(n.knows)
	n.handle(driver.Start{})
	for s := range streams {
		if n.life == life {
			n.pump(s)
		}
	}
}

func (n *node) newName() ownership.Incarnation {
	n.lives++
	return n.incarnation(n.lives)
}

// incarnation returns the name of the process's incarnation of that number.
func (n *node) incarnation(number int) ownership.Incarnation {
	return ownership.Incarnation(fmt.Sprintf("%s-%d", n.name, number))
}

// list shows a new incarnation everything that the process's watches have shown so far.
func (n *node) list() {
	life := n.life
	for s := range streams {
		for _, in := range n.w.store.listing(s, n.cursor[s], false) {
			n.handle(driver.Seen{What: in})
			if n.life != life {
				return
			}
		}
	}
	n.handle(driver.Listed{By: n.id})
	if n.previous && n.life == life {
		n.handle(driver.Seen{What: ownership.LeaseSeen{Lease: bystander}})
	}
}

// listAnew lets the process's watches begin anew with a list that is taken now.
func (n *node) listAnew() {
	w := n.w
	for s := range streams {
		n.cursor[s] = max(n.cursor[s], w.historyFrom[s])
		if w.now >= n.frozenTill[s] && w.now >= n.cutTill && w.now >= w.awayTill {
			n.cursor[s] = len(w.store.log[s])
		}
		n.relist[s], n.reconnect[s] = false, false
	}
}

// stop ends the process, by a crash or by its own decision.
func (n *node) stop() {
	n.up = false
	n.ended()
	n.life++
	n.driver = nil
	n.shut()
}

// shut closes every gate at once.
func (n *node) shut() {
	for i := range n.gates {
		n.close(i)
	}
}

func (n *node) close(i int) {
	n.setGate(i, closed)
	n.gates[i].warming, n.gates[i].pending, n.gates[i].warm = 0, false, false
}

// valid reports whether the process may act now.
func (n *node) valid() bool { return n.up && n.driver.Valid(n.clock.read(n.w.now)) }

// leaving reports whether the process was told to stop.
func (n *node) leaving() bool { return n.up && n.driver.Leaving() }

// resume ends a pause. All events that waited follow, even those of stale timers.
func (n *node) resume() {
	if n.w.now < n.stoppedTill {
		return // a later pause has begun
	}
	n.clock.wakeUp(n.w.now)
	if n.up {
		if n.w.out != nil {
			n.w.say(n, "goes on")
		}
		n.work()
		n.tickSoon()
	}
}

// happen handles an event of this life of the process. It hands on outdated answers, too: the driver must know
// which ones count.
func (n *node) happen(e event) {
	w := n.w
	switch e.kind {
	case evWake:
		if w.now < n.wakeAt {
			return // superseded
		}
		n.wakeAt = 0
		n.handle(driver.Tick{})
	case evReply:
		n.answered(w.request(e.req), false)
	case evTimeout:
		n.answered(w.request(e.req), true)
	case evWatch:
		n.read(stream(e.n))
	case evHealth:
		n.looked(int(e.n))
	case evCounted:
		n.counted(int(e.n))
	case evWarmed:
		if wait, by := n.filling(w.ids[e.n].Cluster); wait > 0 {
			if n.gates[e.n].warming == e.number {
				w.felt(by)
			}
			if wait < never/2 {
				e.at = w.now + wait
				w.push(e)
			}
			return
		}
		if g := &n.gates[e.n]; g.warming == e.number {
			g.pending, g.warm = false, true
		}
		if w.exchanges {
			n.handle(driver.Opened{Number: e.number, ID: w.ids[e.n], ClusterNo: n.gates[e.n].cluster})
			if n.life != e.life {
				return
			}
		}
		n.to(w.ids[e.n].Cluster).unusable = false // the driver concludes that from Warmed
		n.handle(driver.Warmed{Number: e.number, ID: w.ids[e.n]})
	case evDrained:
		if g := &n.gates[e.n]; g.drain == e.number && g.state == draining {
			n.work() // the last write of the last reconcile
			n.setGate(int(e.n), closed)
		}
		n.handle(driver.Drained{Number: e.number, ID: w.ids[e.n]})
	case evStopped:
		n.handle(driver.Stopped{Number: e.number, Quiet: w.slow(n.slowDrain) == 0})
	case evCluster:
		n.know(w.knownClusters())
	}
}

// handle feeds the driver one event and carries out its requests. Reconciles work before and after that.
func (n *node) handle(e driver.Event) {
	w := n.w
	if n.previous {
		if e = asPrevious(e); e == nil {
			return
		}
	}
	if seen, ok := e.(driver.Seen); ok { // the process's watches go on, whichever incarnation runs
		seen.By = n.id
		e = seen
	}
	w.Steps++
	n.work()
	now := n.clock.read(w.now)
	requests := n.driver.Handle(now, e)
	life, id := n.life, n.id
	for _, r := range requests {
		n.do(r)
		if n.life != life {
			return
		}
	}
	n.work()
	n.schedule(e, now, len(requests) > 0)
	if n.id != id {
		n.list()
	}
}

// schedule queues the next tick that the driver wants.
func (n *node) schedule(e driver.Event, now ownership.Instant, progress bool) {
	w := n.w
	wake := n.driver.Wake()
	if _, tick := e.(driver.Tick); tick && !progress && wake <= now.Mono {
		n.ticks++
		if n.ticks > 3 {
			w.fail(n, "spins: wants to be woken at once again and again, and does nothing")
		}
	} else {
		n.ticks = 0
	}
	at := max(n.clock.trueTime(wake), w.now+time.Microsecond)
	if n.wakeAt != 0 && n.wakeAt <= at {
		return
	}
	n.wakeAt = at
	w.push(event{at: at, kind: evWake, node: int8(n.index), life: n.life})
}

// do carries out one request.
func (n *node) do(r driver.Request) {
	w := n.w
	if w.out != nil {
		n.narrate(r)
	}
	switch r := r.(type) {
	case driver.Write:
		if n.previous {
			r.Effect = n.byPrevious(r.Effect)
		}
		if e, ok := r.Effect.(ownership.WriteShard); ok {
			w.checkSend(n, e)
			w.checkClaim(n, e)
		}
		w.send(n, request{number: r.Number, effect: r.Effect, of: driver.About(r.Effect), patience: r.Patience})
	case driver.Read:
		w.send(n, request{number: r.Number, of: r.Of, patience: r.Patience, read: true})
	case driver.Begin:
		n.id, n.said, n.renewed = r.ID, r.ID, 0
		if r.Afresh {
			w.doubted = w.doubted || w.now >= w.since
			n.listAnew()
		}
	case driver.Warm:
		i := w.shardIndex(r.ID)
		n.gates[i].pending, n.gates[i].warming = true, r.Number
		if w.exchanges {
			n.gates[i].cluster = n.knows.ClusterNos[r.ID.Cluster]
		}
		n.later(evWarmed, i, r.Number, n.warmTime+w.upTo(n.warmTime)+w.slow(n.slowWarm))
	case driver.Probe:
		n.probe(r)
	case driver.Count:
		n.count(r)
	case driver.Open:
		n.open(r)
	case driver.Drain:
		i := w.shardIndex(r.ID)
		n.setGate(i, draining)
		n.gates[i].drain = r.Number
		n.later(evDrained, i, r.Number, time.Millisecond+w.upTo(20*time.Millisecond)+w.slow(n.slowDrain))
	case driver.Close:
		n.close(w.shardIndex(r.ID))
	case driver.Stop:
		w.Lapses++
		n.shut()
		// Writes in flight end, then the process goes on under a new name.
		n.later(evStopped, 0, r.Number, time.Millisecond+w.upTo(200*time.Millisecond))
	case driver.End:
		n.stop()
		w.last = max(w.last, w.now+n.backIn)
		if n.backIn > 0 {
			w.push(event{at: w.now + n.backIn, kind: evStart, node: int8(n.index)})
		}
	}
}

// open opens a gate, and checks the kind of move that the driver reports.
func (n *node) open(r driver.Open) {
	w := n.w
	i := w.shardIndex(r.ID)
	g := &n.gates[i]
	if !g.warm {
		w.fail(n, "I3: serves %s before its caches are warm", r.ID)
	}
	if rec := w.store.shard(r.ID); rec != nil && rec.Epoch == r.Epoch && rec.Holder == n.id && rec.Moved != nil {
		want := rec.Moved.Kind
		if g.epoch == r.Epoch && g.by == n.id && (w.restoredAt == 0 || r.Kind == protocol.Resumed) {
			want = protocol.Resumed // after a restore, the record's kind is right, too
		}
		if r.Kind != want {
			w.fail(n, "announces: %s came by %q, and it says %q", r.ID, want, r.Kind)
		}
	}
	g.epoch, g.by, g.blind = r.Epoch, n.id, w.exchanges && n.blind()
	n.setGate(i, open)
}

func (n *node) later(kind eventKind, shard int, number uint64, after time.Duration) {
	w := n.w
	at := w.now + after
	if !w.script && at > w.schedule.Faulty {
		at = min(at, max(w.now, w.schedule.Faulty)+50*time.Millisecond)
	}
	if kind == evWarmed {
		at += w.schedule.Fill // no fault: it doesn't end
	}
	w.push(event{at: at, kind: kind, node: int8(n.index), life: n.life, n: int32(shard), number: number})
}

// pump queues the event by which the watch shows its news.
func (n *node) pump(s stream) {
	w := n.w
	if !n.up || n.pumping[s] || n.cursor[s] >= len(w.store.log[s]) {
		return
	}
	n.pumping[s] = true
	at := w.now + commitLatency + w.upTo(w.schedule.Lag)
	at = w.after(at, n.frozenTill[s], n.frozenFault[s])
	at = w.after(at, n.cutTill, n.cutFault)
	at = w.after(at, w.awayTill, w.awayFault)
	w.push(event{at: at, kind: evWatch, node: int8(n.index), life: n.life, n: int32(s)})
}

// read feeds the driver everything new that the watch can show.
func (n *node) read(s stream) {
	w := n.w
	n.pumping[s] = false
	if w.now < n.frozenTill[s] || w.now < n.cutTill || w.now < w.awayTill {
		n.pump(s)
		return
	}
	life := n.life
	if n.reconnect[s] {
		n.reconnect[s] = false
		n.cursor[s] = max(n.cursor[s], w.lostBefore[s])
		n.handle(driver.Reconnected{})
		if n.life != life {
			return
		}
	}
	news := w.store.log[s][n.cursor[s]:]
	if n.relist[s] {
		n.relist[s] = false
		news = w.store.listing(s, len(w.store.log[s]), true)
	}
	n.cursor[s] = len(w.store.log[s])
	for _, in := range news {
		n.handle(driver.Seen{What: in})
		if n.life != life {
			return
		}
	}
}
