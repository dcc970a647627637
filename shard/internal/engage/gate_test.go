package engage

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

var quarter = keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(2)[1]}

func newTestGate(t *testing.T) (*Gate, *atomic.Bool) {
	t.Helper()
	valid := &atomic.Bool{}
	valid.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return NewGate(ctx, quarter, "tenure/test", "a-1", valid.Load), valid
}

func TestNothingPassesAShutGate(t *testing.T) {
	g, _ := newTestGate(t)
	if _, _, ok := g.Begin(t.Context()); ok {
		t.Error("a reconcile began though the gate was never opened")
	}
	if _, _, _, err := g.beginWrite(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("write through a shut gate: got %v, want ErrFenced", err)
	}
	if got := g.Fenced(); got != 1 {
		t.Errorf("fenced writes: got %d, want 1", got)
	}
}

func TestNothingPassesAnOpenGateOnceTheLeaseHasRunOut(t *testing.T) {
	g, valid := newTestGate(t)
	g.Open(3)
	valid.Store(false)
	if _, _, ok := g.Begin(t.Context()); ok {
		t.Error("a reconcile began under a lease that has run out")
	}
	if _, _, _, err := g.beginWrite(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("write under a lease that has run out: got %v, want ErrFenced", err)
	}
}

func TestShutCancelsWhatRuns(t *testing.T) {
	g, _ := newTestGate(t)
	g.Open(1)
	ctx, end, ok := g.Begin(t.Context())
	if !ok {
		t.Fatal("no reconcile begins at an open gate")
	}
	defer end()
	g.Shut()
	<-ctx.Done()
}

func TestDrainWaitsForRunningReconcilesAndTheirWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGate(t)
		g.Open(1)
		_, end, _ := g.Begin(t.Context())
		drained := make(chan error, 1)
		began := time.Now()
		go func() { drained <- g.Drain(t.Context(), time.Minute, time.Second) }()
		synctest.Wait()
		if _, _, ok := g.Begin(t.Context()); ok {
			t.Error("a reconcile began while the gate was draining")
		}
		_, done, release, err := g.beginWrite(t.Context())
		if err != nil {
			t.Fatalf("a running reconcile can't write while the gate drains: %v", err)
		}
		time.Sleep(2 * time.Second)
		end()
		time.Sleep(500 * time.Millisecond)
		done(true)
		release()
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(began); took != 2500*time.Millisecond {
			t.Errorf("drain took %v, want 2.5s: until the last write was answered", took)
		}
		if ended := g.Ended().Sub(began); ended != 2500*time.Millisecond {
			t.Errorf("tenure ended after %v, want 2.5s", ended)
		}
		if _, _, _, err := g.beginWrite(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("write after the drain: got %v, want ErrFenced", err)
		}
	})
}

// A request that was cancelled may be on its way still: whoever is next must not begin before it has arrived, or is lost.
func TestDrainWaitsForAWriteOutsideOfAnyReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGate(t)
		g.Open(1)
		_, done, release, err := g.beginWrite(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		began := time.Now()
		time.AfterFunc(time.Second, func() { done(true) })
		if err := g.Drain(t.Context(), 0, time.Minute); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("drained after %v, and the write was answered after a second", waited)
		}
	})
}

func TestDrainWaitsForAWriteThatNobodyAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGate(t)
		g.Open(1)
		ctx, done, release, err := g.beginWrite(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.Shut()
		<-ctx.Done()
		done(false)
		release()
		given := time.Now()
		time.Sleep(onTheWire / 4)
		if err := g.Drain(t.Context(), 0, time.Second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(given); waited != onTheWire {
			t.Errorf("drained %v after the write was given up, want %v", waited, onTheWire)
		}
		if err := g.Drain(t.Context(), 0, time.Second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(given); waited != onTheWire {
			t.Errorf("drained again after %v: there was nothing to wait for any more", waited)
		}
		short, cancel := context.WithTimeout(t.Context(), onTheWire/2)
		defer cancel()
		g.Open(2)
		_, done, release, err = g.beginWrite(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done(false)
		release()
		if err := g.Drain(short, 0, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain without the time for it: %v, want its context's error", err)
		}
	})
}

func TestDrainCancelsWhatOverstaysAndCanBeReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGate(t)
		g.Open(1)
		ctx, end, _ := g.Begin(t.Context())
		go func() {
			<-ctx.Done()
			end()
		}()
		if err := g.Drain(t.Context(), 20*time.Second, 5*time.Second); err != nil {
			t.Fatalf("drain: %v", err)
		}
		g.Open(1)
		again, end, ok := g.Begin(t.Context())
		if !ok || again.Err() != nil {
			t.Error("a reopened gate lets nothing run")
		}
		end()
	})
}

func TestDrainReportsAReconcileThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGate(t)
		g.Open(1)
		_, end, _ := g.Begin(t.Context())
		defer end()
		if err := g.Drain(t.Context(), 20*time.Second, 5*time.Second); !errors.Is(err, ErrStuck) {
			t.Errorf("drain of a stuck reconcile: got %v, want ErrStuck", err)
		}
	})
}

func TestAnIdleGateEndsItsTenureWhenTheDrainBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGate(t)
		g.Open(1)
		_, end, _ := g.Begin(t.Context())
		end()
		time.Sleep(time.Hour)
		if err := g.Drain(t.Context(), time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
		if since := time.Since(g.Ended()); since != 0 {
			t.Errorf("the tenure ended %v ago, want now: not with its last reconcile an hour ago", since)
		}
	})
}

func BenchmarkGateBeginEnd(b *testing.B) {
	g := NewGate(context.Background(), quarter, "tenure/test", "a-1", func() bool { return true })
	g.Open(1)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, end, _ := g.Begin(ctx)
		end()
	}
}
