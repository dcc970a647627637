package fairqueue

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// tenant reads a key such as "west/shop/a".
func tenant(key string) (cluster, namespace string) {
	cluster, rest, _ := strings.Cut(key, "/")
	namespace, _, _ = strings.Cut(rest, "/")
	return cluster, namespace
}

func newQueue(t testing.TB, workers, perCluster int) *Queue[string] {
	t.Helper()
	q := New(Options[string]{
		Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, time.Minute),
		Tenant:  tenant, Workers: workers, PerCluster: perCluster, Part: clusterIn,
	})
	t.Cleanup(q.ShutDown)
	return q
}

// clusterIn is the part of a key in tests.
func clusterIn(key string) string {
	cluster, _ := tenant(key)
	return cluster
}

// fill adds as many keys, whose format takes their numbers from 0.
func fill(q *Queue[string], keys int, format string) {
	for i := range keys {
		q.Add(fmt.Sprintf(format, i))
	}
}

// take returns what workers would get that come one after the other until one has to wait, or none is left.
func take(q *Queue[string]) (keys []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		var i *item[string]
		if q.book.workers == 0 || len(q.book.running) < q.book.workers {
			i = q.book.take(q.now())
		}
		if i == nil {
			return keys
		}
		keys = append(keys, i.key)
	}
}

func wantTaken(t *testing.T, q *Queue[string], why string, want ...string) {
	t.Helper()
	if got := take(q); !slices.Equal(got, want) {
		t.Fatalf("workers get %v, want %v: %s", got, want, why)
	}
}

// wantWorkers expects that so many workers get keys.
func wantWorkers(t *testing.T, q *Queue[string], want int) {
	t.Helper()
	if got := take(q); len(got) != want {
		t.Fatalf("%d workers get keys, want %d", len(got), want)
	}
}

// work runs workers, which handle keys until the queue is shut down.
func work(q *Queue[string], workers int, handle func(key string)) *sync.WaitGroup {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				handle(key)
				q.Done(key)
			}
		})
	}
	return &all
}

var low, high = -100, 100

func TestClustersAndNamespacesTakeTurnsAndPriorityOrdersWithin(t *testing.T) {
	q := newQueue(t, 0, 0)
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "west/shop/old")
	q.AddWithOpts(priorityqueue.AddOpts{}, "west/shop/1", "west/shop/2", "west/shop/3", "west/bank/1", "east/shop/1")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &high}, "west/shop/urgent")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "west/club/old", "west/zoo/new")
	q.Add("west/zoo/new")
	want := []string{
		"west/shop/urgent", "east/shop/1", "west/bank/1", "west/zoo/new", "west/shop/1", "west/shop/2", "west/shop/3",
		"west/club/old", "west/shop/old",
	}
	expect.Equal(t, "taken", want, take(q))
}

func TestAKeyOfLowPriorityIsTakenBesideChangesThatNeverEnd(t *testing.T) {
	for _, clusters := range []int{1, 2, 4} {
		q := newQueue(t, 16, 0)
		for c := range clusters {
			fill(q, 100, fmt.Sprintf("c%d/busy/%%d", c))
		}
		held := take(q)
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "c0/quiet/old")
		most := 2 * lowEvery * clusters
		for took := 0; !slices.Contains(held, "c0/quiet/old"); took++ {
			if took > most {
				t.Fatalf("%d clusters: not taken while %d other keys were", clusters, most)
			}
			q.Done(held[0])
			q.Add(held[0])
			held = append(held[1:], take(q)...)
		}
	}
}

func TestASlowClusterHoldsNoMoreWorkersThanAreItsOwn(t *testing.T) {
	q := newQueue(t, 16, 4)
	fill(q, 100, "slow/ns/%02d")
	wantWorkers(t, q, 4)
	q.Add("quick/ns/1")
	wantTaken(t, q, "the other cluster has workers left", "quick/ns/1")
	q.Done("slow/ns/02")
	wantTaken(t, q, "the slow cluster's next", "slow/ns/04")
}

func TestTheLastWorkersAreForThoseWithLessThanTheirShare(t *testing.T) {
	q := newQueue(t, 16, 16)
	fill(q, 100, "a/ns/%d")
	wantWorkers(t, q, 16) // one cluster alone gets all
	for i := range 8 {
		q.Done(fmt.Sprintf("a/ns/%d", i))
	}
	fill(q, 100, "b/ns/%d")
	count := map[string]int{}
	for _, key := range take(q) {
		count[key[:1]]++
	}
	// Four may go to anybody, in turns; the last four only to b, which has less than half.
	if want := map[string]int{"a": 2, "b": 6}; !cmp.Equal(count, want) {
		t.Errorf("got %v, want %v", count, want)
	}
}

