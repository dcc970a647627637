package shardtest

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
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
	gen     uint32 // answers to an earlier generation's Warm or Drain are dropped
	pending bool   // warm-up under way
	warm    bool   // its caches are there
}

// node is one process with its driver: it feeds a [ownership.Replica] and does what that says, as package shard does.
type node struct {
	w     *world
	index int
	name  string
	clock clock

	up      bool
	life    uint32 // counts incarnations
	id      ownership.Incarnation
	machine *ownership.Replica
	memory  ownership.Memory // of the incarnation that lapsed, until the process ends
	gates   []gate
	leaving bool

	stoppedTill time.Duration // paused or asleep until then
	cutTill     time.Duration
	cutKind     int
	cursor      [streams]int // how far the watch has been read
	pumping     [streams]bool
	frozenTill  [streams]time.Duration
	frozenFrom  [streams]time.Duration // since when it has shown nothing for being frozen
	relist      [streams]bool
	wakeAt      time.Duration // a wake event is queued for then; 0: none
	ticks       int           // ticks without progress in a row
	sent        int           // requests, over all lives
	strikes     []*Fault      // faults on requests
	slowWarm    time.Duration
	slowDrain   time.Duration
	backIn      time.Duration // after leaving: start again so much later; 0: never
	warmTime    time.Duration
	armed       []strike // a story's faults on requests
}

func (n *node) reset(w *world, index int) {
	strikes, gates := n.strikes[:0], n.gates[:0]
	*n = node{w: w, index: index, name: string('a' + rune(index)), strikes: strikes}
	n.gates = append(gates, make([]gate, len(w.ids))...)
	n.clock = clock{rate: 1, origin: time.Hour}
	if index < len(w.schedule.Rates) {
		n.clock.rate = w.schedule.Rates[index]
		n.clock.origin += w.upTo(time.Hour)
	}
	n.warmTime = 20 * time.Millisecond
}

// start begins a new incarnation: it lists, possibly from a stale cache, then watches.
func (n *node) start() {
	w := n.w
	n.life++
	n.up, n.leaving = true, false
	n.id = ownership.Incarnation(fmt.Sprintf("%s-%d", n.name, n.life))
	cfg := ownership.DefaultConfig(n.id, n.name, leaseDuration)
	cfg.PlanEvery = 20 * time.Millisecond
	n.machine = ownership.New(cfg, n.memory)
	n.wakeAt = 0
	if w.out != nil {
		w.say(n, "starts")
	}
	life := n.life
	for s := range streams {
		n.pumping[s], n.frozenTill[s], n.frozenFrom[s], n.relist[s] = false, 0, 0, false
		at := len(w.store.log[s])
		if w.schedule.Stale && w.now < w.schedule.Faulty {
			at -= int(w.upTo(time.Duration(min(at, 6))))
		}
		n.cursor[s] = at
		for _, in := range w.store.listing(s, at, false) {
			n.step(in)
			if n.life != life {
				return
			}
		}
		n.pump(s)
	}
	n.step(w.knownClusters())
	n.step(ownership.Synced{})
}

// stop ends the incarnation: by a crash, or after a lapse or a clean exit.
func (n *node) stop() {
	n.up = false
	n.life++
	n.machine = nil
	for i := range n.gates {
		n.setGate(i, closed)
		n.gates[i].gen++
		n.gates[i].warm = false
	}
}

// resume ends a pause. Everything that waited follows, stale timers included.
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

// happen takes an event that is meant for this life of the process.
func (n *node) happen(e event) {
	w := n.w
	switch e.kind {
	case evWake:
		if w.now < n.wakeAt {
			return // superseded
		}
		n.wakeAt = 0
		n.step(ownership.Tick{})
	case evReply:
		n.answered(w.request(e.req))
	case evTimeout:
		req := w.request(e.req)
		if req.read {
			req.found = nil
		} else {
			req.outcome = ownership.Unknown
		}
		n.answered(req)
	case evWatch:
		n.read(stream(e.n))
	case evWarmed:
		if g := &n.gates[e.n]; g.gen == e.gen {
			g.pending, g.warm = false, true
			n.step(ownership.Warmed{ID: w.ids[e.n]})
		}
	case evDrained:
		if g := &n.gates[e.n]; g.gen == e.gen {
			n.work() // the last write of the last reconcile
			n.setGate(int(e.n), closed)
			n.step(ownership.Drained{ID: w.ids[e.n]})
		}
	case evCluster:
		n.step(w.knownClusters())
	}
}

