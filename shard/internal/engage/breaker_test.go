package engage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestARequestToASilentClusterIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		w := b.watchOver(t.Context(), "", stallAfter, inquiry{})
		defer w.end()
		ctx := w.ctx
		began := time.Now()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrStalled) {
			t.Errorf("cause: got %v, want ErrStalled", context.Cause(ctx))
		}
		if !errors.Is(ErrStalled, context.DeadlineExceeded) {
			t.Error("reconcilers don't take it for a timeout")
		}
		if took := time.Since(began); took != stallAfter {
			t.Errorf("given up after %v, want %v", took, stallAfter)
		}
	})
}

func TestASlowRequestIsWaitedForWhileTheClusterAnswersOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		w := b.watchOver(t.Context(), "", stallAfter, inquiry{})
		defer w.end()
		ctx := w.ctx
		for range 20 {
			time.Sleep(time.Second)
			b.alive("")
		}
		if ctx.Err() != nil {
			t.Fatalf("given up though the cluster answers: %v", context.Cause(ctx))
		}
		time.Sleep(stallAfter)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("not given up after the cluster fell silent")
		}
	})
}

// The timer may go off while the answer arrives. If it was set anew it would go on for as long as the cluster answers
// anything.
func TestARequestIsNotWatchedOverOnceItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		w := b.watchOver(t.Context(), "", stallAfter, inquiry{})
		time.Sleep(stallAfter - time.Second)
		b.alive("")
		w.end()
		w.look()
		if w.timer.Stop() {
			t.Error("its timer is running")
		}
		if cause := context.Cause(w.ctx); !errors.Is(cause, context.Canceled) {
			t.Errorf("it ended by %v", cause)
		}
	})
}

func TestOneLostConnectionIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		b.alive("")
		b.failed()
		if b.wait("shop") != 0 {
			t.Error("put off though the cluster answered just now")
		}
	})
}

func TestAFailedClusterIsLeftAloneForPausesThatDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{}
		if b.wait("shop") != 0 {
			t.Fatal("a cluster that never failed is put off")
		}
		for _, want := range []time.Duration{1, 2, 4, 4, 4} {
			b.failed()
			b.failed() // fails together with the first, and counts once
			if got := b.wait("shop"); got != want*time.Second {
				t.Errorf("put off for %v, want %v", got, want*time.Second)
			}
			time.Sleep(want * time.Second)
			if got := b.wait("shop"); got != 0 {
				t.Errorf("nobody is let through after the pause: %v to go", got)
			}
			if got := b.wait("shop"); got == 0 {
				t.Error("a second one is let through beside the first")
			}
			time.Sleep(want * time.Second)
		}
		b.alive("")
		if b.wait("shop") != 0 {
			t.Error("still put off after an answer")
		}
	})
}

// wait is for how long a key is put off.
func (b *Breaker) wait(namespace string) time.Duration {
	wait, _ := b.PutOff(namespace, false)
	return wait
}
