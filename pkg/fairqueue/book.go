package fairqueue

import (
	"cmp"
	"container/heap"
	"container/ring"
	"slices"
	"time"
)

// book holds all keys and decides which is next. It has no lock, clock or goroutine. Times are arguments, as
// durations since some origin.
type book[T comparable] struct {
	workers    int // 0: no limit
	perCluster int // 0: no limit
	extra      int // workers beyond perCluster, only for namespaces that have none

	part func(T) string // of a key; nil: keys are of no part

	items    map[T]*item[T]
	clusters map[string]*cluster[T]
	waiting  itemHeap[T]
	parts    map[string][]*item[T] // what waits, by part
	turn     *ring.Ring            // clusters from which a key may be taken; the next one is first
	ready    int                   // keys that are ready or parked
	running  []*item[T]            // keys that workers have
	active   int                   // clusters with keys that are ready or running
	count    uint64                // of keys that became ready; it orders them
	most     int                   // the most keys that items has had since it was made

	// Free lists, since these come and go with keys.
	spareItems      spare[item[T]]
	spareNamespaces spare[namespace[T]]
	spareClusters   spare[cluster[T]]
	spareTaken      spare[Taken]
}

// state is where a key is.
type state uint8

const (
	nowhere state = iota // new, or with a worker only
	waiting              // until its time comes
	ready                // in its namespace's heap
	parked               // became ready while a worker has it; moves to ready when the worker is done
)

// item is the entry of one key, for as long as the queue knows the key.
type item[T comparable] struct {
	key          T
	of           *namespace[T]
	taken        *Taken // what the worker that has it was given; nil if no worker has it
	readyAt      time.Duration
	takenAt      time.Duration // when the worker took it
	order        uint64        // among keys of equal priority
	priority     int
	heapIndex    int
	runningIndex int // in book.running
	partIndex    int // in book.parts
	state        state
	trigger      Trigger
}

func (i *item[T]) running() bool { return i.taken != nil }

// namespace of one cluster, with its keys.
type namespace[T comparable] struct {
	cluster *cluster[T]
	name    string
	keys    int // that the queue knows, in any state
	ready   itemHeap[T]
	running int
	line    *line      // in which it waits; nil if no key is ready
	idle    bool       // a key is ready and no worker has one
	element *ring.Ring // of the line's turn
}

// line is where namespaces of a cluster wait for their turn.
type line struct {
	turn *ring.Ring // the next one is first
	idle int        // how many of its namespaces are idle
}

// cluster with its namespaces.
type cluster[T comparable] struct {
	name       string
	namespaces map[string]*namespace[T]
	most       int  // namespaces at a time, since the map was made
	usual      line // namespaces with a ready key
	low        line // those of which every ready key has a low priority
	passed     int  // turns that low could have had since its last one
	ready      int  // keys in namespaces' heaps
	parked     int
	running    int
	element    *ring.Ring // of the book's turn
	inTurn     bool       // a key of it may be taken
}

func newBook[T comparable](workers, perCluster int) book[T] {
	extra := max(1, perCluster/4)
	if workers > 0 { // the last worker isn't for extra keys: another cluster may need it
		extra = max(0, min(extra, workers-1-perCluster))
	}
	return book[T]{workers: workers, perCluster: perCluster, extra: extra, waiting: itemHeap[T]{before: dueBefore[T]},
		items: map[T]*item[T]{}, clusters: map[string]*cluster[T]{}, parts: map[string][]*item[T]{}}
}

// item finds or makes the item of a key.
func (b *book[T]) item(key T, clusterName, namespaceName string) *item[T] {
	if i := b.items[key]; i != nil {
		return i
	}
	c := b.clusters[clusterName]
	if c == nil {
		if c = b.spareClusters.get(); c.element == nil {
			c.namespaces, c.element = map[string]*namespace[T]{}, ring.New(1)
			c.element.Value = c
		}
		c.name, c.passed = clusterName, 0
		b.clusters[clusterName] = c
	}
	n := c.namespaces[namespaceName]
	if n == nil {
		if n = b.spareNamespaces.get(); n.element == nil {
			n.element, n.ready.before = ring.New(1), readyBefore[T]
			n.element.Value = n
		}
		n.cluster, n.name = c, namespaceName
		c.namespaces[namespaceName] = n
		c.most = max(c.most, len(c.namespaces))
	}
	n.keys++
	i := b.spareItems.get()
	i.key, i.of = key, n
	b.items[key] = i
	b.most = max(b.most, len(b.items))
	return i
}

