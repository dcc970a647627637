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
	waiting  timeHeap[T]
	parts    map[string][]*item[T] // what waits, by part
	turn     *ring.Ring            // clusters from which a key may be taken; the next one is first
	ready    int                   // keys that are ready or parked
	taken    []*item[T]            // keys that workers have
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
	key      T
	of       *namespace[T]
	hand     *Taken // what the worker that has it was given; nil if no worker has it
	readyAt  time.Duration
	takenAt  time.Duration // when the worker took it
	order    uint64        // among keys of equal priority
	priority int
	place    int // index in its heap
	slot     int // index in book.taken
	spot     int // index in its part
	state    state
	trigger  Trigger
}

func (i *item[T]) running() bool { return i.hand != nil }

// namespace of one cluster, with its keys.
type namespace[T comparable] struct {
	cluster *cluster[T]
	name    string
	keys    int // that the queue knows, in any state
	ready   readyHeap[T]
	running int
	in      *line      // where it stands; nil if no key is ready
	unheld  bool       // a key is ready and none is running
	seat    *ring.Ring // in the line's turn
}

// line is where namespaces of a cluster wait for their turn.
type line struct {
	turn   *ring.Ring // the next one is first
	unheld int        // namespaces of which no worker has a key
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
	seat       *ring.Ring // in the book's turn while a key of it may be taken
	seated     bool
}

func newBook[T comparable](workers, perCluster int) book[T] {
	extra := max(1, perCluster/4)
	if workers > 0 { // the last worker isn't for extra keys: another cluster may need it
		extra = max(0, min(extra, workers-1-perCluster))
	}
	return book[T]{workers: workers, perCluster: perCluster, extra: extra,
		items: map[T]*item[T]{}, clusters: map[string]*cluster[T]{}, parts: map[string][]*item[T]{}}
}