func TestASlowNamespaceLeavesWorkersToTheOthersOfItsCluster(t *testing.T) {
	q := newQueue(t, 64, 8) // and two more
	fill(q, 100, "c/slow/%02d")
	wantWorkers(t, q, 8) // a namespace that is alone
	q.Add("c/a/1")
	q.Add("c/a/2")
	wantTaken(t, q, "beside a slow namespace the other one gets one worker, not two", "c/a/1")
	q.Add("c/b/1")
	q.Add("c/d/1")
	wantTaken(t, q, "one key of the two namespaces: there are ten workers, not more", "c/b/1")
	q.Done("c/slow/01")
	wantTaken(t, q, "that of the namespace that has none", "c/d/1")
	q.Done("c/a/1")
	wantTaken(t, q, "the second key of a namespace that has none again", "c/a/2")
	q.Done("c/a/2")
	q.Done("c/b/1")
	wantTaken(t, q, "eight workers are busy, and are of namespaces with ready keys")
	q.Done("c/d/1")
	if got := take(q); len(got) != 1 || !strings.HasPrefix(got[0], "c/slow/") {
		t.Errorf("got %v with seven workers busy, want one key of the slow namespace", got)
	}
}

func TestByDefaultAClusterLeavesAQuarterOfTheWorkers(t *testing.T) {
	for workers, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3, 16: 12, 128: 96} {
		q := newQueue(t, workers, 0)
		fill(q, 200, "c/ns/%d")
		if got := take(q); len(got) != want {
			t.Errorf("one cluster got %d of %d workers, want %d", len(got), workers, want)
		}
		fill(q, 200, "c/n%d/1")
		if take(q); workers > 3 && len(q.book.running) >= workers {
			t.Errorf("with many namespaces, one cluster got all %d workers", workers)
		}
	}
}

// Whoever asks, a worker that is free takes what may be taken at once.
func TestNoWorkerWaitsBesideAKeyThatItMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, perCluster = 16, 4 // and one more
		q := newQueue(t, workers, perCluster)
		var mu sync.Mutex
		held, end := map[string]int{}, map[string]chan struct{}{} // by namespace; by cluster
		for _, cluster := range []string{"slow", "b", "c", "d"} {
			end[cluster] = make(chan struct{})
		}
		count := func(key string, by int) {
			mu.Lock()
			defer mu.Unlock()
			held[key[:strings.LastIndex(key, "/")]] += by
		}
		all := work(q, workers, func(key string) {
			count(key, 1)
			cluster, _ := tenant(key)
			<-end[cluster]
			count(key, -1)
		})
		expect := func(when string, want map[string]int) {
			t.Helper()
			synctest.Wait() // no time passes
			mu.Lock()
			defer mu.Unlock()
			for namespace, n := range held {
				if n == 0 {
					delete(held, namespace)
				}
			}
			expect.Equal(t, when+", workers by namespace", want, held)
		}
		fill(q, 10, "slow/a/%d")
		expect("one namespace", map[string]int{"slow/a": 4})
		fill(q, 2, "slow/b/%d")
		expect("two namespaces", map[string]int{"slow/a": 4, "slow/b": 1})
		fill(q, 2, "slow/c/%d")
		expect("three namespaces", map[string]int{"slow/a": 4, "slow/b": 1})
		fill(q, 10, "b/n/%d")
		fill(q, 10, "c/n/%d")
		expect("three clusters", map[string]int{"slow/a": 4, "slow/b": 1, "b/n": 4, "c/n": 4})
		fill(q, 10, "d/n/%d")
		expect("four clusters", map[string]int{"slow/a": 4, "slow/b": 1, "b/n": 4, "c/n": 4, "d/n": 3})
		select {
		case end["b"] <- struct{}{}:
		case <-time.After(time.Second):
			t.Error("no worker has a key of b")
		}
		expect("after one key of b", map[string]int{"slow/a": 4, "slow/b": 1, "b/n": 3, "c/n": 4, "d/n": 4})
		for _, one := range end {
			close(one)
		}
		expect("at the end", map[string]int{})
		if q.Len() != 0 {
			t.Errorf("%d keys are left", q.Len())
		}
		q.ShutDown()
		all.Wait()
	})
}

func TestTheNamespacesThatWaitLongestAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1, 1)
		defer q.ShutDown()
		for i := range 2 * MostNamespaces {
			q.Add(fmt.Sprintf("west/n%02d/a", i))
			q.Add(fmt.Sprintf("west/n%02d/b", i))
			time.Sleep(time.Second)
		}
		all := q.Backlogs()
		if len(all) != 1 || len(all[0].Longest) != MostNamespaces {
			t.Fatalf("%+v", all)
		}
		for i, w := range all[0].Longest {
			if want := (Waiting{fmt.Sprintf("n%02d", i), 2, time.Duration(2*MostNamespaces-i) * time.Second}); w != want {
				t.Errorf("%+v, want %+v", w, want)
			}
		}
	})
}

func TestAKeyThatWaitsForItsOwnWorkerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 0, 0)
		q.Add("west/shop/hangs")
		take(q)
		q.Add("west/shop/hangs")
		time.Sleep(time.Minute)
		shop := []Waiting{{"shop", 1, time.Minute}}
		want := []Backlog{{Cluster: "west", Ready: 1, Running: 1, Wait: time.Minute, Longest: shop}}
		expect.Equal(t, "backlogs", want, q.Backlogs())
	})
}

// As a controller's MaxConcurrentReconciles: what isn't above zero asks for a default.
func TestFewerWorkersThanNoneAreAsMayBe(t *testing.T) {
	q := newQueue(t, -1, -1)
	q.Add("c/n/1")
	wantTaken(t, q, "no bound is set", "c/n/1")
}

func TestWhatIsRequiredIsAskedForAtOnce(t *testing.T) {
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	for field, o := range map[string]Options[string]{
		"Options.Limiter": {Tenant: tenant}, "Options.Tenant": {Limiter: limiter},
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, field) {
					t.Errorf("without %s: %s", field, said)
				}
			}()
			New(o).ShutDown()
		}()
	}
}

func TestAKeyIsReadyAtTheEarliestOfItsAdditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 0, 0)
		q.AddAfter("c/n/hour", time.Hour)
		q.AddAfter("c/n/hour", 2*time.Hour)
		q.AddAfter("c/n/sooner", time.Hour)
		q.AddAfter("c/n/sooner", time.Minute)
		q.Add("c/n/now")
		q.AddAfter("c/n/now", time.Minute)
		q.AddRateLimited("c/n/failed")
		q.AddWithOpts(priorityqueue.AddOpts{After: time.Second, Priority: &low}, "c/n/low")
		type got struct {
			Key      string
			After    time.Duration
			Trigger  Trigger
			Priority int
			Attempt  int
		}
		var all []got
		began := time.Now()
		for range 5 {
			key, _, _ := q.GetWithPriority()
			taken := q.Taken(key)
			if time.Since(taken.Ready) != 0 {
				t.Errorf("%s was taken %v after it was ready", key, time.Since(taken.Ready))
			}
			all = append(all, got{key, time.Since(began), taken.Trigger, taken.Priority, taken.Attempt})
			q.Done(key)
		}
		want := []got{
			{"c/n/now", 0, ByEvent, 0, 1}, {"c/n/failed", 10 * time.Millisecond, ByRetry, 0, 2},
			{"c/n/low", time.Second, ByTimer, low, 1},
			{"c/n/sooner", time.Minute, ByTimer, 0, 1}, {"c/n/hour", time.Hour, ByTimer, 0, 1},
		}
		expect.Equal(t, "taken", want, all)
	})
}

// What is added for later says, too, how much the key matters: a reconcile that ends with a time may find the key back
// in the queue already, as backfill.
func TestAKeyHasTheHighestPriorityOfItsAdditions(t *testing.T) {
	later := priorityqueue.AddOpts{After: time.Hour}
	for name, running := range map[string]bool{"ready": false, "with a worker": true} {
		bubble.Run(t, name, func(t *testing.T) {
			q := newQueue(t, 0, 0)
			if running {
				q.Add("c/n/1")
				take(q)
			}
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "c/n/1", "c/n/2")
			q.AddWithOpts(later, "c/n/1")
			if running {
				q.Done("c/n/1")
			}
			key, priority, _ := q.GetWithPriority()
			if key != "c/n/1" || priority != 0 || q.Taken(key).Trigger != ByBackfill {
				t.Errorf("got %s at priority %d by %s first, want c/n/1 at 0 by backfill", key, priority, q.Taken(key).Trigger)
			}
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "c/n/3")
			q.AddWithOpts(later, "c/n/3")
			if key, _, _ := q.GetWithPriority(); key != "c/n/3" {
				t.Errorf("then got %s, want c/n/3", key)
			}
		})
	}
}

