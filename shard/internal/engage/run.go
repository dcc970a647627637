package engage

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// ReturnGrace is how long a reconcile may take to return once its context has ended. Then its worker is given back to
// the others.
const ReturnGrace = 5 * time.Second

// Result is how a reconcile went through a gate.
type Result uint8

const (
	// Refused: the gate isn't open, so the reconcile didn't begin.
	Refused Result = iota
	// Returned: the reconcile began and returned.
	Returned
	// Abandoned: its context ended and it didn't return. It may run for ever, but its writes are refused from now on, also
	// when the gate is opened again.
	Abandoned
)

// Run lets a reconcile through the gate, with a context that ends with ctx or with the tenure. It runs in a goroutine of
// its own, since Go can't stop one that doesn't return: Run returns after ReturnGrace without it. traffic counts those
// that were abandoned, for as long as they run.
func (g *Gate) Run(ctx context.Context, traffic *Traffic, reconcile func(context.Context)) Result {
	ctx, end, ok := g.Begin(ctx)
	if !ok {
		return Refused
	}
	defer end()
	run := &running{done: make(chan struct{})}
	go run.do(ctx, reconcile)
	select {
	case <-run.done:
	case <-ctx.Done():
		if !run.returns(ReturnGrace) {
			traffic.Abandoned.Add(1)
			go func() {
				<-run.done
				traffic.Abandoned.Add(-1)
			}()
			return Abandoned
		}
	}
	if run.panicked != nil {
		panic(run.panicked) // the worker decides what a panic does
	}
	return Returned
}

// running is one reconcile in its goroutine.
type running struct {
	done     chan struct{} // closed when it has returned
	panicked any           // set before
}

func (r *running) do(ctx context.Context, reconcile func(context.Context)) {
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		}
	}()
	reconcile(ctx)
}

// returns waits for the reconcile, and reports whether it returned in time.
func (r *running) returns(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}
