package engage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/must"
)

var quarter = keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(2)[1]}

// Begin lets a reconcile start that the test runs itself.
func (g *Gate) Begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	return g.begin(ctx, &passage{})
}

func newTestGate(t *testing.T) (*Gate, *atomic.Bool) {
	t.Helper()
	valid := &atomic.Bool{}
	valid.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return NewGate(ctx, quarter, "tenure/test", "a-1", valid.Load), valid
}

// openGate is the gate of a shard that is held.
func openGate(t *testing.T) *Gate {
	t.Helper()
	g, _ := newTestGate(t)
	g.Open(1)
	return g
}

func TestNothingPassesAGateThatIsShutOrWhoseLeaseHasRunOut(t *testing.T) {
	shut, _ := newTestGate(t)
	late, valid := newTestGate(t)
	late.Open(3)
	valid.Store(false)
	for name, g := range map[string]*Gate{"a shut gate": shut, "a gate whose lease has run out": late} {
		if _, _, ok := g.Begin(t.Context()); ok {
			t.Errorf("a reconcile began at %s", name)
		}
		if _, _, _, err := g.beginWrite(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("write through %s: got %v, want ErrFenced", name, err)
		}
	}
}

// A gate that stays open has nobody who looks at everything anew.
func TestAGateTellsOnceThatItHasLetNothingPassThoughItIsOpen(t *testing.T) {
	g, valid := newTestGate(t)
	g.IsOpen()
	g.Open(3)
	g.IsOpen()
	if g.Missed() {
		t.Error("it counts as missed what came before the gate was open")
	}
	for name, ask := range map[string]func() bool{
		"an event": g.IsOpen,
		"a reconcile": func() bool {
			_, _, ok := g.Begin(t.Context())
			return ok
		},
	} {
		valid.Store(false)
		if ask() || g.Missed() {
			t.Errorf("%s: something passes under a lease that has run out", name)
		}
		valid.Store(true)
		if !g.Missed() || g.Missed() {
			t.Errorf("%s: it isn't told of, or twice", name)
		}
	}
	valid.Store(false)
	g.IsOpen()
	valid.Store(true)
	g.Shut()
	if g.Missed() {
		t.Error("a gate that is shut tells of it")
	}
	if g.Open(4); g.Missed() {
		t.Error("whoever has opened the gate looks at everything anyway")
	}
}

func TestShutCancelsWhatRuns(t *testing.T) {
	g := openGate(t)
	ctx, end, ok := g.Begin(t.Context())
	if !ok {
		t.Fatal("no reconcile begins at an open gate")
	}
	defer end()
	g.Shut()
	<-ctx.Done()
}

func TestInterruptCancelsWhatRunsAndLeavesTheGateOpen(t *testing.T) {
	g, valid := newTestGate(t)
	g.Open(1)
	reconcile, end, _ := g.Begin(t.Context())
	write, done, release, err := g.beginWrite(context.Background())
	must.Succeed(t, err)
	g.Interrupt()
	if outlived(reconcile) || g.Missed() {
		t.Error("a lease that holds is interrupted")
	}
	valid.Store(false)
	g.Interrupt()
	<-reconcile.Done()
	<-write.Done()
	valid.Store(true)
	if _, _, _, err := g.beginWrite(reconcile); !errors.Is(err, ErrFenced) {
		t.Errorf("a write of a reconcile that was cancelled: got %v, want ErrFenced", err)
	}
	done(false)
	release()
	end()
	if !g.Missed() {
		t.Error("nobody is told that a reconcile was cancelled at an open gate")
	}
	again, end, ok := g.Begin(t.Context())
	if !ok || again.Err() != nil {
		t.Fatalf("the next reconcile begins: %v, its context: %v", ok, again.Err())
	}
	g.Shut()
	<-again.Done()
	end()
}

