package engage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// ErrFenced is returned for a write of a shard that this replica doesn't hold (any more). The work belongs to another
// replica now: give up, don't retry.
var ErrFenced = errors.New("shard isn't held by this replica")

// ErrStuck is returned by [Gate.Drain] when a reconcile didn't end though its context was cancelled.
var ErrStuck = errors.New("a reconcile doesn't return though its context was cancelled")

// Gate is what lets reconciles and writes of one shard through. It is safe for concurrent use.
type Gate struct {
	shard   keyspace.ShardID
	agent   string      // User-Agent prefix: program and version
	replica string      // incarnation
	valid   func() bool // does the incarnation's lease allow acting, at this very moment
	parent  context.Context

	mu        sync.Mutex // guards all below; held for a few instructions only
	ctx       context.Context
	cancel    context.CancelFunc // ends what runs in the tenure
	state     gateState
	epoch     ownership.Epoch
	userAgent string
	running   int           // reconciles begun and not ended
	writes    int           // mutating requests sent and not answered
	fenced    uint64        // writes refused
	changed   chan struct{} // closed and replaced when running or writes fall while somebody waits
	closing   time.Time     // when draining began
	lastEnd   time.Time     // when a reconcile or a write last ended
	astray    time.Time     // when a write was last given up without an answer
}

type gateState uint8

const (
	gateShut     gateState = iota // nothing passes
	gateOpen                      // reconciles begin, writes pass
	gateDraining                  // no reconcile begins, writes of the running ones pass
)

// NewGate returns a shut gate. The context bounds everything that runs through it; valid is asked at every passage.
func NewGate(ctx context.Context, shard keyspace.ShardID, agent, replica string, valid func() bool) *Gate {
	g := &Gate{shard: shard, agent: agent, replica: replica, valid: valid, parent: ctx, changed: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.userAgent = fmt.Sprintf("%s (shard=%s; incarnation=%s)", agent, shard, replica)
	return g
}

// Open lets reconciles and writes pass, as the given tenure.
func (g *Gate) Open(epoch ownership.Epoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil { // an earlier drain had to cancel what ran
		g.ctx, g.cancel = context.WithCancel(g.parent)
	}
	g.state, g.epoch = gateOpen, epoch
	g.userAgent = fmt.Sprintf("%s (shard=%s; epoch=%d; incarnation=%s)", g.agent, g.shard, epoch, g.replica)
}

// Shut stops everything at once: nothing passes any more, and what runs is cancelled. It doesn't wait; see [Gate.Quiet].
func (g *Gate) Shut() {
	g.mu.Lock()
	g.state = gateShut
	cancel := g.cancel
	g.mu.Unlock()
	cancel()
}

// Begin lets a reconcile start. It returns a context that ends with ctx or with the tenure, and a function to call when
// the reconcile has returned; ok is false when the shard isn't open.
func (g *Gate) Begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	g.mu.Lock()
	if g.state != gateOpen || !g.valid() {
		g.mu.Unlock()
		return nil, nil, false
	}
	g.running++
	tenure := g.ctx
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(tenure, cancel)
	return ctx, func() {
		stop()
		cancel()
		g.leave(&g.running)
	}, true
}

// onTheWire is for how long a write that was given up without an answer may still reach its API server. It can't be
// known; what comes later than this meets the preconditions of the writes themselves.
const onTheWire = time.Second

// beginWrite lets a mutating request pass. Its context ends with ctx or with the tenure; done is to be called when it
// was answered, or given up; release when nothing of the answer is needed any more.
func (g *Gate) beginWrite(ctx context.Context) (_ context.Context, done func(answered bool), release func(), err error) {
	g.mu.Lock()
	if g.state == gateShut || !g.valid() {
		g.fenced++
		g.mu.Unlock()
		return nil, nil, nil, fmt.Errorf("%w: %s at %s", ErrFenced, g.shard, g.replica)
	}
	g.writes++
	tenure := g.ctx
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(tenure, cancel)
	done = func(answered bool) {
		if !answered {
			g.mu.Lock()
			g.astray = time.Now()
			g.mu.Unlock()
		}
		g.leave(&g.writes)
	}
	return ctx, done, func() { stop(); cancel() }, nil
}

// leave counts one passage as ended and wakes whoever waits for the gate to be quiet.
func (g *Gate) leave(count *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*count--
	g.lastEnd = time.Now()
	if g.state != gateOpen {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// Drain ends the tenure in order: no key starts any more, running reconciles end by themselves within patience, else
// are cancelled and get grace to return; then the fence closes, and it returns when no write is in flight. It fails
// with [ErrStuck] when a reconcile still runs after that, or with the context's error.
func (g *Gate) Drain(ctx context.Context, patience, grace time.Duration) error {
	g.mu.Lock()
	if g.state == gateOpen {
		g.state, g.closing = gateDraining, time.Now()
	}
	g.mu.Unlock()
	noneRuns := func() bool { return g.running == 0 }
	if !g.await(ctx, patience, noneRuns) {
		g.mu.Lock()
		cancel := g.cancel
		g.mu.Unlock()
		cancel()
		if !g.await(ctx, grace, noneRuns) {
			return errors.Join(fmt.Errorf("draining shard %s: %w", g.shard, ErrStuck), ctx.Err())
		}
	}
	g.mu.Lock()
	g.state = gateShut
	g.mu.Unlock()
	if err := g.Quiet(ctx, grace); err != nil {
		return err
	}
	return g.settle(ctx)
}

// settle waits until no write that was given up can be on the wire any more: the next holder's must come after it.
func (g *Gate) settle(ctx context.Context) error {
	g.mu.Lock()
	left := onTheWire - time.Since(g.astray)
	g.mu.Unlock()
	g.await(ctx, left, func() bool { return time.Since(g.astray) >= onTheWire })
	return ctx.Err()
}

// Quiet waits until no write is in flight. Call it with the gate shut.
func (g *Gate) Quiet(ctx context.Context, patience time.Duration) error {
	if !g.await(ctx, patience, func() bool { return g.writes == 0 }) {
		return errors.Join(fmt.Errorf("waiting for writes of shard %s: %w", g.shard, ErrStuck), ctx.Err())
	}
	return nil
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
	return g.state == gateOpen && g.valid()
}

// Fenced returns how many writes were refused.
func (g *Gate) Fenced() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fenced
}

// Ended returns when a drained gate's tenure ended: with its last reconcile or write, or when the drain began if nothing
// ran then. It is zero if the gate was never drained.
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
