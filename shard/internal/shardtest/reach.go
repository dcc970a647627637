package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	// never is the end of faults that last for ever.
	never = time.Duration(1 << 61)
	// probeTimeout is how long a probe of an unreachable API server takes. A process probes a cluster whose shards it
	// holds each lookEvery, or each quietEvery while all probes are answered.
	probeTimeout = 3 * time.Second
	lookEvery    = leaseDuration / 2
	quietEvery   = 2 * lookEvery
)

// reach describes one process's connection to one workload cluster.
type reach struct {
	awayTill time.Duration // its API server can't be reached until then
	hangTill time.Duration // caches of it aren't filled before that
	// the faults that last until awayTill and hangTill
	awayFault, hangFault *Fault
	unusable             bool   // what the driver was told last
	counting             string // UID of the cluster whose objects are counted
}

// objectsPerShard is the setting ObjectsPerShard in schedules in which objects are counted.
const objectsPerShard = 100

// count begins to count a cluster's objects for a process.
func (n *node) count(c driver.Count) {
	at := slices.Index(n.w.names, c.Cluster)
	n.reaches[at].counting = c.UID
	after := 2 * time.Millisecond
	if n.w.now < n.reaches[at].awayTill {
		after = probeTimeout
	}
	n.w.push(event{at: n.w.now + after, kind: evCounted, node: int8(n.index), life: n.life, n: int32(at)})
}

// counted answers with a number that depends on process and time, since two counts needn't agree. The number is
// negative if the cluster can't be reached, and sometimes otherwise.
func (n *node) counted(at int) {
	r := &n.reaches[at]
	objects := int64(-1)
	if n.w.now >= r.awayTill {
		objects = int64(5*n.index+3*at+int(n.w.now/time.Second))%9*objectsPerShard - 1
	}
	n.handle(driver.Counted{Cluster: n.w.names[at], UID: r.counting, Objects: objects})
}

// unreach cuts a process off from a cluster. The process notices at its next probe.
func (n *node) unreach(f *Fault) {
	w := n.w
	at := f.N % len(w.names)
	r := &n.reaches[at]
	w.lasts(f, &r.awayTill, &r.awayFault)
	if f.For == 0 {
		r.awayTill, r.awayFault = never, f
	}
	n.look(at, w.upTo(quietEvery)+probeTimeout)
}

// look queues the result of a probe of a cluster by a process.
func (n *node) look(at int, after time.Duration) {
	n.w.push(event{at: n.w.now + after, kind: evHealth, node: int8(n.index), life: n.life, n: int32(at)})
}

// probe carries out a probe for the driver.
func (n *node) probe(p driver.Probe) {
	at := slices.Index(n.w.names, p.Cluster)
	switch {
	case n.w.now < n.reaches[at].awayTill:
		n.look(at, probeTimeout)
	case n.w.script:
		n.look(at, 0)
	default:
		n.look(at, n.w.leg()+n.w.leg())
	}
}

// know tells the driver which clusters exist. The driver must forget the health of a cluster that is gone. If a
// cluster that is back can't be reached, the process notices after a while.
func (n *node) know(all driver.Clusters) {
	all = n.identified(all)
	for at, name := range n.w.names {
		_, before := n.knows.Bits[name]
		_, there := all.Bits[name]
		if before && (!there || !n.previous && all.UIDs[name] != n.knows.UIDs[name]) {
			n.w.felt(n.w.changed[name])
		}
		switch {
		case !there:
			n.reaches[at].unusable = false
		case !before && n.reaches[at].awayTill > n.w.now:
			n.look(at, n.w.upTo(lookEvery)+probeTimeout)
		}
	}
	n.knows = all
	n.handle(all)
}

