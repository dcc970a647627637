package fairqueue

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Options of a [Queue].
type Options[T comparable] struct {
	// Name is the label of its metrics workqueue_*, "" for none.
	Name string
	// Limiter gives the delay of rate-limited additions. Required.
	Limiter workqueue.TypedRateLimiter[T]
	// Tenant returns the cluster and the namespace of a key. Required. All keys of one cluster share its workers. (With
	// package shard, a request's ClusterName is that of a shard: see the example of a sharded controller.)
	Tenant func(T) (cluster, namespace string)
	// Workers is how many workers take keys: the controller's MaxConcurrentReconciles. Zero or less means no limit.
	Workers int
	// PerCluster is how many workers may have keys of one cluster at a time. A quarter as many more, at least one but
	// not the last one of all, may have keys of namespaces of which no worker has a key. Zero or less means three
	// quarters of Workers, with fewer than four Workers all of them, so that a slow cluster doesn't hold all that the
	// others need; Workers means no bound.
	PerCluster int
	// Part names the keys that [Queue.Drop] drops together; nil if it isn't called. With package shard it is a request's
	// ClusterName, which is that of a shard.
	Part func(T) string
	// OnTake, if it isn't nil, is called by the worker that takes a key, before Get returns. It may set Note.
	OnTake func(T, *Taken)
}

// Trigger is why a key became ready.
type Trigger uint8

// Triggers.
const (
	ByEvent    Trigger = iota // something changed
	ByBackfill                // added at low priority, such as by an initial list or a resync
	ByTimer                   // a time came that was asked for
	ByRetry                   // the last reconcile failed, or asked for another try
)

// String returns the trigger in one word, in small letters.
func (t Trigger) String() string { return [...]string{"event", "backfill", "timer", "retry"}[t] }

// Taken describes a key that a worker has.
type Taken struct {
	Ready    time.Time // from when on it could have been taken
	Priority int
	Trigger  Trigger
	Attempt  int // 1 if the last reconcile of the key didn't fail
	Note     any // the caller's own; see [Options.OnTake]
}

// Backlog describes the keys of one cluster.
type Backlog struct {
	Cluster string
	Ready   int           // keys that wait to be taken, for the first time or again
	Running int           // keys that workers have
	Wait    time.Duration // of the key that has waited longest
	// Longest lists the namespaces that wait longest, in this order, at most [MostNamespaces].
	Longest []Waiting
}

// Waiting describes how long the keys of one namespace wait.
type Waiting struct {
	Namespace string
	Ready     int
	Wait      time.Duration
}

// MostNamespaces bounds [Backlog].Longest.
const MostNamespaces = 5

// Queue implements [priorityqueue.PriorityQueue]. It is safe for concurrent use.
type Queue[T comparable] struct {
	options Options[T]
	origin  time.Time // of the monotonic times of items
	meters  *meters
	sooner  chan struct{} // holds a token when keepTime must look earlier than planned
	done    chan struct{} // closed at shutdown

	mu    sync.Mutex // guards all below
	some  *sync.Cond // something may be ready
	book  book[T]
	ended bool
}

var _ priorityqueue.PriorityQueue[int] = (*Queue[int])(nil)

// New starts a queue, which runs until [Queue.ShutDown]. It panics if a required option is missing.
func New[T comparable](o Options[T]) *Queue[T] {
	switch { // at once, not when the first key is added
	case o.Limiter == nil:
		panic("fairqueue.Options.Limiter is nil: give it the limiter that NewQueue was given")
	case o.Tenant == nil:
		panic("fairqueue.Options.Tenant is nil: say to which cluster and namespace a key belongs")
	}
	o.Workers = max(o.Workers, 0)
	if o.PerCluster <= 0 {
		o.PerCluster = o.Workers - o.Workers/4
	}
	q := &Queue[T]{
		options: o, origin: time.Now(), meters: newMeters(o.Name), sooner: make(chan struct{}, 1), done: make(chan struct{}),
		book: newBook[T](o.Workers, o.PerCluster),
	}
	q.book.part = o.Part
	q.some = sync.NewCond(&q.mu)
	go q.keepTime()
	return q
}

// AddWithOpts implements [priorityqueue.PriorityQueue].
func (q *Queue[T]) AddWithOpts(o priorityqueue.AddOpts, keys ...T) {
	priority := ptr.Deref(o.Priority, 0)
	for _, key := range keys {
		after, why := o.After, ByEvent
		switch {
		case o.RateLimited:
			after, why = q.options.Limiter.When(key), ByRetry
			if o.After > 0 {
				after = min(after, o.After)
			}
		case after > 0:
			why = ByTimer
		case priority < 0:
			why = ByBackfill
		}
		q.add(key, after, priority, why)
	}
}

func (q *Queue[T]) add(key T, after time.Duration, priority int, why Trigger) {
	now := q.now()
	cluster, namespace := q.options.Tenant(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	if after > 0 {
		q.meters.retries.Inc()
	}
	first := q.book.nextRipe()
	i := q.book.item(key, cluster, namespace)
	was := i.state
	q.book.add(i, now, now+min(max(after, 0), never-now), priority, why)
	switch {
	case i.state == waiting:
		if q.book.nextRipe() < first {
			q.hurry()
		}
	case was != ready && was != parked:
		q.becameReady()
	}
}

// never is the latest time there is. Later times are cut to it, since their sum would overflow and be in the past.
const never = time.Duration(math.MaxInt64)

// becameReady counts a key and wakes a worker for it.
func (q *Queue[T]) becameReady() {
	q.meters.adds.Inc()
	q.meters.depth.Inc()
	q.some.Signal()
}

// Add implements [workqueue.TypedInterface].
func (q *Queue[T]) Add(key T) { q.AddWithOpts(priorityqueue.AddOpts{}, key) }

// AddAfter implements [workqueue.TypedDelayingInterface].
func (q *Queue[T]) AddAfter(key T, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, key)
}

