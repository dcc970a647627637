package engage

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ReturnGrace is how long a reconcile may take to return once its context has ended. Then its worker goes on without
// it.
const ReturnGrace = 5 * time.Second

// Result is what became of a reconcile at a gate.
type Result uint8

const (
	// Refused: the gate isn't open, so the reconcile didn't begin.
	Refused Result = iota
	// Returned: the reconcile began and returned.
	Returned
	// Abandoned: its context ended and it didn't return. It may run for ever, but its writes are refused from now on,
	// whether or not the gate is open.
	Abandoned
)

// Run lets a reconcile through the gate, with a context that ends with ctx or with the tenure. The reconcile runs in
// another goroutine, since Go can't stop one that doesn't return: Run returns without it ReturnGrace after its
// context ended. traffic counts abandoned reconciles for as long as they run.
func (g *Gate) Run(ctx context.Context, traffic *Traffic, reconcile func(context.Context)) Result {
	r := &run{reconcile: reconcile}
	ctx, end, ok := g.begin(ctx, &r.passage)
	if !ok {
		return Refused
	}
	defer end()
	r.ctx, r.done = ctx, make(chan struct{})
	select {
	case g.spare <- r:
	default:
		go g.serve(r)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if !r.returns(ReturnGrace) {
			r.abandoned.Store(true) // fences its writes, even if its tenure goes on
			traffic.Abandoned.Add(1)
			go func() {
				<-r.done
				traffic.Abandoned.Add(-1)
				if r.panicked != nil { // nobody else hears of it
					log.FromContext(r.ctx).Error(nil, "a reconcile that had been abandoned panicked", "panic", r.panicked)
				}
			}()
			return Abandoned
		}
	}
	if r.panicked != nil {
		panic(r.panicked) // the worker decides what a panic does
	}
	return Returned
}

// idleFor is how long a goroutine waits for another reconcile.
const idleFor = 5 * time.Second

// serve runs a reconcile, and then others of the gate for as long as they come. A new goroutine for each would begin
// with a small stack, and copy it several times until a request fits.
func (g *Gate) serve(r *run) {
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for {
		r.do()
		timer.Reset(idleFor)
		select {
		case r = <-g.spare:
		case <-timer.C:
			return
		case <-g.parent.Done():
			return
		}
	}
}

// run is one reconcile in a goroutine of the gate's.
type run struct {
	passage
	ctx       context.Context
	reconcile func(context.Context)
	done      chan struct{} // closed when it has returned
	panicked  any           // set before done is closed
}

func (r *run) do() {
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		}
	}()
	r.reconcile(r.ctx)
}

// returns waits for the reconcile, and reports whether it returned in time.
func (r *run) returns(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}
