package shardtest

import "time"

// eventKind says what an event is about.
type eventKind uint8

const (
	evWake    eventKind = iota // the machine asked for a tick
	evArrive                   // a request reaches the store
	evReply                    // an answer reaches the process
	evTimeout                  // the process stops waiting for an answer
	evWatch                    // the watch has news
	evWarmed                   // a shard's caches are synced
	evDrained                  // the last running reconcile of a shard ended
	evStopped                  // nothing of an incarnation that lapsed runs any more
	evHealth                   // the process finds out whether it reaches a cluster
	evCounted                  // the process finds out how many objects a cluster has
	evCluster                  // the process learns which clusters exist
	evStart                    // the process starts
	evResume                   // a pause or a sleep ends
	evFault                    // the next fault of the schedule
	evSave                     // a snapshot is taken that will be restored
	evPoll                     // look at liveness
	evReport                   // a kubelet reports how a process ended
)

// event is something that happens at a true time. Events of one instant happen in the order of their pushes.
type event struct {
	at     time.Duration
	order  uint32
	kind   eventKind
	node   int8   // -1: none
	life   uint32 // the life of the node that it is meant for
	n      int32  // a shard, a stream, a fault; 1 for a request that arrives again
	req    int32  // a request's index in the arena: without pointers, events are cheap to move
	number uint64 // the driver's number for the request that this answers
}

func (e *event) before(o *event) bool {
	return e.at < o.at || (e.at == o.at && e.order < o.order)
}

// queue is a binary heap of events by time.
type queue struct {
	heap  []event
	order uint32
}

func (q *queue) push(e event) {
	q.order++
	e.order = q.order
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
}

func (q *queue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.heap[child+1].before(&q.heap[child]) {
			child++
		}
		if !q.heap[child].before(&e) {
			break
		}
		q.heap[i] = q.heap[child]
		i = child
	}
	q.heap[i] = e
	return top
}
