package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	// never ends what lasts for ever.
	never = time.Duration(1 << 61)
	// probeTimeout is how long an API server that can't be reached is asked, and lookEvery how often a process looks at
	// one that it holds shards of.
	probeTimeout = 3 * time.Second
	lookEvery    = leaseDuration / 4
)

// reach is how a process stands to one workload cluster.
type reach struct {
	awayTill time.Duration // its API server can't be reached until then
	hangTill time.Duration // caches of it aren't filled before that
	unusable bool          // as the driver was told
	counting string        // UID of the cluster whose objects are counted
}

// objectsPerShard is what a cluster must have for each shard, in schedules that count.
const objectsPerShard = 100

// count has a process find out how many objects a cluster has.
func (n *node) count(c driver.Count) {
	at := slices.Index(n.w.names, c.Cluster)
	n.reaches[at].counting = c.UID
	after := 2 * time.Millisecond
	if n.w.now < n.reaches[at].awayTill {
		after = probeTimeout
	}
	n.w.push(event{at: n.w.now + after, kind: evCounted, node: int8(n.index), life: n.life, n: int32(at)})
}

// counted answers: another number from each process, and at each time, since no two need to agree. Some can't tell.
func (n *node) counted(at int) {
	r := &n.reaches[at]
	objects := int64(-1)
	if n.w.now >= r.awayTill {
		objects = int64(5*n.index+3*at+int(n.w.now/time.Second))%9*objectsPerShard - 1
	}
	n.handle(driver.Counted{Cluster: n.w.names[at], UID: r.counting, Objects: objects})
}

// unreach takes the way to a cluster from a process, which finds out when it looks next.
func (n *node) unreach(f *Fault) {
	w := n.w
	at := f.N % len(w.names)
	r := &n.reaches[at]
	till := w.now + f.For
	if f.For == 0 {
		till = never
	}
	r.awayTill = max(r.awayTill, till)
	n.look(at, w.upTo(lookEvery)+probeTimeout)
}

// look has a process find out, after a while, whether it can reach a cluster.
func (n *node) look(at int, after time.Duration) {
	n.w.push(event{at: n.w.now + after, kind: evHealth, node: int8(n.index), life: n.life, n: int32(at)})
}

// probe answers what the driver asked for.
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

// know tells the driver which clusters there are. What it found out about one that is gone, the driver has to forget.
// One that is back and can't be reached is found out about when something of it is tried.
func (n *node) know(all driver.Clusters) {
	all = n.identified(all)
	for at, name := range n.w.names {
		_, before := n.knows.Bits[name]
		switch _, there := all.Bits[name]; {
		case !there:
			n.reaches[at].unusable = false
		case !before && n.reaches[at].awayTill > n.w.now:
			n.look(at, n.w.upTo(lookEvery)+probeTimeout)
		}
	}
	n.knows = all
	n.handle(all)
}

// identified is what a process can know of the clusters that there are. Of one that it can't reach it knows what it
// knew before, if anything: it can't tell a new cluster from the one that had the name. It asks until it is answered.
// Fleets of two versions are spared this: a coordinator that doesn't know a cluster is replaced only after the rollout.
func (n *node) identified(all driver.Clusters) driver.Clusters {
	if len(n.w.schedule.Previous) > 0 {
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
		}
		if till := n.reaches[at].awayTill; till < never {
			n.w.push(event{at: till + n.w.upTo(lookEvery), kind: evCluster, node: int8(n.index), life: n.life})
		}
	}
	return all
}

// looked tells the driver what it found. A process goes on looking at what it can't reach, as long as it is there.
func (n *node) looked(at int) {
	r := &n.reaches[at]
	if _, there := n.knows.Bits[n.w.names[at]]; !there { // this look was under way, and there is no next one
		n.handle(driver.Health{Cluster: n.w.names[at], Usable: n.w.now >= r.awayTill})
		return
	}
	unusable := n.w.now < r.awayTill
	if unusable && r.awayTill < never {
		n.look(at, r.awayTill-n.w.now+n.w.upTo(lookEvery))
	}
	if unusable != r.unusable {
		r.unusable = unusable
		if n.w.out != nil {
			n.w.say(n, "%s %s", map[bool]string{true: "can't reach", false: "reaches"}[unusable], n.w.names[at])
		}
	}
	n.handle(driver.Health{Cluster: n.w.names[at], Usable: !r.unusable})
}

// filling is how long the process's caches of a cluster can't be filled from now on.
func (n *node) filling(c keyspace.ClusterName) time.Duration {
	r := n.to(c)
	return max(r.awayTill, r.hangTill, n.w.now) - n.w.now
}

// to is how the process stands to a cluster.
func (n *node) to(c keyspace.ClusterName) *reach {
	if at := slices.Index(n.w.names, c); at >= 0 {
		return &n.reaches[at]
	}
	return &reach{}
}

// checkClaim: no shard is claimed by a process that knows that it can't serve it. A claim whose answer was lost is
// repeated all the same.
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

// servable reports whether any process that lives and stays can reach a cluster.
func (w *world) servable(c keyspace.ClusterName) bool {
	return slices.ContainsFunc(w.nodes, func(n node) bool { return n.up && !n.leaving() && n.to(c).awayTill <= w.now })
}

// unfair reports whether the schedule has faults by which some process can't serve some cluster for a while.
func (s *Schedule) unfair() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == Unreach || f.Kind == HangWarm })
}
