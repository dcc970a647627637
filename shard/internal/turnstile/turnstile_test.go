package turnstile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

func TestPlacesAreGivenBackByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := &Turnstile{}
		must.Succeed(t, turn.Enter(t.Context(), 1))
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			go turn.Leave()
			if turn.Enter(ctx, 1) != nil { // whichever came first
				must.Succeed(t, turn.Enter(t.Context(), 1))
			}
			cancel()
			synctest.Wait()
			if inside, waiting := turn.Count(); inside != 1 || waiting != 0 {
				t.Fatalf("%d inside, %d wait", inside, waiting)
			}
		}
	})
}

func TestATurnEndsByItselfAndOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, late := &Turnstile{}, false
		first, err := turn.Turn(t.Context(), 1, time.Second, func() { late = true })
		must.Succeed(t, err)
		began := time.Now()
		second, err := turn.Turn(t.Context(), 1, time.Hour, nil)
		if took := time.Since(began); err != nil || took != time.Second || !late {
			t.Errorf("the next turn comes after %v (%v), want %v; it was said that the one before is late: %v", took, err,
				time.Second, late)
		}
		first()
		if inside, _ := turn.Count(); inside != 1 {
			t.Errorf("%d inside after the first one's turn was given back again, want 1", inside)
		}
		second()
		if inside, _ := turn.Count(); inside != 0 {
			t.Errorf("%d inside at the end", inside)
		}
	})
}