func TestDrainWaitsForRunningReconcilesAndTheirWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
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
		time.Sleep(writePatience / 2)
		done(true)
		release()
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
		const want = 2*time.Second + writePatience/2
		if took := time.Since(began); took != want {
			t.Errorf("drain took %v, want %v: until the last write was answered", took, want)
		}
		if ended := g.Ended().Sub(began); ended != want {
			t.Errorf("tenure ended after %v, want %v", ended, want)
		}
		if _, _, _, err := g.beginWrite(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("write after the drain: got %v, want ErrFenced", err)
		}
	})
}

func TestDrainWaitsForAWriteOutsideOfAnyReconcile(t *testing.T) {
	const never = time.Duration(-1)
	tests := map[string]struct {
		answered  time.Duration // after the drain began
		cancelled time.Duration // how long a write that was cancelled takes to return without an answer
		want      time.Duration
		quiet     bool // nothing of it can arrive any more
	}{
		"answered soon": {answered: writePatience / 2, want: writePatience / 2, quiet: true},
		"that hangs":    {answered: never, want: writePatience + ownership.WireTime, quiet: true},
		"that hangs and is slow to give up": {
			answered: never, cancelled: writeGrace / 2, want: writePatience + writeGrace/2 + ownership.WireTime, quiet: true,
		},
		"that never returns": {answered: never, cancelled: never, want: writePatience + writeGrace + ownership.WireTime},
	}
	for name, tt := range tests {
		bubble.Run(t, name, func(t *testing.T) {
			g := openGate(t)
			ctx, done, release, err := g.beginWrite(context.Background())
			must.Succeed(t, err)
			defer release()
			began := time.Now()
			go func() {
				if tt.answered != never {
					time.Sleep(tt.answered)
					if ctx.Err() != nil {
						t.Error("the write was cancelled before it was answered")
					}
					done(true)
					return
				}
				<-ctx.Done()
				if tt.cancelled != never {
					time.Sleep(tt.cancelled)
					done(false)
				}
			}()
			must.Succeed(t, g.Drain(t.Context(), time.Minute, time.Minute))
			if took := time.Since(began); took != tt.want {
				t.Errorf("drained after %v, want %v", took, tt.want)
			}
			if got := g.Quiet(t.Context()); got != tt.quiet {
				t.Errorf("quiet: %v, want %v", got, tt.quiet)
			}
		})
	}
}

// A request that was cancelled may be on its way still: whoever is next must not begin before it has arrived, or is
// lost.
func TestDrainWaitsForAWriteThatNobodyAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
		ctx, done, release, err := g.beginWrite(t.Context())
		must.Succeed(t, err)
		g.Shut()
		<-ctx.Done()
		done(false)
		release()
		given := time.Now()
		time.Sleep(ownership.WireTime / 4)
		must.Succeed(t, g.Drain(t.Context(), 0, time.Second))
		if waited := time.Since(given); waited != ownership.WireTime {
			t.Errorf("drained %v after the write was given up, want %v", waited, ownership.WireTime)
		}
		must.Succeed(t, g.Drain(t.Context(), 0, time.Second))
		if waited := time.Since(given); waited != ownership.WireTime {
			t.Errorf("drained again after %v: there was nothing to wait for any more", waited)
		}
		short, cancel := context.WithTimeout(t.Context(), ownership.WireTime/2)
		defer cancel()
		g.Open(2)
		_, done, release, err = g.beginWrite(t.Context())
		must.Succeed(t, err)
		done(false)
		release()
		if err := g.Drain(short, 0, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain without the time for it: %v, want its context's error", err)
		}
	})
}

func TestDrainCancelsWhatOverstaysAndCanBeReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
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

