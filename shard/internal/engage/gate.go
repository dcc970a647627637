package engage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// ErrFenced is returned for a write of a shard that this replica doesn't hold, or doesn't hold any more. The work
// belongs to another replica now: give up, don't retry.
var ErrFenced = errors.New("shard isn't held by this replica")

// Gate lets the reconciles and writes of one shard through, or not. It is safe for concurrent use.
type Gate struct {
	shard       keyspace.ShardID
	agent       string // User-Agent prefix: program and version
	incarnation string
	valid       func() bool // reports whether the incarnation's lease allows acting at this very moment
	parent      context.Context
	spare       chan *run // hands reconciles to goroutines that wait for one

	mu        sync.Mutex // guards all below; held for a few instructions only
	ctx       context.Context
	cancel    context.CancelFunc // ends what runs in the tenure
	state     gateState
	epoch     ownership.Epoch
	userAgent string
	running   int           // reconciles begun and not ended
	writes    int           // mutating requests sent and not answered
	changed   chan struct{} // closed and replaced when running or writes fall while the gate isn't open
	closing   time.Time     // when draining began
	lastEnd   time.Time     // when a reconcile or a write last ended
	givenUpAt time.Time     // when a write was last given up without an answer
	unwritten int           // events that recorders were given, and didn't write yet
	lastGiven time.Time     // when they were last given one
	missed    bool          // it was open, and let nothing pass because the lease seemed to have run out
}

type gateState uint8

const (
	gateShut     gateState = iota // nothing passes
	gateOpen                      // reconciles begin, writes pass
	gateDraining                  // no reconcile begins, writes of the running ones pass
)

// NewGate returns a shut gate. The context bounds everything that runs through it; valid is asked at every passage.
func NewGate(ctx context.Context, shard keyspace.ShardID, agent, incarnation string, valid func() bool) *Gate {
	g := &Gate{shard: shard, agent: agent, incarnation: incarnation, valid: valid, parent: ctx,
		spare: make(chan *run), changed: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.userAgent = fmt.Sprintf("%s (shard=%s; incarnation=%s)", agent, shard, incarnation)
	return g
}

// Open lets reconciles and writes pass, as the given tenure.
func (g *Gate) Open(epoch ownership.Epoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil { // that of an earlier tenure
		g.ctx, g.cancel = context.WithCancel(g.parent)
	}
	g.state, g.epoch, g.missed = gateOpen, epoch, false
	g.userAgent = fmt.Sprintf("%s (shard=%s; epoch=%d; incarnation=%s)", g.agent, g.shard, epoch, g.incarnation)
}

// Shut stops everything at once: nothing passes any more, and what runs is cancelled. It doesn't wait; see
// [Gate.Quiet].
func (g *Gate) Shut() {
	g.mu.Lock()
	g.state = gateShut
	g.mu.Unlock()
	g.end()
}

// Interrupt cancels what runs if the lease seems to have run out: a write may be waiting for its connection. The gate
// stays open. If the lease goes on after all (see [Gate.Missed]), what begins then isn't cancelled. The lease may have
// been renewed as Interrupt was called, or the gate be the next incarnation's: then it does nothing.
func (g *Gate) Interrupt() {
	g.mu.Lock()
	if g.valid() {
		g.mu.Unlock()
		return
	}
	cancel := g.cancel
	if g.state == gateOpen {
		g.ctx, g.cancel = context.WithCancel(g.parent)
		g.missed = g.missed || g.running > 0
	}
	g.mu.Unlock()
	cancel()
}

// begin lets a reconcile start. It returns a context that ends with ctx or with the tenure, and a function to call when
// the reconcile has returned; ok is false when the shard isn't open.
func (g *Gate) begin(ctx context.Context, p *passage) (_ context.Context, end func(), ok bool) {
	g.mu.Lock()
	if !g.passes() {
		g.mu.Unlock()
		return nil, nil, false
	}
	g.running++
	p.tenure = g.ctx
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.tenure, cancel)
	return context.WithValue(ctx, passageKey{}, p), func() {
		stop()
		cancel()
		g.leave(&g.running)
	}, true
}

// passage is a reconcile's way through a gate. Its context carries it to the transport.
type passage struct {
	tenure    context.Context // that it began in
	abandoned atomic.Bool     // its worker doesn't wait for it any more
}

// passageKey is the key of a passage in a context.
type passageKey struct{}

// outlived reports whether the context belongs to a reconcile whose tenure has ended, or that was abandoned.
func outlived(ctx context.Context) bool {
	p, ok := ctx.Value(passageKey{}).(*passage)
	return ok && (p.tenure.Err() != nil || p.abandoned.Load())
}

// beginWrite lets a mutating request pass. Its context ends with ctx or with the tenure. Call done when the request
// was answered or given up, and release when the answer isn't needed any more.
func (g *Gate) beginWrite(ctx context.Context) (_ context.Context, done func(answered bool),
	release func(), err error) {
	g.mu.Lock()
	if g.state == gateShut || !g.valid() || outlived(ctx) {
		g.mu.Unlock()
		return nil, nil, nil, fmt.Errorf("%w: %s at %s", ErrFenced, g.shard, g.incarnation)
	}
	g.writes++
	tenure := g.ctx
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(tenure, cancel)
	done = func(answered bool) {
		if !answered {
			g.mu.Lock()
			g.givenUpAt = time.Now()
			g.mu.Unlock()
		}
		g.leave(&g.writes)
	}
	return ctx, done, func() { stop(); cancel() }, nil
}