// time.Until says 292 years of whatever is later than that.
func TestTheLongestWaitIsNotAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 0, 0)
		time.Sleep(time.Second) // the sum of the queue's age and the wait is too much
		q.AddAfter("c/n/1", math.MaxInt64)
		time.Sleep(time.Hour)
		wantTaken(t, q, "an hour is over, and 292 years aren't")
		q.Add("c/n/1")
		wantTaken(t, q, "it has changed meanwhile", "c/n/1")
	})
}

// Spans go out with times of the wall clock, and it may be set at any time after the queue was made.
func TestWhenAKeyWasReadyIsByTheClockAsItIsNow(t *testing.T) {
	q := newQueue(t, 0, 0)
	origin := (*struct { // a time.Time with a monotonic reading has its seconds of the wall clock in the first word
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&q.origin))
	origin.wall -= 3600 << 30
	if age := time.Now().Round(0).Sub(q.origin.Round(0)); age < time.Hour || time.Since(q.origin) > time.Hour/2 {
		t.Fatalf("the queue is %v old by the wall clock, %v by the other: want an hour more", age, time.Since(q.origin))
	}
	q.Add("c/n/1")
	time.Sleep(10 * time.Millisecond)
	key, _ := q.Get()
	if wait := time.Now().Round(0).Sub(q.Taken(key).Ready.Round(0)); wait < 10*time.Millisecond || wait > time.Minute {
		t.Errorf("by the wall clock, which was put an hour forward, it waited %v, want some 10ms", wait)
	}
}

func TestAKeyIsWithOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 0, 0)
		q.Add("c/n/1")
		take(q)
		q.Add("c/n/1")
		q.AddAfter("c/n/1", time.Minute) // ready already
		if got := take(q); got != nil || q.Len() != 1 {
			t.Fatalf("%v was handed out twice; %d ready", got, q.Len())
		}
		time.Sleep(time.Second)
		q.Done("c/n/1")
		wantTaken(t, q, "the first worker is done", "c/n/1")
		q.AddAfter("c/n/1", time.Minute)
		time.Sleep(time.Hour) // its time comes while a worker has it
		q.Done("c/n/1")
		wantTaken(t, q, "its time has come", "c/n/1")
		q.Done("c/n/1")
		wantTaken(t, q, "nobody has added it again")
	})
}

func TestAWorkerThatWaitsIsWokenByAnotherThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4, 1)
		q.Add("c/n/1")
		first, _ := q.Get()
		var second string
		go func() { second, _ = q.Get() }()
		q.Add("c/n/2")
		synctest.Wait()
		if second != "" {
			t.Fatalf("%s was taken beside %s", second, first)
		}
		q.Done(first)
		synctest.Wait()
		if second != "c/n/2" {
			t.Errorf("the worker that waits has %q", second)
		}
	})
}

func TestKeysOfAPartThatWaitAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 2, 2)
		q.Add("c/n/ready")
		q.Add("c/n/running")
		wantTaken(t, q, "both are ready", "c/n/ready", "c/n/running")
		q.Done("c/n/ready")
		for _, key := range []string{"c/n/1", "d/n/1", "c/n/2", "d/n/2", "c/m/3", "c/n/running"} {
			q.AddAfter(key, 24*time.Hour)
		}
		q.Add("c/n/ready")
		q.AddRateLimited("c/n/failed")
		q.Drop("c")
		q.Drop("none")
		if n := q.NumRequeues("c/n/failed"); n != 0 {
			t.Errorf("%d failures of a key that was dropped are remembered", n)
		}
		if b := q.book; len(b.items) != 4 || len(b.waiting.items) != 2 || len(b.parts) != 1 {
			t.Errorf("%d keys are left, of which %d wait, of %d parts; want those of d, and two of c that don't wait",
				len(b.items), len(b.waiting.items), len(b.parts))
		}
		q.AddAfter("c/n/2", time.Hour) // the part is back
		q.Done("c/n/running")
		time.Sleep(25 * time.Hour)
		q.mu.Lock()
		ready := q.book.ready
		q.mu.Unlock()
		if ready != 4 {
			t.Errorf("a day later %d keys are ready, want 4", ready)
		}
		for range ready {
			key, _ := q.Get()
			q.Done(key)
		}
		if b := q.book; len(b.items)+len(b.clusters)+len(b.waiting.items)+len(b.parts) != 0 {
			t.Errorf("%d keys and %d parts are left", len(b.items), len(b.parts))
		}
	})
}

