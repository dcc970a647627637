package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// The servers of many clusters change at once, and one of the new ones never answers a list.
func TestAShardWhoseCachesAreNeverFilledDoesNotKeepOthersFromChangingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := engage.NewGate(t.Context(), keyspace.ShardID{Cluster: "west"}, "agent", "a-1", func() bool { return true })
		o := opening{gate: gate, log: logr.Discard(), turn: make(chan struct{}, 1)}
		stuck, ok := o.takeTurn(t.Context())
		if !ok {
			t.Fatal("the first gets no turn")
		}
		began := time.Now()
		next, ok := o.takeTurn(t.Context())
		if waited := time.Since(began); !ok || waited != changeTurn {
			t.Fatalf("the next gets its turn: %v, after %v; want that after %v", ok, waited, changeTurn)
		}
		stuck() // its turn is over: this must not end the other's
		ctx, cancel := context.WithTimeout(t.Context(), changeTurn/2)
		defer cancel()
		if _, ok := o.takeTurn(ctx); ok {
			t.Error("two have a turn")
		}
		next()
		last, ok := o.takeTurn(t.Context())
		if !ok {
			t.Error("a turn that was given back is kept")
		}
		last()
	})
}