// leave counts one passage as ended, and wakes those that wait for the gate to be quiet.
func (g *Gate) leave(count *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*count--
	g.lastEnd = time.Now()
	g.wake()
}

// wake wakes those that wait for the gate to be quiet. Call it with the lock held.
func (g *Gate) wake() {
	if g.state != gateOpen {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// eventGiven counts an event that a recorder is given, and eventWritten one that was written, or that can't be.
// Recorders write from goroutines of their own, and drop some events: those don't count for longer than eventPatience.
func (g *Gate) eventGiven() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Sub(g.lastGiven) > eventPatience {
		g.unwritten = 0
	}
	g.unwritten, g.lastGiven = g.unwritten+1, now
}

func (g *Gate) eventWritten() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unwritten = max(0, g.unwritten-1)
	g.wake()
}

// Bounds for the end of a tenure.
const (
	// eventPatience is how long events that reconciles told may take to be written once no reconcile runs.
	eventPatience = 50 * time.Millisecond
	// writePatience is how long writes outside of reconciles, such as events, may take once no reconcile runs.
	writePatience = 500 * time.Millisecond
	// writeGrace is how long a write whose context was cancelled may take to return.
	writeGrace = time.Second
)

// Drain ends the tenure in order. No key starts any more. Running reconciles may end by themselves within patience;
// after that they are cancelled and get grace to return. Events that they told get eventPatience. Then the fence closes
// for good: a reconcile that still hasn't returned can't write any more. Writes in flight get writePatience, and
// writeGrace after they are cancelled. If one ended without an answer, Drain waits until it can't be on the wire any
// more. Drain fails only with the context's error.
func (g *Gate) Drain(ctx context.Context, patience, grace time.Duration) error {
	g.mu.Lock()
	if g.state == gateOpen {
		g.state, g.closing = gateDraining, time.Now()
	}
	g.mu.Unlock()
	noneRuns := func() bool { return g.running == 0 }
	if !g.await(ctx, patience, noneRuns) {
		g.end()
		g.await(ctx, grace, noneRuns)
	}
	g.mu.Lock()
	left := eventPatience - time.Since(g.lastGiven)
	g.mu.Unlock()
	g.await(ctx, left, func() bool { return g.unwritten == 0 })
	g.mu.Lock()
	g.state, g.unwritten = gateShut, 0
	g.mu.Unlock()
	g.await(ctx, writePatience, g.noneWrites)
	g.end()
	if !g.await(ctx, writeGrace, g.noneWrites) {
		g.mu.Lock()
		g.givenUpAt = time.Now()
		g.mu.Unlock()
	}
	return g.settle(ctx)
}

// Quiet waits, with the gate shut, until no write is in flight or on the wire. It returns false if a write doesn't
// return although it was cancelled, or if the context ends first.
func (g *Gate) Quiet(ctx context.Context) bool {
	return g.await(ctx, writeGrace, g.noneWrites) && g.settle(ctx) == nil
}

// noneWrites reports whether no write is in flight. Call it with the lock held.
func (g *Gate) noneWrites() bool { return g.writes == 0 }

// end cancels all that runs in the tenure.
func (g *Gate) end() {
	g.mu.Lock()
	cancel := g.cancel
	g.mu.Unlock()
	cancel()
}

// settle waits until no write that was given up can be on the wire any more: the next holder's writes must come after
// it.
func (g *Gate) settle(ctx context.Context) error {
	g.mu.Lock()
	left := ownership.WireTime - time.Since(g.givenUpAt)
	g.mu.Unlock()
	g.await(ctx, left, func() bool { return time.Since(g.givenUpAt) >= ownership.WireTime })
	return ctx.Err()
}

// await waits, at most for patience, until done holds; done is called with the lock held.
func (g *Gate) await(ctx context.Context, patience time.Duration, done func() bool) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		g.mu.Lock()
		ok, changed := done(), g.changed
		g.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// Epoch returns the epoch that the gate was last opened with.
func (g *Gate) Epoch() ownership.Epoch {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.epoch
}

// Shard returns the shard whose gate it is.
func (g *Gate) Shard() keyspace.ShardID { return g.shard }

// IsOpen reports whether reconciles may begin now.
func (g *Gate) IsOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passes()
}

// passes reports whether reconciles may begin now. Call it with the lock held.
func (g *Gate) passes() bool {
	if g.state != gateOpen {
		return false
	}
	valid := g.valid()
	g.missed = g.missed || !valid
	return valid
}

// Missed reports whether the gate has dropped something although it is open: the lease seemed to have run out,
// because a clock was set, or because a renewal that had come in time wasn't recorded yet. Such a gate isn't opened
// again, so the caller must enqueue again what was dropped. After it returned true, Missed starts over.
func (g *Gate) Missed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.missed || !g.passes() {
		return false
	}
	g.missed = false
	return true
}

// Ended returns when a drained gate's tenure ended: with its last reconcile or write, or when the drain began if
// nothing ran then. It is zero if the gate was never drained.
func (g *Gate) Ended() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lastEnd.After(g.closing) && !g.closing.IsZero() {
		return g.lastEnd
	}
	return g.closing
}

func (g *Gate) agentNow() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.userAgent
}