func TestNothingIsRememberedOfKeysThatAreDone(t *testing.T) {
	q := newQueue(t, 0, 0)
	for i := range 100_000 {
		key := fmt.Sprintf("c%d/n%d/k", i%100, i)
		q.Add(key)
		got, _ := q.Get()
		q.Done(got)
		q.Forget(got)
	}
	b := q.book
	if len(b.items)+len(b.clusters)+len(b.waiting.items)+len(b.running)+b.active+b.ready != 0 || b.turn != nil ||
		len(b.spareItems) > maxSpare {
		t.Errorf("%d keys, %d clusters, %d active and %d spare are left", len(b.items), len(b.clusters),
			b.active, len(b.spareItems))
	}
}

// Maps and heaps keep the room that they once needed, also the heap of a namespace that is used again.
func TestTheRoomForAFloodOfKeysIsGivenBack(t *testing.T) {
	q := newQueue(t, 0, 0)
	flood := func(keys string) {
		for i := range 10 * maxSpare {
			q.Add(fmt.Sprintf(keys, i))
			q.AddAfter(fmt.Sprintf(keys, -i), time.Nanosecond)
		}
		for q.Len() > 0 || len(q.book.waiting.items) > 0 {
			got, _ := q.Get()
			q.Done(got)
		}
	}
	for _, keys := range []string{"c/n/%d", "d/%d/k"} {
		flood(keys)
		b := q.book
		if len(b.spareNamespaces) == 0 || len(b.spareClusters) == 0 {
			t.Errorf("%s: nothing is kept to be used again", keys)
		}
		for _, n := range b.spareNamespaces {
			if cap(n.ready.items) > maxSpare {
				t.Errorf("%s: room for %d keys of a namespace that went is kept", keys, cap(n.ready.items))
			}
		}
		for _, c := range b.spareClusters {
			if c.most > maxSpare {
				t.Errorf("%s: room for %d namespaces of a cluster that went is kept", keys, c.most)
			}
		}
		if len(b.items)+len(b.parts) != 0 || cap(b.waiting.items) != 0 || b.most != 0 {
			t.Errorf("%s: %d keys are left, and room for %d that wait", keys, len(b.items), cap(b.waiting.items))
		}
	}
}

func TestShutDownReleasesWorkersAndTakesNothingMore(t *testing.T) {
	q := newQueue(t, 0, 0)
	released := make(chan bool)
	go func() {
		_, shutdown := q.Get()
		released <- shutdown
	}()
	time.Sleep(time.Millisecond)
	q.ShutDown()
	q.ShutDown()
	if !<-released {
		t.Error("a worker got a key from an empty queue")
	}
	q.Add("c/n/1")
	if _, shutdown := q.Get(); !shutdown || q.Len() != 0 || !q.ShuttingDown() {
		t.Error("the queue goes on")
	}
}