// item finds or makes the item of a key.
func (b *book[T]) item(key T, clusterName, namespaceName string) *item[T] {
	if i := b.items[key]; i != nil {
		return i
	}
	c := b.clusters[clusterName]
	if c == nil {
		if c = b.spareClusters.get(); c.seat == nil {
			c.namespaces, c.seat = map[string]*namespace[T]{}, ring.New(1)
			c.seat.Value = c
		}
		c.name, c.passed = clusterName, 0
		b.clusters[clusterName] = c
	}
	n := c.namespaces[namespaceName]
	if n == nil {
		if n = b.spareNamespaces.get(); n.seat == nil {
			n.seat = ring.New(1)
			n.seat.Value = n
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
		if n.cluster = nil; cap(n.ready) > maxSpare {
			n.ready = nil
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
		b.items, b.waiting, b.most = map[T]*item[T]{}, nil, 0
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
			heap.Fix(&b.waiting, i.place)
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
			heap.Fix(&i.of.ready, i.place)
			i.of.stand()
		}
	}
}

// await lets a key that is in no heap wait for its time.
func (b *book[T]) await(i *item[T]) {
	i.state = waiting
	heap.Push(&b.waiting, i)
	if b.part != nil {
		part := b.part(i.key)
		i.spot = len(b.parts[part])
		b.parts[part] = append(b.parts[part], i)
	}
}

// unawait undoes await.
func (b *book[T]) unawait(i *item[T]) {
	i.state = nowhere
	heap.Remove(&b.waiting, i.place)
	if b.part == nil {
		return
	}
	part := b.part(i.key)
	all := b.parts[part]
	last := len(all) - 1
	all[i.spot] = all[last]
	all[i.spot].spot = i.spot
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
	n.stand()
}

// stand puts the namespace where it belongs after its keys have changed.
func (n *namespace[T]) stand() {
	var in *line
	switch {
	case len(n.ready) == 0:
	case n.ready[0].priority < 0:
		in = &n.cluster.low
	default:
		in = &n.cluster.usual
	}
	if n.unheld {
		n.in.unheld--
	}
	if in != n.in {
		if n.in != nil {
			n.in.turn = unseat(n.in.turn, n.seat)
		}
		if in != nil {
			in.turn = seat(in.turn, n.seat)
		}
		n.in = in
	}
	if n.unheld = in != nil && n.running == 0; n.unheld {
		in.unheld++
	}
}

// busy reports whether a cluster has keys that are ready, parked or running.
func (c *cluster[T]) busy() bool { return c.ready+c.parked+c.running > 0 }

// full reports whether a cluster has all the workers that any key of it may have.
func (b *book[T]) full(c *cluster[T]) bool { return b.perCluster > 0 && c.running >= b.perCluster }

// may reports whether a key may be taken from the line. If the cluster is full, no worker may have another key of the
// namespace.
func (l *line) may(full bool) bool { return l.turn != nil && (!full || l.unheld > 0) }

// settle updates the count of active clusters, and whether this one is in turn, after its keys have changed.
// wasBusy is what busy returned before the change.
func (b *book[T]) settle(c *cluster[T], wasBusy bool) {
	switch busy := c.busy(); {
	case busy && !wasBusy:
		b.active++
	case !busy && wasBusy:
		b.active--
	}
	more := c.usual.unheld+c.low.unheld > 0 && c.running-b.perCluster < b.extra
	switch may := c.ready > 0 && (!b.full(c) || more); {
	case may && !c.seated:
		b.turn, c.seated = seat(b.turn, c.seat), true
	case !may && c.seated:
		b.turn, c.seated = unseat(b.turn, c.seat), false
	}
}

// seat adds one at the end of the ring that begins with first, and returns the ring.
func seat(first, one *ring.Ring) *ring.Ring {
	if first == nil {
		return one
	}
	first.Prev().Link(one)
	return first
}

// unseat removes one from the ring that begins with first, and returns the rest.
func unseat(first, one *ring.Ring) *ring.Ring {
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
	b.turn = c.seat.Next()
	full, l := b.full(c), &c.usual
	if c.low.may(full) {
		if c.passed++; c.passed == lowEvery || !l.may(full) {
			l, c.passed = &c.low, 0
		}
	}
	n := l.turn.Value.(*namespace[T])
	if full { // settle has seen that there is one; each that is passed over has a worker, so there are few
		for !n.unheld {
			n = n.seat.Next().Value.(*namespace[T])
		}
	}
	l.turn = n.seat.Next()
	i := heap.Pop(&n.ready).(*item[T])
	b.ready--
	c.ready--
	c.running++
	n.running++
	n.stand()
	i.state, i.takenAt, i.slot = nowhere, now, len(b.taken)
	b.taken = append(b.taken, i)
	i.hand = b.spareTaken.get()
	*i.hand = Taken{Priority: i.priority, Trigger: i.trigger}
	b.settle(c, true)
	return i
}

// nextCluster returns the next cluster in turn that may have one more worker; nil if there is none.
func (b *book[T]) nextCluster() *cluster[T] {
	if b.turn == nil {
		return nil
	}
	free := b.workers - len(b.taken)
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
	// The last 1/reserve of the workers is for clusters with less than an equal share. 1/8 or 1/16 doesn't do: 15 slow
	// clusters with a backlog would leave too few workers for 35 good ones, whose keys come and go. The 99th percentile
	// of the good ones would be half a second (see neighbours_test.go).
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
	*i.hand = Taken{}
	b.spareTaken.put(i.hand)
	i.hand = nil
	last := len(b.taken) - 1
	b.taken[i.slot] = b.taken[last]
	b.taken[i.slot].slot = i.slot
	b.taken[last], b.taken = nil, b.taken[:last]
	c.running--
	i.of.running--
	if i.state == parked {
		c.parked--
		b.enqueue(i)
	} else {
		i.of.stand()
	}
	b.settle(c, true)
	if i.state == nowhere {
		b.forget(i)
	}
	return took, true
}

// nextRipe returns when the first waiting key becomes ready; never if no key waits.
func (b *book[T]) nextRipe() time.Duration {
	if len(b.waiting) == 0 {
		return never
	}
	return b.waiting[0].readyAt
}

// ripen makes one key ready if its time has come, and reports whether there was one.
func (b *book[T]) ripen(now time.Duration) bool {
	if b.nextRipe() > now {
		return false
	}
	i := b.waiting[0]
	b.unawait(i)
	b.makeReady(i)
	return true
}

// unfinished returns for how long workers have had their keys: the sum, and the longest.
func (b *book[T]) unfinished(now time.Duration) (total, longest time.Duration) {
	for _, i := range b.taken {
		total, longest = total+now-i.takenAt, max(longest, now-i.takenAt)
	}
	return total, longest
}

func (b *book[T]) backlogs(now time.Duration) (all []Backlog) {
	again := map[*namespace[T]]Waiting{} // of keys that are parked
	for _, i := range b.taken {
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
			w.Namespace, w.Ready = n.name, w.Ready+len(n.ready)
			for _, i := range n.ready {
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

// readyHeap orders keys by priority, then by when they became ready.
type readyHeap[T comparable] []*item[T]

func (h readyHeap[T]) Len() int { return len(h) }
func (h readyHeap[T]) Less(x, y int) bool {
	if h[x].priority != h[y].priority {
		return h[x].priority > h[y].priority
	}
	return h[x].order < h[y].order
}
func (h readyHeap[T]) Swap(x, y int) {
	h[x], h[y] = h[y], h[x]
	h[x].place, h[y].place = x, y
}
func (h *readyHeap[T]) Push(i any) { push((*[]*item[T])(h), i.(*item[T])) }
func (h *readyHeap[T]) Pop() any   { return pop((*[]*item[T])(h)) }

// timeHeap orders keys by when they become ready.
type timeHeap[T comparable] []*item[T]

func (h timeHeap[T]) Len() int           { return len(h) }
func (h timeHeap[T]) Less(x, y int) bool { return h[x].readyAt < h[y].readyAt }
func (h timeHeap[T]) Swap(x, y int) {
	h[x], h[y] = h[y], h[x]
	h[x].place, h[y].place = x, y
}
func (h *timeHeap[T]) Push(i any) { push((*[]*item[T])(h), i.(*item[T])) }
func (h *timeHeap[T]) Pop() any   { return pop((*[]*item[T])(h)) }

func push[T comparable](h *[]*item[T], i *item[T]) {
	i.place = len(*h)
	*h = append(*h, i)
}

func pop[T comparable](h *[]*item[T]) *item[T] {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return i
}
