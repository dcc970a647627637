package shard

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/internal/informer"
)

// ahead is how long before its due time, at the latest, a key is handed to the workqueue, which holds it for the rest.
// So keys become ready exactly on time and in order, however many there are.
const ahead = time.Second

// longestWait bounds how long one timer runs. It thereby bounds how late a key is after the wall clock was set
// forward or the machine slept, which timers don't notice.
const longestWait = time.Minute

// alarms holds the due times of a shard's waiting objects of one kind. A waiting object costs an entry here instead
// of a key in the workqueue. Entries are hints: when an entry is due, the object is asked again for its due time. So
// entries of objects that have changed or gone may stay, until they outnumber the others. It is safe for concurrent
// use.
type alarms struct {
	ctx     context.Context                // once it has ended, no alarm is set
	store   func() *informer.Store         // returns the objects; nil while there are no caches
	due     func(client.Object) time.Time  // an object's due time; zero if it waits for none
	enqueue func(client.Object, time.Time) // called for an object when its due time is near

	mu    sync.Mutex // guards all below
	times alarmHeap
	timer *time.Timer // nil before the first is set
}

// alarm is an object's time, in nanoseconds since 1970.
type alarm struct {
	at  int64
	key types.NamespacedName
}

// far reports whether a time is too far off for the queue.
func far(due time.Time) bool { return time.Until(due) > 2*ahead }

// nanos converts a due time for an alarm. Times after the year 2261 become the largest value.
func nanos(due time.Time) int64 {
	if due.Year() > 2261 {
		return math.MaxInt64
	}
	return due.UnixNano()
}

// set adds alarms.
func (a *alarms) set(more ...alarm) {
	if len(more) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	if store := a.store(); store != nil && len(a.times)+len(more) > 2*store.Len()+64 {
		more = a.compact(store, append(a.times, more...))
		a.times = make(alarmHeap, 0, len(more)+len(more)/8)
	}
	if len(more) == 1 {
		heap.Push(&a.times, more[0])
	} else {
		a.times = append(a.times, more...)
		heap.Init(&a.times)
	}
	a.setTimer()
}

// compact rebuilds the alarms without the outdated ones. It keeps all that are near, since their keys aren't in the
// workqueue yet, and one alarm for each object whose due time is far. An object without an alarm gets none, whatever
// its due time: the source's predicate refused it.
func (a *alarms) compact(store *informer.Store, old []alarm) (all []alarm) {
	until := time.Now().Add(2 * ahead)
	seen := make(map[types.NamespacedName]struct{}, store.Len())
	for _, o := range old {
		if o.at <= until.UnixNano() {
			all = append(all, o)
		}
		if _, again := seen[o.key]; again {
			continue
		}
		seen[o.key] = struct{}{}
		if object := store.Peek(o.key); object != nil {
			if due := a.due(object); due.After(until) {
				all = append(all, alarm{nanos(due), o.key})
			}
		}
	}
	return all
}

// clear forgets all alarms.
func (a *alarms) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = nil
	if a.timer != nil {
		a.timer.Stop()
	}
}

// setTimer sets the timer to the first alarm. Call it with the lock held.
func (a *alarms) setTimer() {
	if len(a.times) == 0 {
		return
	}
	wait := min(time.Until(time.Unix(0, a.times[0].at))-ahead, longestWait)
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, a.fire)
	} else {
		a.timer.Reset(wait)
	}
}

// fire handles the timer: it enqueues all objects whose due time is near.
func (a *alarms) fire() {
	a.mu.Lock()
	var near []alarm
	for until := time.Now().Add(2 * ahead).UnixNano(); len(a.times) > 0 && a.times[0].at <= until; {
		near = append(near, heap.Pop(&a.times).(alarm))
	}
	a.setTimer()
	a.mu.Unlock()
	store := a.store()
	if store == nil {
		return
	}
	for _, r := range near {
		o := store.Peek(r.key)
		if o == nil {
			continue
		}
		if due := a.due(o); nanos(due) == r.at { // otherwise it has another alarm, or waits for no time
			a.enqueue(o, due)
		}
	}
}

// alarmHeap has the first alarm in front.
type alarmHeap []alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(x, y int) bool { return h[x].at < h[y].at }
func (h alarmHeap) Swap(x, y int)      { h[x], h[y] = h[y], h[x] }
func (h *alarmHeap) Push(x any)        { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