func TestWorkersEndAtShutDownWhateverTheyDo(t *testing.T) {
	for range 50 {
		q := newQueue(t, 20, 4)
		var workers sync.WaitGroup
		for w := range 20 {
			workers.Go(func() {
				for i := 0; ; i++ {
					q.Add(fmt.Sprintf("c%d/n/%d", w%3, i))
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					q.Done(key)
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		q.ShutDown()
		ended := make(chan struct{})
		go func() { workers.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("workers didn't end within 10s of the queue's end")
		}
	}
}

func TestItsMetricsAreControllerRuntimes(t *testing.T) {
	label := fmt.Sprint("fair-", time.Now().UnixNano()) // of no test before
	q := New(Options[string]{Name: label, Tenant: tenant, Limiter: workqueue.DefaultTypedControllerRateLimiter[string]()})
	defer q.ShutDown()
	q.Add("c/n/1")
	q.Add("c/n/2")
	q.AddAfter("c/n/3", time.Hour)
	key, _ := q.Get()
	q.Done(key)
	for name, want := range map[string]float64{"workqueue_depth": 1, "workqueue_adds_total": 2,
		"workqueue_retries_total": 1} {
		found, err := metrics.Registry.Gather()
		must.Succeed(t, err)
		got := -1.0
		for _, family := range found {
			for _, m := range family.GetMetric() {
				if family.GetName() == name && m.GetLabel()[0].GetValue() == label {
					got = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		if got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if n, err := testutil.GatherAndCount(metrics.Registry, "workqueue_queue_duration_seconds",
		"workqueue_work_duration_seconds"); err != nil || n < 2 {
		t.Errorf("%d histograms, %v", n, err)
	}
}

// oracle is a simple statement of what a queue owes, checked at every step of random ones.
type oracle struct {
	ready    map[string]time.Duration // when it may be taken at the earliest
	priority map[string]int           // the highest of its additions
	running  map[string]bool
	passed   map[string]int // keys of others taken since a cluster could have had one more
	usual    map[string]int // by cluster: turns that low priority could have had since its last one
}

func TestRandomStepsAgainstAnOracle(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		workers, perCluster := r.IntN(30), r.IntN(12)
		b := newBook[string](workers, perCluster)
		b.part = clusterIn
		o := oracle{map[string]time.Duration{}, map[string]int{}, map[string]bool{}, map[string]int{}, map[string]int{}}
		now := time.Duration(0)
		for step := range 400 {
			now += time.Duration(r.IntN(3))
			for b.ripen(now) {
			}
			key := fmt.Sprintf("c%d/n%d/k%d", r.IntN(4), r.IntN(3), r.IntN(5))
			if r.IntN(50) == 0 {
				b.drop(clusterIn(key))
				maps.DeleteFunc(o.ready, func(other string, at time.Duration) bool {
					return clusterIn(other) == clusterIn(key) && at > now
				})
			}
			switch r.IntN(3) {
			case 0:
				at := now + time.Duration(max(0, r.IntN(20)-10))
				priority := r.IntN(3) - 1
				old, known := o.ready[key]
				if !known || at < old {
					o.ready[key] = at
				}
				if !known || priority > o.priority[key] {
					o.priority[key] = priority
				}
				cluster, namespace := tenant(key)
				b.add(b.item(key, cluster, namespace), now, at, priority, ByEvent)
			case 1:
				if _, ok := b.done(key, now); ok != o.running[key] {
					t.Fatalf("seed %d, step %d: %s done %v, a worker had it %v", seed, step, key, ok, o.running[key])
				}
				delete(o.running, key)
			case 2:
				if workers == 0 || len(o.running) < workers {
					o.take(t, &b, now, fmt.Sprintf("seed %d, step %d", seed, step))
				}
			}
			maps.DeleteFunc(o.usual, func(cluster string, _ int) bool { return b.clusters[cluster] == nil })
		}
		for key := range o.running {
			b.done(key, now)
			delete(o.running, key)
		}
		now += time.Hour
		for b.ripen(now) {
		}
		for len(o.ready) > 0 { // nothing is lost
			o.take(t, &b, now, fmt.Sprintf("seed %d, at the end", seed))
			for key := range o.running {
				b.done(key, now)
				delete(o.running, key)
			}
		}
		if len(b.items)+len(b.clusters)+len(b.parts) != 0 || b.turn != nil {
			t.Fatalf("seed %d: %d keys are left", seed, len(b.items))
		}
	}
}

// take lets a worker take a key, which must be one that it may have.
func (o *oracle) take(t *testing.T, b *book[string], now time.Duration, when string) {
	t.Helper()
	running, could := map[string]int{}, map[string]bool{}
	highest := map[string]int{} // by namespace, of the keys that may be taken
	for key := range o.running {
		running[key[:2]]++
		running[key[:5]]++
	}
	extra := max(1, b.perCluster/4)
	if b.workers > 0 {
		extra = min(extra, b.workers-1-b.perCluster)
	}
	may := func(key string) bool {
		n := running[key[:2]]
		return b.perCluster == 0 || n < b.perCluster || n < b.perCluster+extra && running[key[:5]] == 0
	}
	for key, at := range o.ready {
		if at <= now && !o.running[key] && may(key) {
			could[key[:2]] = true
			if most, known := highest[key[:5]]; !known || o.priority[key] > most {
				highest[key[:5]] = o.priority[key]
			}
		}
	}
	i := b.take(now)
	free := b.workers - len(o.running)
	switch {
	case i == nil && len(could) > 0 && (b.workers == 0 || free > b.workers/4 || len(o.running) == 0):
		t.Fatalf("%s: nothing was taken, though %v could: the queue keeps workers idle", when, could)
	case i == nil:
		return
	}
	at, known := o.ready[i.key]
	switch {
	case !known || at > now:
		t.Fatalf("%s: %s was taken at %v, is to be ready at %v (known %v)", when, i.key, now, at, known)
	case o.running[i.key]:
		t.Fatalf("%s: %s was taken twice", when, i.key)
	case !may(i.key):
		t.Fatalf("%s: %s was taken, with %d workers for its cluster and %d for its namespace, at most %d and %d more",
			when, i.key, running[i.key[:2]], running[i.key[:5]], b.perCluster, extra)
	}
	usual, low := false, false // namespaces of its cluster with a key of priority 0 or more, and without
	for namespace, most := range highest {
		if namespace[:2] == i.key[:2] {
			usual, low = usual || most >= 0, low || most < 0
		}
	}
	if low {
		o.usual[i.key[:2]]++
	}
	most, turn := highest[i.key[:5]], o.usual[i.key[:2]]
	if i.taken.Priority != o.priority[i.key] || i.taken.Priority != most ||
		(i.taken.Priority < 0) != (low && (!usual || turn == lowEvery)) {
		t.Fatalf("%s: %s was taken at priority %d, is to have %d, the highest of its namespace is %d; its cluster has "+
			"namespaces with keys of 0 or more: %v, without: %v; turn %d",
			when, i.key, i.taken.Priority, o.priority[i.key], most, usual, low, turn)
	}
	if i.taken.Priority < 0 {
		delete(o.usual, i.key[:2])
	}
	delete(o.ready, i.key)
	o.running[i.key] = true
	for cluster := range could {
		o.passed[cluster]++
	}
	delete(o.passed, i.key[:2])
	short := b.workers > 0 && free <= b.workers/4
	for cluster, passed := range o.passed {
		if !could[cluster] || short {
			delete(o.passed, cluster)
		} else if passed > 3 { // of four clusters
			t.Fatalf("%s: %s was passed over %d times", when, cluster, passed)
		}
	}
}

// The queue is locked while a key is taken, so what that costs mustn't grow with how many namespaces or clusters have
// keys.
func TestTakingAKeyCostsTheSameHoweverManyNamespacesWait(t *testing.T) {
	const most = 30_000
	for name, format := range map[string]string{"namespaces": "c/n%d/k", "clusters": "c%d/n/k"} {
		each := func(many int) time.Duration {
			least := time.Hour
			for range 3 { // the machine may be busy
				took, taken := time.Duration(0), 0
				for taken < most { // with few keys as many times as with many, so that both are disturbed alike
					b := newBook[string](0, 0)
					for i := range many {
						key := fmt.Sprintf(format, i)
						cluster, namespace := tenant(key)
						b.add(b.item(key, cluster, namespace), 0, 0, 0, ByEvent)
					}
					began := machine.ProcessorTime() // not the clock's: other programs don't count
					for range many {
						b.done(b.take(0).key, 0)
					}
					took, taken = took+machine.ProcessorTime()-began, taken+many
				}
				least = min(least, took/time.Duration(taken))
			}
			return least
		}
		if few, many := each(1000), each(most); many > 10*few {
			t.Errorf("a key of one of 30000 %s takes %v, of 1000 %v", name, many, few)
		}
	}
}

func BenchmarkAKeyThroughTheQueue(b *testing.B) {
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	for name, make := range map[string]func() priorityqueue.PriorityQueue[string]{
		"fair": func() priorityqueue.PriorityQueue[string] {
			return New(Options[string]{Limiter: limiter, Tenant: tenant, Workers: 128, PerCluster: 16})
		},
		"priority": func() priorityqueue.PriorityQueue[string] {
			return priorityqueue.New("", func(o *priorityqueue.Opts[string]) { o.RateLimiter = limiter })
		},
	} {
		b.Run(name, func(b *testing.B) {
			q := make()
			defer q.ShutDown()
			for i := range 1000 { // that keep the queue from being empty
				q.AddAfter(fmt.Sprintf("c/n%d/%d", i%10, i), time.Hour)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Add("other/n/key")
				key, _ := q.Get()
				q.Done(key)
			}
		})
	}
}
