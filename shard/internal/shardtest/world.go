package shardtest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// world is one run: a store, the processes, and true time.
type world struct {
	schedule Schedule
	pcg      rand.PCG
	now      time.Duration
	queue    queue
	store    store
	nodes    []node
	ids      []keyspace.ShardID
	clusters map[keyspace.ClusterName]int
	names    []keyspace.ClusterName
	awayTill time.Duration // no process reaches the store until then
	// slowTill is until when the store takes slowBy longer, and refusesTill until when it refuses.
	slowTill, slowBy, refusesTill time.Duration
	refuses                       refusal
	// the faults that last until awayTill, slowTill and refusesTill
	awayFault, slowFault, refusesFault *Fault
	requests                           []*[256]request // an arena: addresses stay good
	used                               int32           // requests in it
	// a story runs: nothing is random, and the run doesn't end by itself
	script bool
	// names that clusters got later, and for each the name that the cluster had at first
	alias     map[keyspace.ClusterName]keyspace.ClusterName
	made      map[keyspace.ClusterName]int // how often each was made anew, by its first name
	exchanges bool                         // the schedule exchanges names
	// by name: the last fault that removed its cluster, or gave the name to another
	changed map[keyspace.ClusterName]*Fault

	snapshots   map[int32]records // by the index of the fault that restores it
	restoredAt  time.Duration     // when the store was last set back
	noStartTill time.Duration     // no process starts before
	lost        bool              // records were lost when the history was replaced
	replaced    int               // how often the history was replaced, or much of it lost
	lostBefore  [streams]int      // what is before this in a log isn't shown any more, after the store was set back
	historyFrom [streams]int      // where each log ended after the store was set back; no list starts earlier
	doubted     bool              // after the last fault, a process assumed that the store was set back

	checks
	Stats
	out io.Writer // the narration, nil for none
	all bool      // narrate renewals and watches too
}

// Stats counts what happened in one or more runs.
type Stats struct {
	Schedules             int
	Events, Steps, Writes int
	Moves                 int // handoffs, planned and on exit
	Claims, Seals, Lapses int
	Restores              int
	Proven                int             // seals of incarnations that a Pod proved to have ended
	Faults                [faultKinds]int // those that had an effect
}

func (s *Stats) add(o Stats) {
	s.Schedules += o.Schedules
	s.Events += o.Events
	s.Steps += o.Steps
	s.Writes += o.Writes
	s.Moves += o.Moves
	s.Claims += o.Claims
	s.Seals += o.Seals
	s.Proven += o.Proven
	s.Lapses += o.Lapses
	s.Restores += o.Restores
	for k := range s.Faults {
		s.Faults[k] += o.Faults[k]
	}
}

var clusterNames = []keyspace.ClusterName{"east", "west", "north"}

// reset prepares the world for a schedule. Of the run before it keeps memory only.
func (w *world) reset(s Schedule) {
	*w = world{
		schedule: s, script: w.script, out: w.out, all: w.all, Stats: Stats{Schedules: 1},
		clusters: map[keyspace.ClusterName]int{}, made: map[keyspace.ClusterName]int{}, snapshots: map[int32]records{},
		changed: map[keyspace.ClusterName]*Fault{}, alias: map[keyspace.ClusterName]keyspace.ClusterName{},
		queue: queue{heap: w.queue.heap[:0]}, store: w.store, nodes: w.nodes, ids: w.ids[:0], names: w.names[:0],
		requests: w.requests, checks: w.checks, exchanges: s.has(Exchange),
	}
	w.pcg.Seed(s.Seed, 0x51)
	w.store.reset()
	if s.replaced() {
		w.store.used = map[used]bool{}
	}
	for i, bits := range s.Bits {
		w.addCluster(clusterNames[i], bits)
	}
	w.checks.reset(w.ids, s)
	if cap(w.nodes) < s.Nodes {
		w.nodes = make([]node, s.Nodes)
	}
	w.nodes = w.nodes[:s.Nodes]
	for i := range w.nodes {
		w.nodes[i].reset(w, i)
		if !w.script {
			w.push(event{at: s.Joins[i], kind: evStart, node: int8(i)})
		}
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		if f.Kind.onRequest() {
			w.nodes[f.Node].strikes = append(w.nodes[f.Node].strikes, f)
			continue
		}
		w.push(event{at: f.At, kind: evFault, node: -1, n: int32(i)})
		if f.Kind == Restore {
			w.push(event{at: f.At - f.For, kind: evSave, node: -1, n: int32(i)})
		}
	}
	if !w.script {
		w.push(event{at: s.Faulty, kind: evPoll, node: -1})
	}
}