func TestAReconcileThatNeverReturnsCostsItsGateOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
		traffic, release := &Traffic{}, make(chan struct{})
		var stuck context.Context
		ran := make(chan Result, 1)
		go func() {
			ran <- g.Run(t.Context(), traffic, func(ctx context.Context) {
				stuck = context.WithoutCancel(ctx) // it ignores that its context ends, also when it writes
				<-release
			})
		}()
		synctest.Wait()
		began := time.Now()
		if err := g.Drain(t.Context(), 20*time.Second, ReturnGrace); err != nil {
			t.Fatalf("drain: %v", err)
		}
		if took := time.Since(began); took != 20*time.Second+ReturnGrace {
			t.Errorf("drained after %v", took)
		}
		if got := <-ran; got != Abandoned || traffic.Abandoned.Load() != 1 {
			t.Errorf("got %v with %d abandoned, want Abandoned and one", got, traffic.Abandoned.Load())
		}
		g.Open(2) // the shard comes back
		onlyTheNextWrites(t, g, traffic, stuck)
		close(release)
		synctest.Wait()
		if n := traffic.Abandoned.Load(); n != 0 {
			t.Errorf("%d counted as abandoned after all have returned", n)
		}
	})
}

// onlyTheNextWrites checks that a reconcile that was abandoned can't write, and that the next one can.
func onlyTheNextWrites(t *testing.T, g *Gate, traffic *Traffic, abandoned context.Context) {
	t.Helper()
	if _, _, _, err := g.beginWrite(abandoned); !errors.Is(err, ErrFenced) {
		t.Errorf("a write of the reconcile that was abandoned: %v, want ErrFenced", err)
	}
	again := g.Run(t.Context(), traffic, func(ctx context.Context) {
		_, done, end, err := g.beginWrite(context.WithoutCancel(ctx))
		if err != nil {
			t.Errorf("a write of the next one: %v", err)
			return
		}
		done(true)
		end()
	})
	if again != Returned {
		t.Errorf("the next one: %v", again)
	}
}

func TestAPanicOfAnAbandonedReconcileIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
		var logged []string
		ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), funcr.New(func(_, args string) {
			logged = append(logged, args)
		}, funcr.Options{})))
		cancel()
		release := make(chan struct{})
		if ran := g.Run(ctx, &Traffic{}, func(context.Context) { <-release; panic("at last") }); ran != Abandoned {
			t.Fatalf("got %v, want Abandoned", ran)
		}
		close(release)
		synctest.Wait()
		if len(logged) != 1 || !strings.Contains(logged[0], "at last") {
			t.Errorf("logged: %q", logged)
		}
	})
}

// A reconcile may have a timeout of its own, of which its tenure knows nothing.
func TestAReconcileThatOutlivesItsTimeoutCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
		traffic, release := &Traffic{}, make(chan struct{})
		defer close(release)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var stuck context.Context
		ran := g.Run(ctx, traffic, func(ctx context.Context) {
			stuck = context.WithoutCancel(ctx)
			<-release
		})
		if ran != Abandoned {
			t.Fatalf("got %v, want Abandoned", ran)
		}
		synctest.Wait() // orders what it wrote before what is read
		onlyTheNextWrites(t, g, traffic, stuck)
	})
}

func TestAReconcileThatReturnsLateIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
		time.AfterFunc(time.Second, g.Shut)
		traffic, returned := &Traffic{}, false
		got := g.Run(t.Context(), traffic, func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(ReturnGrace - 1)
			returned = true
		})
		if got != Returned || !returned || traffic.Abandoned.Load() != 0 {
			t.Errorf("got %v, returned: %v, %d abandoned", got, returned, traffic.Abandoned.Load())
		}
	})
}

func TestAPanicReachesTheWorker(t *testing.T) {
	g := openGate(t)
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "boom") || !strings.Contains(p, "gate_test.go") {
			t.Errorf("the worker gets %q, want the panic and where it was", p)
		}
		if g.running != 0 {
			t.Error("it counts as running for ever")
		}
	}()
	g.Run(t.Context(), &Traffic{}, func(context.Context) { panic("boom") })
}

func TestAnIdleGateEndsItsTenureWhenTheDrainBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t)
		_, end, _ := g.Begin(t.Context())
		end()
		time.Sleep(time.Hour)
		must.Succeed(t, g.Drain(t.Context(), time.Second, time.Second))
		if since := time.Since(g.Ended()); since != 0 {
			t.Errorf("the tenure ended %v ago, want now: not with its last reconcile an hour ago", since)
		}
	})
}
