package fairqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd is clusters with work, of which some are bad: what they ask for takes long, and there is more of it than can be
// done.
type crowd struct {
	clusters, bad int
	every         time.Duration // between two keys of a good cluster, at the mean
	takes         time.Duration // a key of a good cluster
	badEvery      time.Duration
	badTakes      []time.Duration // keys of bad clusters, by the kind of cluster
	from          time.Duration   // when they become bad
}

func (c crowd) isBad(cluster int) bool { return cluster < c.bad }

// waits gives the clusters of one kind, good, bad or both, to queues, and returns for how long keys of good clusters
// waited, sorted, and how many keys of bad ones were done. Time is virtual, and so nothing but the queue is measured.
func (c crowd) waits(t *testing.T, good, bad bool, seed uint64) (waits []time.Duration, done int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const workers, perCluster, long = 128, 16, 15 * time.Second
		q := newQueue(t, workers, perCluster)
		began := time.Now()
		var mu sync.Mutex // guards what is returned
		all := work(q, workers, func(key string) {
			cluster := 0
			_, _ = fmt.Sscanf(key, "c%d/", &cluster)
			wait := time.Since(q.Taken(key).Ready)
			if c.isBad(cluster) && time.Since(began) >= c.from {
				time.Sleep(c.badTakes[cluster%len(c.badTakes)])
			} else {
				time.Sleep(c.takes)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case time.Since(began) > long:
			case c.isBad(cluster):
				done++
			default:
				waits = append(waits, wait)
			}
		})
		for cluster := range c.clusters {
			every := c.every
			if c.isBad(cluster) {
				every = c.badEvery
			}
			if c.isBad(cluster) && !bad || !c.isBad(cluster) && !good {
				continue
			}
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(cluster)))
				for i := 0; time.Since(began) < long; i++ {
					time.Sleep(time.Duration(r.ExpFloat64() * float64(every)))
					q.Add(fmt.Sprintf("c%d/n/%d", cluster, i))
				}
			})
		}
		time.Sleep(long + time.Second)
		q.ShutDown()
		all.Wait()
	})
	slices.Sort(waits)
	return waits, done
}

// TestTheRestOfManyClustersDoesNotSufferForBadOnes compares how long keys of good clusters take beside bad ones with
// how long they take alone, as with a fleet of their own, and what the bad ones get done with what they get done by
// themselves.
func TestTheRestOfManyClustersDoesNotSufferForBadOnes(t *testing.T) {
	const most = 20 * time.Millisecond
	for _, one := range []struct {
		clusters, bad int
		from          time.Duration
		more          time.Duration // than 1.5 times as long
		own           float64       // of what the bad ones would get done
	}{
		{2, 1, 0, most, 0.9},
		{9, 8, 0, most, 0.9},
		{9, 8, 5 * time.Second, most, 0.9}, // all of a sudden
		{50, 15, 5 * time.Second, most, 0.9},
		{50, 40, 0, 200 * time.Millisecond, 0.9},
	} {
		c := crowd{
			clusters: one.clusters, bad: one.bad, from: one.from, every: 33 * time.Millisecond, takes: 20 * time.Millisecond,
			badEvery: 17 * time.Millisecond, badTakes: []time.Duration{7500 * time.Millisecond,
				3 * time.Second, 10 * time.Second},
		}
		beside, own := c.waits(t, true, true, 1)
		alone, _ := c.waits(t, true, false, 1)
		_, apart := c.waits(t, false, true, 1)
		p99 := func(waits []time.Duration) time.Duration { return c.takes + waits[len(waits)*99/100] }
		t.Logf("%d of %d bad: p99 %v, alone %v; of %d keys %d are taken; bad ones get %d done, by themselves %d",
			c.bad, c.clusters, p99(beside), p99(alone), len(alone), len(beside), own, apart)
		if limit := p99(alone)*3/2 + one.more; p99(beside) > limit || len(beside) < len(alone)*99/100 {
			t.Errorf("the good of %d clusters suffer for %d bad ones: p99 %v, want at most %v", c.clusters, c.bad,
				p99(beside), limit)
		}
		if float64(own) < one.own*float64(apart) {
			t.Errorf("%d bad clusters of %d are punished: %d keys done, by themselves %d", c.bad, c.clusters, own, apart)
		}
	}
}