// identified reduces the existing clusters to what a process can know of them. Of a cluster that it can't reach, it
// knows what it knew before, if anything: it can't tell a new cluster from the one that had the name. It asks again
// until it gets an answer. Fleets of two versions skip this, since a coordinator that doesn't know a cluster is
// replaced only after the rollout. So do schedules that exchange names: the cluster that has the old name of one that
// is to be served may then be one that can't be reached.
func (n *node) identified(all driver.Clusters) driver.Clusters {
	if n.w.exchanges {
		return n.oneByOne(all)
	}
	if n.w.schedule.mixes() {
		return all
	}
	for at, name := range n.w.names {
		_, there := all.Bits[name]
		if _, was := n.knows.Bits[name]; !there || n.w.now >= n.reaches[at].awayTill ||
			was && n.knows.UIDs[name] == all.UIDs[name] {
			continue
		}
		delete(all.Bits, name)
		if bits, was := n.knows.Bits[name]; was {
			all.Bits[name], all.UIDs[name] = bits, n.knows.UIDs[name]
		} else {
			all.Unmet[name] = true
		}
		if till := n.reaches[at].awayTill; till < never {
			n.w.push(event{at: till + n.w.upTo(lookEvery), kind: evCluster, node: int8(n.index), life: n.life})
		}
	}
	return all
}

// oneByOne lets a process learn of one name only that it leads to another cluster now, and of the next a little later.
func (n *node) oneByOne(all driver.Clusters) driver.Clusters {
	learned := false
	for _, name := range n.w.names {
		was, before := n.knows.ClusterNos[name]
		if now, there := all.ClusterNos[name]; !before || !there || now == was {
			continue
		}
		if learned {
			all.ClusterNos[name], all.UIDs[name] = was, n.knows.UIDs[name]
			n.w.push(event{at: n.w.now + n.w.upTo(leaseDuration/10), kind: evCluster, node: int8(n.index), life: n.life})
		}
		learned = true
	}
	return all
}

// looked gives the driver the result of a probe. A process probes a cluster that it can't reach again and again, as
// long as the cluster exists.
func (n *node) looked(at int) {
	r := &n.reaches[at]
	if _, there := n.knows.Bits[n.w.names[at]]; !there { // this probe was under way, and there is no next one
		n.handle(driver.Health{Cluster: n.w.names[at], Usable: n.w.now >= r.awayTill})
		return
	}
	unusable := n.w.now < r.awayTill
	switch {
	case unusable && n.w.exchanges: // the driver forgets it when the name leads to another cluster
		n.look(at, min(r.awayTill-n.w.now, quietEvery)+n.w.upTo(lookEvery))
	case unusable && r.awayTill < never:
		n.look(at, r.awayTill-n.w.now+n.w.upTo(lookEvery))
	}
	if unusable != r.unusable {
		r.unusable = unusable
		if unusable {
			n.w.felt(r.awayFault)
		}
		if n.w.out != nil {
			n.w.say(n, "%s %s", map[bool]string{true: "can't reach", false: "reaches"}[unusable], n.w.names[at])
		}
	}
	n.handle(driver.Health{Cluster: n.w.names[at], Usable: !r.unusable})
}

// filling returns how long it takes from now until the process can fill caches of a cluster, and the fault that it
// waits for.
func (n *node) filling(c keyspace.ClusterName) (wait time.Duration, by *Fault) {
	r := n.to(c)
	till, by := r.awayTill, r.awayFault
	if r.hangTill > till {
		till, by = r.hangTill, r.hangFault
	}
	return max(till-n.w.now, 0), by
}

// to returns the process's connection to a cluster.
func (n *node) to(c keyspace.ClusterName) *reach {
	if at := slices.Index(n.w.names, c); at >= 0 {
		return &n.reaches[at]
	}
	return &reach{}
}

// checkClaim fails the run if a process claims a shard of a cluster that it knows it can't reach. It may repeat a
// claim that it has sent before.
func (w *world) checkClaim(n *node, e ownership.WriteShard) {
	if !e.Kind.Claims() {
		return
	}
	g := &n.gates[w.shardIndex(e.Shard.ID)]
	if n.to(e.Shard.ID.Cluster).unusable && g.claim != e.Seq {
		w.fail(n, "fitness: claims %s, whose cluster it can't reach", e.Shard.ID)
	}
	g.claim = e.Seq
}

// servable reports whether a cluster can be reached by any process that is up and isn't leaving.
func (w *world) servable(c keyspace.ClusterName) bool {
	return slices.ContainsFunc(w.nodes, func(n node) bool { return n.up && !n.leaving() && n.to(c).awayTill <= w.now })
}

// unfair reports whether the schedule has faults by which some process can't serve some cluster for a while.
func (s *Schedule) unfair() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == Unreach || f.Kind == HangWarm })
}

// parts reports whether some process never reaches some cluster again.
func (s *Schedule) parts() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == Unreach && f.For == 0 })
}