// step feeds one input. Work goes on before and after it.
func (n *node) step(in ownership.Input) {
	w := n.w
	w.Steps++
	n.work()
	now := n.clock.read(w.now)
	effects := n.machine.Step(now, in)
	life := n.life
	for _, e := range effects {
		n.do(e)
		if n.life != life {
			return
		}
	}
	n.work()
	n.schedule(in, now, len(effects) > 0)
}

// schedule asks to be woken when the machine wants it.
func (n *node) schedule(in ownership.Input, now ownership.Instant, progress bool) {
	w := n.w
	wake := n.machine.Wake()
	if _, tick := in.(ownership.Tick); tick && !progress && wake <= now.Mono {
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

// do carries out one effect.
func (n *node) do(e ownership.Effect) {
	w := n.w
	if w.out != nil {
		n.narrate(e)
	}
	switch e := e.(type) {
	case ownership.Warm:
		i := w.shardIndex(e.ID)
		n.gates[i].pending = true
		n.later(evWarmed, i, n.warmTime+w.upTo(n.warmTime)+n.slowWarm)
	case ownership.Activate:
		i := w.shardIndex(e.ID)
		if !n.gates[i].warm {
			w.fail(n, "I3: serves %s before its caches are warm", e.ID)
		}
		n.gates[i].epoch = e.Epoch
		n.setGate(i, open)
	case ownership.Drain:
		i := w.shardIndex(e.ID)
		n.setGate(i, draining)
		n.later(evDrained, i, time.Millisecond+w.upTo(20*time.Millisecond)+n.slowDrain)
	case ownership.Close:
		i := w.shardIndex(e.ID)
		n.setGate(i, closed)
		n.gates[i].gen++
		n.gates[i].warm = false
	case ownership.Lapse:
		w.Lapses++
		n.memory = n.machine.Memory()
		n.stop()
		// Writes in flight end, then the process goes on under a new name.
		w.push(event{at: w.now + time.Millisecond + w.upTo(200*time.Millisecond), kind: evStart, node: int8(n.index)})
	case ownership.DropLease:
		w.send(n, e)
		n.stop()
		w.last = max(w.last, w.now+n.backIn)
		if n.backIn > 0 {
			w.push(event{at: w.now + n.backIn, kind: evStart, node: int8(n.index)})
		}
	case ownership.WriteShard:
		w.checkSend(n, e)
		w.send(n, e)
	default:
		w.send(n, e)
	}
}

func (n *node) later(kind eventKind, shard int, after time.Duration) {
	w := n.w
	at := w.now + after
	if !w.script && at > w.schedule.Faulty {
		at = min(at, max(w.now, w.schedule.Faulty)+50*time.Millisecond)
	}
	w.push(event{at: at, kind: kind, node: int8(n.index), life: n.life, n: int32(shard), gen: n.gates[shard].gen})
}

// pump sees to it that the watch shows what is new.
func (n *node) pump(s stream) {
	w := n.w
	if !n.up || n.pumping[s] || n.cursor[s] >= len(w.store.log[s]) {
		return
	}
	n.pumping[s] = true
	at := w.now + commitLatency + w.upTo(w.schedule.Lag)
	at = max(at, n.frozenTill[s])
	if n.w.now < n.cutTill || w.now < w.awayTill {
		at = max(at, n.cutTill, w.awayTill)
	}
	w.push(event{at: at, kind: evWatch, node: int8(n.index), life: n.life, n: int32(s)})
}

// read takes all that the watch has to show.
func (n *node) read(s stream) {
	w := n.w
	n.pumping[s] = false
	if w.now < n.frozenTill[s] || w.now < n.cutTill || w.now < w.awayTill {
		n.pump(s)
		return
	}
	n.frozenFrom[s] = 0
	life := n.life
	news := w.store.log[s][n.cursor[s]:]
	if n.relist[s] {
		n.relist[s] = false
		news = w.store.listing(s, len(w.store.log[s]), true)
	}
	n.cursor[s] = len(w.store.log[s])
	for _, in := range news {
		n.step(in)
		if n.life != life {
			return
		}
	}
}