// spare is a free list.
type spare[E any] []*E

// maxSpare bounds a free list.
const maxSpare = 1024

func (s *spare[E]) get() *E {
	last := len(*s) - 1
	if last < 0 {
		return new(E)
	}
	e := (*s)[last]
	*s = (*s)[:last]
	return e
}

func (s *spare[E]) put(e *E) {
	if len(*s) < maxSpare {
		*s = append(*s, e)
	}
}

// forget drops a key that is in no heap and that no worker has. With its last key, it drops a namespace and a
// cluster.
func (b *book[T]) forget(i *item[T]) {
	n, c := i.of, i.of.cluster
	delete(b.items, i.key)
	if n.keys--; n.keys == 0 {
		delete(c.namespaces, n.name)
		if n.cluster = nil; cap(n.ready.items) > maxSpare {
			n.ready.items = nil
		}
		b.spareNamespaces.put(n)
		if len(c.namespaces) == 0 {
			delete(b.clusters, c.name)
			if c.most > maxSpare {
				c.namespaces, c.most = map[string]*namespace[T]{}, 0
			}
			b.spareClusters.put(c)
		}
	}
	*i = item[T]{}
	b.spareItems.put(i)
	if len(b.items) == 0 && b.most > maxSpare { // maps and heaps keep the room that they once needed
		b.items, b.waiting.items, b.most = map[T]*item[T]{}, nil, 0
	}
}

// add records one more addition of a key. The key is ready at the earliest time and at the highest priority of all.
func (b *book[T]) add(i *item[T], now, at time.Duration, priority int, why Trigger) {
	switch i.state {
	case nowhere:
		i.priority, i.readyAt, i.trigger = priority, at, why
		if at > now {
			b.await(i)
			return
		}
		b.makeReady(i)
	case waiting:
		i.priority = max(i.priority, priority)
		if at >= i.readyAt {
			return
		}
		i.readyAt, i.trigger = at, why
		if at > now {
			heap.Fix(&b.waiting, i.heapIndex)
			return
		}
		b.unawait(i)
		b.makeReady(i)
	case ready, parked:
		if priority <= i.priority {
			return
		}
		i.priority, i.order = priority, b.next()
		if at <= now {
			i.trigger = why
		}
		if i.state == ready {
			heap.Fix(&i.of.ready, i.heapIndex)
			i.of.refile()
		}
	}
}

// await lets a key that is in no heap wait for its time.
func (b *book[T]) await(i *item[T]) {
	i.state = waiting
	heap.Push(&b.waiting, i)
	if b.part != nil {
		part := b.part(i.key)
		i.partIndex = len(b.parts[part])
		b.parts[part] = append(b.parts[part], i)
	}
}

// unawait undoes await.
func (b *book[T]) unawait(i *item[T]) {
	i.state = nowhere
	heap.Remove(&b.waiting, i.heapIndex)
	if b.part == nil {
		return
	}
	part := b.part(i.key)
	all := b.parts[part]
	last := len(all) - 1
	all[i.partIndex] = all[last]
	all[i.partIndex].partIndex = i.partIndex
	all[last] = nil
	if b.parts[part] = all[:last]; last == 0 {
		delete(b.parts, part)
	}
}

// drop takes out the keys of a part that wait for their time, and returns them.
func (b *book[T]) drop(part string) (keys []T) {
	for {
		all := b.parts[part]
		if len(all) == 0 {
			return keys
		}
		i := all[len(all)-1]
		keys = append(keys, i.key)
		b.unawait(i)
		if !i.running() {
			b.forget(i)
		}
	}
}

func (b *book[T]) next() uint64 {
	b.count++
	return b.count
}

// makeReady moves a key that is in no heap to its namespace's heap. If a worker has the key, it parks it instead.
func (b *book[T]) makeReady(i *item[T]) {
	i.order = b.next()
	b.ready++
	c := i.of.cluster
	defer b.settle(c, c.busy())
	if i.running() {
		i.state = parked
		c.parked++
		return
	}
	b.enqueue(i)
}

// enqueue puts a key into its namespace's heap, and the namespace in turn.
func (b *book[T]) enqueue(i *item[T]) {
	n := i.of
	i.state = ready
	heap.Push(&n.ready, i)
	n.cluster.ready++
	n.refile()
}

