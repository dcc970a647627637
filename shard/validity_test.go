package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

// The loop may stand still, as where nobody reads the process's log. A write that waits for its connection meanwhile
// must not be sent later.
func TestWhatRunsEndsWithTheLeaseThoughTheLoopStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Observer: NopObserver{}}
		l := &loop{cfg: cfg, ctx: t.Context(), clock: clock{time.Now()}, roster: newRoster(cfg), scheme: recordScheme(t),
			homeConfig: &rest.Config{Host: "https://home"}, log: logr.Discard(),
			list: func() (cache.Cache, error) { return nil, errors.New("the incarnation has begun") }}
		l.begin(driver.Begin{ID: "a"})
		id := keyspace.ShardID{Cluster: "west"}
		e := &engagement{id: id, ctx: t.Context(),
			gate: engage.NewGate(t.Context(), id, "", "", l.validity.holds)}
		l.roster.put(e.name(), e)
		const lease = 10 * time.Second
		renewed := func() { l.validity.set(l.clock.now().Add(lease)) }
		reconcile := func() <-chan time.Duration {
			took, began := make(chan time.Duration, 1), time.Now()
			go e.gate.Run(t.Context(), &engage.Traffic{}, func(ctx context.Context) {
				<-ctx.Done()
				took <- time.Since(began)
			})
			synctest.Wait()
			return took
		}
		renewed()
		e.gate.Open(1)
		took := reconcile()
		time.Sleep(lease / 2)
		renewed()
		expect.Equal(t, "a reconcile's context ended after", 3*lease/2, <-took)
		renewed() // it had come in time, and the loop goes on only now
		expect.Equal(t, "what was cancelled is enqueued again", true, e.gate.Missed())
		expect.Equal(t, "the next one's ended after", lease, <-reconcile())
		renewed()
		e.gate.Missed()
		took = reconcile()
		l.validity.set(ownership.Instant{}) // the incarnation ends, and the next one is engaged
		time.Sleep(2 * lease)
		expect.Equal(t, "contexts that the timer of one that was over ended", 0, len(took))
	})
}
