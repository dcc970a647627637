package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// The servers of many clusters change at once, and one of the new ones never answers a list.
func TestAShardWhoseCachesAreNeverFilledDoesNotKeepOthersFromChangingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := engage.NewGate(t.Context(), keyspace.ShardID{Cluster: "west"}, "agent", "a-1", func() bool { return true })
		o := opening{gate: gate, log: logr.Discard(), turns: &turnstile.Turnstile{}}
		stuck, err := o.takeTurn(t.Context())
		if err != nil {
			t.Fatal("the first gets no turn")
		}
		began := time.Now()
		next, err := o.takeTurn(t.Context())
		if waited := time.Since(began); err != nil || waited != changeTurn {
			t.Fatalf("the next gets its turn after %v (%v), want %v", waited, err, changeTurn)
		}
		stuck() // its turn is over: this must not end the other's
		ctx, cancel := context.WithTimeout(t.Context(), changeTurn/2)
		defer cancel()
		if _, err := o.takeTurn(ctx); err == nil {
			t.Error("two have a turn")
		}
		next()
		last, err := o.takeTurn(t.Context())
		if err != nil {
			t.Error("a turn that was given back is kept")
		}
		last()
	})
}
