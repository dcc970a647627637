package telemetry

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// trigger is why a key became ready.
type trigger uint8

const (
	byEvent    trigger = iota // something changed
	byBackfill                // its shard became active, or a resync: low priority
	byTimer                   // the reconciler had asked for it
	byRetry                   // the last reconcile failed or asked for another try
)

func (t trigger) String() string { return [...]string{"event", "backfill", "timer", "retry"}[t] }

const (
	stripes = 16
	// maxNoted bounds the keys whose time is remembered, over all stripes: some 40 MiB. The waits of keys beyond it
	// count as zero.
	maxNoted = 1 << 20
)

// queue is a priority queue that knows since when each key is ready. It changes nothing about the order.
type queue struct {
	priorityqueue.PriorityQueue[mcreconcile.Request]
	limiter workqueue.TypedRateLimiter[mcreconcile.Request]
	took    func(mcreconcile.Request, *taken) // completes what is known of a key that a worker takes; may be nil
	seed    maphash.Seed
	origin  time.Time // of the monotonic times in the notes

	noted   atomic.Int64
	stripes [stripes]stripe

	mu    sync.Mutex // guards taken and spare
	taken map[mcreconcile.Request]*taken
	spare []*taken
}

// stripe is a part of the notes, so that looking for the oldest holds nobody up for long.
type stripe struct {
	mu    sync.Mutex // guards notes
	notes map[uint64]note
}

// note says when a key is ready, by its hash: keys themselves would cost several times the memory.
type note struct {
	ready   time.Duration // after origin
	trigger trigger
}

// taken is a key that a worker has.
type taken struct {
	ready    time.Time
	known    bool // whether ready is; if not it is when the key was taken
	backfill bool // it had a low priority
	trigger  trigger
	attempt  int
	flight   *flight
}

func newQueue(inner priorityqueue.PriorityQueue[mcreconcile.Request], limiter workqueue.TypedRateLimiter[mcreconcile.Request],
	took func(mcreconcile.Request, *taken)) *queue {
	q := &queue{
		PriorityQueue: inner, limiter: limiter, took: took, seed: maphash.MakeSeed(), origin: time.Now(),
		taken: map[mcreconcile.Request]*taken{},
	}
	for i := range q.stripes {
		q.stripes[i].notes = map[uint64]note{}
	}
	return q
}

// AddWithOpts implements priorityqueue.PriorityQueue. A rate-limited key's delay is asked for here and not by the inner
// queue, so that it is known.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, items ...mcreconcile.Request) {
	if q.ShuttingDown() {
		return
	}
	if !o.RateLimited {
		why := byEvent
		switch {
		case o.After > 0:
			why = byTimer
		case o.Priority != nil && *o.Priority < 0:
			why = byBackfill
		}
		for i := range items {
			q.note(items[i], o.After, why)
		}
		q.PriorityQueue.AddWithOpts(o, items...)
		return
	}
	for i := range items {
		after := q.limiter.When(items[i])
		if o.After > 0 {
			after = min(after, o.After)
		}
		q.note(items[i], after, byRetry)
		q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: o.Priority}, items[i])
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(item mcreconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, item) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(item mcreconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, item)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(item mcreconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, item)
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (mcreconcile.Request, bool) {
	item, _, shutdown := q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (mcreconcile.Request, int, bool) {
	item, priority, shutdown := q.PriorityQueue.GetWithPriority()
	if !shutdown {
		q.take(item, priority < 0)
	}
	return item, priority, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(item mcreconcile.Request) {
	q.release(item)
	q.PriorityQueue.Done(item)
}

// release forgets a key that a worker had.
func (q *queue) release(item mcreconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.taken[item]; t != nil {
		delete(q.taken, item)
		*t = taken{}
		q.spare = append(q.spare, t)
	}
}

// note remembers when a key is ready; of several times the earliest counts, as in the queue.
func (q *queue) note(item mcreconcile.Request, after time.Duration, why trigger) {
	ready := time.Since(q.origin) + max(after, 0)
	hash := maphash.Comparable(q.seed, item)
	s := &q.stripes[hash%stripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.notes[hash]
	switch {
	case !known && q.noted.Load() >= maxNoted:
		return
	case !known:
		q.noted.Add(1)
	case old.ready <= ready:
		return
	}
	s.notes[hash] = note{ready, why}
}

// take moves a key from the notes to what workers have. Where it was added again at the very moment when it was handed
// out there may be no note of it; then it counts as ready now.
func (q *queue) take(item mcreconcile.Request, backfill bool) {
	now := time.Now()
	hash := maphash.Comparable(q.seed, item)
	s := &q.stripes[hash%stripes]
	s.mu.Lock()
	n, known := s.notes[hash]
	if known {
		delete(s.notes, hash)
		q.noted.Add(-1)
	}
	s.mu.Unlock()

	q.mu.Lock()
	var t *taken
	if last := len(q.spare) - 1; last >= 0 {
		t, q.spare = q.spare[last], q.spare[:last]
	} else {
		t = &taken{}
	}
	q.taken[item] = t
	q.mu.Unlock()

	t.ready, t.known, t.backfill = now, known, backfill
	if known {
		if ready := q.origin.Add(n.ready); ready.Before(now) {
			t.ready = ready
		}
		t.trigger = n.trigger
	}
	t.attempt = q.limiter.NumRequeues(item) + 1
	if q.took != nil {
		q.took(item, t)
	}
}

// inHand returns what is known of a key that a worker has, the zero value for one that it hasn't. A key is in one
// worker's hands at a time.
func (q *queue) inHand(item mcreconcile.Request) taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.taken[item]; t != nil {
		return *t
	}
	return taken{}
}

// oldest returns for how long the key that is ready longest has been waiting; zero if none is.
func (q *queue) oldest() time.Duration {
	now := time.Since(q.origin)
	first := now
	for i := range q.stripes {
		s := &q.stripes[i]
		s.mu.Lock()
		for _, n := range s.notes {
			first = min(first, n.ready)
		}
		s.mu.Unlock()
	}
	return now - first
}