// addCluster makes a cluster known to the world. Its shards get the next indices.
func (w *world) addCluster(name keyspace.ClusterName, bits int) {
	w.names = append(w.names, name)
	w.clusters[name] = bits
	for _, p := range keyspace.Partition(bits) {
		w.ids = append(w.ids, keyspace.ShardID{Cluster: name, Prefix: p})
	}
}

func (w *world) push(e event) { w.queue.push(e) }

// tooMany events in one run are a livelock: the busiest schedules have a few thousand, and ten times as many where
// caches take long to fill.
const tooMany = 50_000

// run goes on until the queue is empty, the checks have failed, or the run has been judged.
func (w *world) run() {
	for len(w.queue.heap) > 0 && w.failure == "" && !w.judged {
		w.next()
		if w.Events > tooMany && (w.schedule.Fill == 0 || w.Events > 10*tooMany) {
			w.fail(nil, "it never settles: %d events", w.Events)
		}
	}
}

// next handles the next event.
func (w *world) next() {
	e := w.queue.pop()
	if e.at < w.now {
		w.fail(nil, "the simulator's clock goes back from %v to %v", w.now, e.at)
		return
	}
	w.now = e.at
	w.Events++
	var n *node
	if e.node >= 0 {
		n = &w.nodes[e.node]
	}
	switch e.kind {
	case evArrive:
		w.arrive(w.request(e.req), e.n == 1)
	case evFault:
		w.strike(&w.schedule.Faults[e.n])
	case evSave:
		w.save(e.n)
	case evPoll:
		w.poll()
	case evStart:
		if at := max(n.stoppedTill, n.cutTill, w.awayTill, w.noStartTill); w.now < at {
			e.at = at // nothing can be listed yet
			w.push(e)
		} else if !n.up {
			n.start()
		}
	case evResume:
		n.resume()
	case evReport:
		n.report()
	default:
		if !n.up || n.life != e.life {
			return
		}
		if w.now < n.stoppedTill {
			w.felt(n.stoppedFault)
			e.at = n.stoppedTill
			w.push(e)
			return
		}
		n.happen(e)
	}
	w.checkHolders()
}

func (w *world) upTo(d time.Duration) time.Duration {
	if w.script || d <= 0 {
		return d / 2
	}
	return time.Duration(w.pcg.Uint64() % uint64(d))
}

// leg returns how long a message takes.
func (w *world) leg() time.Duration { return time.Millisecond + w.upTo(10*time.Millisecond) }

func (w *world) shardIndex(id keyspace.ShardID) int {
	for i := range w.ids {
		if w.ids[i] == id {
			return i
		}
	}
	w.ids = append(w.ids, id)
	for i := range w.nodes {
		w.nodes[i].gates = append(w.nodes[i].gates, gate{})
	}
	w.checks.grow(w.ids)
	return len(w.ids) - 1
}

// say narrates. Callers check w.out first, so that a silent run formats nothing.
func (w *world) say(n *node, format string, args ...any) {
	who := "-"
	if n != nil {
		who = n.name
		if n.up {
			who = string(n.id)
		}
	}
	fmt.Fprintf(w.out, "%9.3fs  %-4s %s\n", w.now.Seconds(), who, fmt.Sprintf(format, args...))
}

// newRequest copies a request into the arena.
func (w *world) newRequest(r request) *request {
	if int(w.used) == len(w.requests)*256 {
		w.requests = append(w.requests, new([256]request))
	}
	r.at = w.used
	w.used++
	at := w.request(r.at)
	*at = r
	return at
}

func (w *world) request(at int32) *request { return &w.requests[at/256][at%256] }

// knownClusters returns the clusters that exist now, as a copy of the world's.
func (w *world) knownClusters() driver.Clusters {
	known := driver.Clusters{Bits: maps.Clone(w.clusters), UIDs: map[keyspace.ClusterName]string{},
		ClusterNos: map[keyspace.ClusterName]uint64{}, Unmet: map[keyspace.ClusterName]bool{}}
	for name := range known.Bits {
		known.UIDs[name] = w.uid(name)
		lead := w.lead(name)
		known.ClusterNos[name] = uint64(1 + slices.Index(w.names, lead) + len(w.names)*w.made[lead])
	}
	return known
}

// uid returns the UID of the cluster that has a name now. It differs from those of earlier clusters of that name.
func (w *world) uid(name keyspace.ClusterName) string {
	name = w.lead(name)
	return string(name) + "#" + strconv.Itoa(w.made[name])
}

// lead returns the first name of the cluster to which a name leads now.
func (w *world) lead(name keyspace.ClusterName) keyspace.ClusterName {
	return cmp.Or(w.alias[name], name)
}