// refile puts the namespace into the line where it belongs after its keys have changed.
func (n *namespace[T]) refile() {
	var to *line
	switch {
	case len(n.ready.items) == 0:
	case n.ready.items[0].priority < 0:
		to = &n.cluster.low
	default:
		to = &n.cluster.usual
	}
	if n.idle {
		n.line.idle--
	}
	if to != n.line {
		if n.line != nil {
			n.line.turn = remove(n.line.turn, n.element)
		}
		if to != nil {
			to.turn = insert(to.turn, n.element)
		}
		n.line = to
	}
	if n.idle = to != nil && n.running == 0; n.idle {
		to.idle++
	}
}

// busy reports whether a cluster has keys that are ready, parked or running.
func (c *cluster[T]) busy() bool { return c.ready+c.parked+c.running > 0 }

// full reports whether a cluster has all the workers that any key of it may have.
func (b *book[T]) full(c *cluster[T]) bool { return b.perCluster > 0 && c.running >= b.perCluster }

// may reports whether a key may be taken from the line. If the cluster is full, no worker may have another key of the
// namespace.
func (l *line) may(full bool) bool { return l.turn != nil && (!full || l.idle > 0) }

// settle updates the count of active clusters, and whether this one is in turn, after its keys have changed.
// wasBusy is what busy returned before the change.
func (b *book[T]) settle(c *cluster[T], wasBusy bool) {
	switch busy := c.busy(); {
	case busy && !wasBusy:
		b.active++
	case !busy && wasBusy:
		b.active--
	}
	more := c.usual.idle+c.low.idle > 0 && c.running-b.perCluster < b.extra
	switch may := c.ready > 0 && (!b.full(c) || more); {
	case may && !c.inTurn:
		b.turn, c.inTurn = insert(b.turn, c.element), true
	case !may && c.inTurn:
		b.turn, c.inTurn = remove(b.turn, c.element), false
	}
}

// insert adds one at the end of the ring that begins with first, and returns the ring.
func insert(first, one *ring.Ring) *ring.Ring {
	if first == nil {
		return one
	}
	first.Prev().Link(one)
	return first
}

// remove removes one from the ring that begins with first, and returns the rest.
func remove(first, one *ring.Ring) *ring.Ring {
	if one.Next() == one { // the only one; Len would walk the whole ring
		return nil
	}
	if first == one {
		first = one.Next()
	}
	one.Prev().Unlink(1)
	return first
}

// take hands out the next key; nil if none may be taken now.
func (b *book[T]) take(now time.Duration) *item[T] {
	c := b.nextCluster()
	if c == nil {
		return nil
	}
	b.turn = c.element.Next()
	full, l := b.full(c), &c.usual
	if c.low.may(full) {
		if c.passed++; c.passed == lowEvery || !l.may(full) {
			l, c.passed = &c.low, 0
		}
	}
	n := l.turn.Value.(*namespace[T])
	if full { // settle has seen that there is one; each that is passed over has a worker, so there are few
		for !n.idle {
			n = n.element.Next().Value.(*namespace[T])
		}
	}
	l.turn = n.element.Next()
	i := heap.Pop(&n.ready).(*item[T])
	b.ready--
	c.ready--
	c.running++
	n.running++
	n.refile()
	i.state, i.takenAt, i.runningIndex = nowhere, now, len(b.running)
	b.running = append(b.running, i)
	i.taken = b.spareTaken.get()
	*i.taken = Taken{Priority: i.priority, Trigger: i.trigger}
	b.settle(c, true)
	return i
}

// nextCluster returns the next cluster in turn that may have one more worker; nil if there is none.
func (b *book[T]) nextCluster() *cluster[T] {
	if b.turn == nil {
		return nil
	}
	free := b.workers - len(b.running)
	if b.workers == 0 || free > b.workers/reserve || b.active == 1 {
		return b.turn.Value.(*cluster[T])
	}
	share := max(1, b.workers/b.active)
	share = max(1, min(share, share*free*lastOnes/b.workers))
	for at := b.turn; ; {
		if c := at.Value.(*cluster[T]); c.running < share {
			return c
		}
		if at = at.Next(); at == b.turn {
			return nil
		}
	}
}

const (
	// One of lowEvery turns of a cluster is for namespaces with keys of low priority alone, if it has some.
	lowEvery = 8
	// The last 1/reserve of the workers is for clusters with less than an equal share. Smaller fractions failed
	// neighbours_test.go: slow clusters with a backlog left too few workers for good ones, whose keys come and go.
	reserve = 4
	// Once less than 1/lastOnes of the workers is free, the share shrinks with each worker taken. Otherwise slow
	// clusters would keep their full shares, which together are all workers. A new cluster would wait until one of
	// them gives a worker back.
	lastOnes = 16
)

