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
	// Limiter delays what is added rate-limited. Required.
	Limiter workqueue.TypedRateLimiter[T]
	// Tenant tells whose work a key is. Required. Keys for which it returns the same cluster share that cluster's workers.
	Tenant func(T) (cluster, namespace string)
	// Workers are how many take keys: the controller's MaxConcurrentReconciles. Zero or less means that they never run
	// short.
	Workers int
	// PerCluster is how many of them may have keys of one cluster at a time; zero or less means all.
	PerCluster int
	// Taken, if it isn't nil, is called by the worker that takes a key, before it gets it. It may set Note.
	Taken func(T, *Taken)
}

// Trigger is why a key became ready.
type Trigger uint8

// Triggers.
const (
	ByEvent    Trigger = iota // something changed
	ByBackfill                // it was there before, or is looked at anew: low priority
	ByTimer                   // somebody had asked for this time
	ByRetry                   // the last reconcile failed, or asked for another try
)

// String returns the trigger in one word, in small letters.
func (t Trigger) String() string { return [...]string{"event", "backfill", "timer", "retry"}[t] }

// Taken is what is known of a key that a worker has.
type Taken struct {
	Ready    time.Time // since when it could have been taken
	Priority int
	Trigger  Trigger
	Attempt  int // 1 if the last reconcile of the key didn't fail
	Note     any // the caller's own; see [Options.Taken]
}

// Backlog is how one cluster stands.
type Backlog struct {
	Cluster string
	Ready   int           // keys that wait
	Running int           // keys that workers have
	Wait    time.Duration // for how long the oldest key that waits has
	// Longest are the namespaces whose keys have waited longest, at most [MostNamespaces], that one first.
	Longest []Waiting
}

// Waiting is how one namespace's keys wait.
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
	sooner  chan struct{} // holds a token when the first that is waiting has changed
	done    chan struct{} // closed at shutdown

	mu    sync.Mutex // guards all below
	some  *sync.Cond // something may be ready
	book  book[T]
	ended bool
}

var _ priorityqueue.PriorityQueue[int] = (*Queue[int])(nil)

// New returns a queue, which runs until [Queue.ShutDown]. It panics where an option is missing that is required.
func New[T comparable](o Options[T]) *Queue[T] {
	switch { // here, and not in whoever adds the first key
	case o.Limiter == nil:
		panic("fairqueue.Options.Limiter is nil: give it the limiter that NewQueue was given")
	case o.Tenant == nil:
		panic("fairqueue.Options.Tenant is nil: say to which cluster and namespace a key belongs")
	}
	o.Workers = max(o.Workers, 0)
	if o.PerCluster <= 0 {
		o.PerCluster = o.Workers
	}
	q := &Queue[T]{
		options: o, origin: time.Now(), meters: newMeters(o.Name), sooner: make(chan struct{}, 1), done: make(chan struct{}),
		book: newBook[T](o.Workers, o.PerCluster),
	}
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

// never is the last time there is: "not before the year 2500" mustn't wrap around and be at once.
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

// GetWithPriority implements [priorityqueue.PriorityQueue]. What is ready at shutdown isn't handed out any more.
func (q *Queue[T]) GetWithPriority() (key T, priority int, shutdown bool) {
	i := q.next()
	if i == nil {
		return key, 0, true
	}
	// The worker owns the item's hand until Done.
	i.hand.Attempt = q.options.Limiter.NumRequeues(i.key) + 1
	if q.options.Taken != nil {
		q.options.Taken(i.key, i.hand)
	}
	return i.key, i.hand.Priority, false
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
			// From now on back: the wall clock may have been set since the origin.
			i.hand.Ready = now.Add(i.readyAt - i.takenAt)
			q.meters.depth.Dec()
			q.meters.wait.Observe((i.takenAt - i.readyAt).Seconds())
			if q.book.turn != nil { // that a key was taken may have left others more of a share
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
		q.some.Signal() // for the key itself, or its cluster's next
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

// Taken returns what is known of a key that a worker has, the zero value for any other. Only that worker may ask.
func (q *Queue[T]) Taken(key T) Taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.book.items[key]; i != nil && i.running() {
		return *i.hand
	}
	return Taken{}
}

// Backlogs returns how each cluster stands that has keys in the queue, ready or with a worker, ordered by name.
func (q *Queue[T]) Backlogs() []Backlog {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.book.backlogs(q.now())
	slices.SortFunc(all, func(x, y Backlog) int { return strings.Compare(x.Cluster, y.Cluster) })
	return all
}

// now is the time since the queue's origin.
func (q *Queue[T]) now() time.Duration { return time.Since(q.origin) }

// hurry tells the keeper of time that something is to be ready sooner than it knows.
func (q *Queue[T]) hurry() {
	select {
	case q.sooner <- struct{}{}:
	default:
	}
}

// measured is how often what workers are at is measured.
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

// ripen makes those keys ready whose time has come, and returns when to do so again.
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