// AddRateLimited implements [workqueue.TypedRateLimitingInterface].
func (q *Queue[T]) AddRateLimited(key T) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, key)
}

// Get implements [workqueue.TypedInterface].
func (q *Queue[T]) Get() (key T, shutdown bool) {
	key, _, shutdown = q.GetWithPriority()
	return key, shutdown
}

// GetWithPriority implements [priorityqueue.PriorityQueue]. Keys that are ready at shutdown aren't handed out.
func (q *Queue[T]) GetWithPriority() (key T, priority int, shutdown bool) {
	i := q.next()
	if i == nil {
		return key, 0, true
	}
	// Until Done, only this worker uses the item's Taken.
	i.taken.Attempt = q.options.Limiter.NumRequeues(i.key) + 1
	if q.options.OnTake != nil {
		q.options.OnTake(i.key, i.taken)
	}
	return i.key, i.taken.Priority, false
}

// next waits for a key that may be taken; nil means that the queue was shut down.
func (q *Queue[T]) next() *item[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.ended {
			return nil
		}
		now := time.Now()
		if i := q.book.take(now.Sub(q.origin)); i != nil {
			// Counted back from now, since the wall clock may have been set since the origin.
			i.taken.Ready = now.Add(i.readyAt - i.takenAt)
			q.meters.depth.Dec()
			q.meters.wait.Observe((i.takenAt - i.readyAt).Seconds())
			if q.book.turn != nil { // another key may be free to be taken, too
				q.some.Signal()
			}
			return i
		}
		q.some.Wait()
	}
}

// Done implements [workqueue.TypedInterface].
func (q *Queue[T]) Done(key T) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if took, ok := q.book.done(key, now); ok {
		q.meters.work.Observe(took.Seconds())
		if q.book.turn != nil { // the key itself, or its cluster's next
			q.some.Signal()
		}
	}
}

// Drop drops the keys of a part that wait for a time; see [Options.Part]. It is for keys that are no work of this
// process any more: they would take room until their time comes. It costs as much as the part has such keys. Those that
// are ready stay.
func (q *Queue[T]) Drop(part string) {
	q.mu.Lock()
	dropped := q.book.drop(part)
	q.mu.Unlock()
	for _, key := range dropped {
		q.options.Limiter.Forget(key)
	}
}

// Forget implements [workqueue.TypedRateLimitingInterface].
func (q *Queue[T]) Forget(key T) { q.options.Limiter.Forget(key) }

// NumRequeues implements [workqueue.TypedRateLimitingInterface].
func (q *Queue[T]) NumRequeues(key T) int { return q.options.Limiter.NumRequeues(key) }

// Len implements [workqueue.TypedInterface]: the keys that are ready.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.book.ready
}

// ShuttingDown implements [workqueue.TypedInterface].
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended
}

// ShutDown implements [workqueue.TypedInterface]. Workers that wait for a key return at once.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended = true
		close(q.done)
		q.some.Broadcast()
	}
}

// ShutDownWithDrain implements [workqueue.TypedInterface]. As in [priorityqueue.PriorityQueue] it is ShutDown:
// controllers wait for their workers themselves.
func (q *Queue[T]) ShutDownWithDrain() { q.ShutDown() }

// Taken describes a key that a worker has; it is zero for any other key. Only that worker may call it.
func (q *Queue[T]) Taken(key T) Taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.book.items[key]; i != nil && i.running() {
		return *i.taken
	}
	return Taken{}
}

// Backlogs returns the backlog of each cluster that has keys ready or with workers, ordered by name.
func (q *Queue[T]) Backlogs() []Backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.book.backlogs(q.now())
	slices.SortFunc(all, func(x, y Backlog) int { return strings.Compare(x.Cluster, y.Cluster) })
	return all
}

// now is the time since the queue's origin.
func (q *Queue[T]) now() time.Duration { return time.Since(q.origin) }

// hurry wakes keepTime, since a key becomes ready before its timer ends.
func (q *Queue[T]) hurry() {
	select {
	case q.sooner <- struct{}{}:
	default:
	}
}

// measured is the time between two updates of the metrics of unfinished work.
const measured = 500 * time.Millisecond

// keepTime makes keys ready when their time has come.
func (q *Queue[T]) keepTime() {
	timer := time.NewTimer(measured)
	defer timer.Stop()
	for {
		select {
		case <-q.done:
			return
		case <-q.sooner:
		case <-timer.C:
		}
		timer.Reset(q.ripen())
	}
}

// ripen makes the keys ready whose time has come, and returns after which delay to call it again.
func (q *Queue[T]) ripen() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for q.book.ripen(now) {
		q.becameReady()
	}
	q.meters.unfinished(q.book.unfinished(now))
	return min(q.book.nextRipe()-now, measured)
}
