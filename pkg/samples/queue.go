package samples

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Queue is a priority queue that writes a sample for every key that was worked on.
type Queue[T comparable] struct {
	priorityqueue.PriorityQueue[T]
	to  *File
	key func(T) uint64

	mu      sync.Mutex // guards all below; never held while calling the inner queue
	ready   map[T]time.Time
	running map[T]begun
}

// begun is a key in work.
type begun struct {
	ready, start      time.Time
	unknown, backfill bool
}

// NewQueue wraps the queue that build makes. The limiter is the controller's; build gets one that tells the delays.
func NewQueue[T comparable](to *File, key func(T) uint64, limiter workqueue.TypedRateLimiter[T],
	build func(workqueue.TypedRateLimiter[T]) priorityqueue.PriorityQueue[T]) *Queue[T] {
	q := &Queue[T]{to: to, key: key, ready: map[T]time.Time{}, running: map[T]begun{}}
	q.PriorityQueue = build(&tellingLimiter[T]{TypedRateLimiter: limiter, queue: q})
	return q
}

// tellingLimiter lets the queue know when a key that failed is ready again.
type tellingLimiter[T comparable] struct {
	workqueue.TypedRateLimiter[T]
	queue *Queue[T]
}

func (l *tellingLimiter[T]) When(item T) time.Duration {
	delay := l.TypedRateLimiter.When(item)
	l.queue.note(delay, item)
	return delay
}

// note remembers the earliest time at which items are ready.
func (q *Queue[T]) note(delay time.Duration, items ...T) {
	at := time.Now().Add(delay)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range items {
		if known, ok := q.ready[item]; !ok || at.Before(known) {
			q.ready[item] = at
		}
	}
}

func (q *Queue[T]) Add(item T) {
	q.note(0, item)
	q.PriorityQueue.Add(item)
}

func (q *Queue[T]) AddAfter(item T, delay time.Duration) {
	q.note(delay, item)
	q.PriorityQueue.AddAfter(item, delay)
}

// AddWithOpts adds items. Where the rate limiter decides, the delay is noted when it does.
func (q *Queue[T]) AddWithOpts(o priorityqueue.AddOpts, items ...T) {
	if !o.RateLimited {
		q.note(o.After, items...)
	}
	q.PriorityQueue.AddWithOpts(o, items...)
}

func (q *Queue[T]) Get() (T, bool) {
	item, _, shutdown := q.GetWithPriority()
	return item, shutdown
}

func (q *Queue[T]) GetWithPriority() (T, int, bool) {
	item, priority, shutdown := q.PriorityQueue.GetWithPriority()
	if shutdown {
		return item, priority, shutdown
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	at, ok := q.ready[item]
	if !ok {
		// It was added between the moment that the inner queue gave an earlier addition out and the moment that this
		// one heard of it, a matter of microseconds.
		at = now
	}
	delete(q.ready, item)
	q.running[item] = begun{ready: at, start: now, unknown: !ok, backfill: priority < 0}
	return item, priority, shutdown
}

func (q *Queue[T]) Done(item T) {
	now := time.Now()
	q.mu.Lock()
	b, ok := q.running[item]
	delete(q.running, item)
	q.mu.Unlock()
	if ok {
		q.to.Add(Sample{Key: q.key(item), Ready: b.ready, Start: b.start, End: now, ReadyUnknown: b.unknown, Backfill: b.backfill})
	}
	q.PriorityQueue.Done(item)
}