// done records that a worker is done with a key, and returns how long it had the key. ok is false if no worker had
// it.
func (b *book[T]) done(key T, now time.Duration) (took time.Duration, ok bool) {
	i := b.items[key]
	if i == nil || !i.running() {
		return 0, false
	}
	c := i.of.cluster
	took = now - i.takenAt
	*i.taken = Taken{}
	b.spareTaken.put(i.taken)
	i.taken = nil
	last := len(b.running) - 1
	b.running[i.runningIndex] = b.running[last]
	b.running[i.runningIndex].runningIndex = i.runningIndex
	b.running[last], b.running = nil, b.running[:last]
	c.running--
	i.of.running--
	if i.state == parked {
		c.parked--
		b.enqueue(i)
	} else {
		i.of.refile()
	}
	b.settle(c, true)
	if i.state == nowhere {
		b.forget(i)
	}
	return took, true
}

// nextRipe returns when the first waiting key becomes ready; never if no key waits.
func (b *book[T]) nextRipe() time.Duration {
	if len(b.waiting.items) == 0 {
		return never
	}
	return b.waiting.items[0].readyAt
}

// ripen makes one key ready if its time has come, and reports whether there was one.
func (b *book[T]) ripen(now time.Duration) bool {
	if b.nextRipe() > now {
		return false
	}
	i := b.waiting.items[0]
	b.unawait(i)
	b.makeReady(i)
	return true
}

// unfinished returns for how long workers have had their keys: the sum, and the longest.
func (b *book[T]) unfinished(now time.Duration) (total, longest time.Duration) {
	for _, i := range b.running {
		total, longest = total+now-i.takenAt, max(longest, now-i.takenAt)
	}
	return total, longest
}

func (b *book[T]) backlogs(now time.Duration) (all []Backlog) {
	again := map[*namespace[T]]Waiting{} // of keys that are parked
	for _, i := range b.running {
		if i.state == parked {
			w := again[i.of]
			again[i.of] = Waiting{Ready: w.Ready + 1, Wait: max(w.Wait, now-i.readyAt)}
		}
	}
	for _, c := range b.clusters {
		if !c.busy() {
			continue
		}
		one := Backlog{Cluster: c.name, Ready: c.ready + c.parked, Running: c.running}
		for _, n := range c.namespaces {
			w := again[n]
			w.Namespace, w.Ready = n.name, w.Ready+len(n.ready.items)
			for _, i := range n.ready.items {
				w.Wait = max(w.Wait, now-i.readyAt)
			}
			if w.Ready > 0 {
				one.Enter(w)
			}
		}
		all = append(all, one)
	}
	return all
}

// Enter adds how long a namespace waits to Wait, and to Longest if it is one of those that wait longest.
func (b *Backlog) Enter(w Waiting) {
	b.Wait = max(b.Wait, w.Wait)
	at, _ := slices.BinarySearchFunc(b.Longest, w, func(x, y Waiting) int {
		return cmp.Or(cmp.Compare(y.Wait, x.Wait), cmp.Compare(x.Namespace, y.Namespace))
	})
	if at < MostNamespaces {
		b.Longest = slices.Insert(b.Longest, at, w)
		b.Longest = b.Longest[:min(len(b.Longest), MostNamespaces)]
	}
}

// itemHeap is a heap of items.
type itemHeap[T comparable] struct {
	items  []*item[T]
	before func(x, y *item[T]) bool
}

// readyBefore orders keys by priority, then by when they became ready.
func readyBefore[T comparable](x, y *item[T]) bool {
	if x.priority != y.priority {
		return x.priority > y.priority
	}
	return x.order < y.order
}

// dueBefore orders keys by when they will become ready.
func dueBefore[T comparable](x, y *item[T]) bool { return x.readyAt < y.readyAt }

func (h *itemHeap[T]) Len() int           { return len(h.items) }
func (h *itemHeap[T]) Less(x, y int) bool { return h.before(h.items[x], h.items[y]) }
func (h *itemHeap[T]) Swap(x, y int) {
	h.items[x], h.items[y] = h.items[y], h.items[x]
	h.items[x].heapIndex, h.items[y].heapIndex = x, y
}

func (h *itemHeap[T]) Push(i any) {
	i.(*item[T]).heapIndex = len(h.items)
	h.items = append(h.items, i.(*item[T]))
}

func (h *itemHeap[T]) Pop() any {
	last := len(h.items) - 1
	i := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	return i
}
