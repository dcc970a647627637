package engage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

// A cluster's shards fill their caches a few at a time, in turn. One that is never filled holds the others up for a
// while, and not for good; one that isn't wanted any more gives its place up.
func TestShardsFillTheirCachesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var traffic Traffic
		ctx := t.Context()
		var first []func()
		for range fillsAtOnce {
			done, err := traffic.Fill(ctx)
			must.Succeed(t, err)
			first = append(first, done)
		}
		began := time.Now()
		await := func(want time.Duration) func() {
			t.Helper()
			done, err := traffic.Fill(ctx)
			if took := time.Since(began); err != nil || took != want {
				t.Errorf("a turn after %v (%v), want %v", took, err, want)
			}
			return done
		}
		unwanted, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := traffic.Fill(unwanted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a turn of a shard that isn't wanted any more: %v", err)
		}
		time.AfterFunc(time.Second, first[0])
		await(2 * time.Second)
		await(fillTurn)
		for _, done := range first { // their turns are over: these take nobody else's
			done()
			done()
		}
		synctest.Wait()
		if inside, waiting := traffic.fills.Count(); inside != 2 || waiting != 0 {
			t.Errorf("%d have a turn, %d wait; want the last 2, and none", inside, waiting)
		}
	})
}
