package turnstile

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestPlacesAreGivenBackByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := &Turnstile{}
		if err := turn.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			go turn.Leave()
			if turn.Enter(ctx, 1) != nil { // whichever came first
				if err := turn.Enter(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			synctest.Wait()
			if inside, waiting := turn.Count(); inside != 1 || waiting != 0 {
				t.Fatalf("%d inside, %d wait", inside, waiting)
			}
		}
	})
}
