package shardtest

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// checks is the state by which the invariants are judged. Unlike the protocol, it knows true time and the inside of
// every process.
type checks struct {
	failure string
	kind    string // the failure's format: what all failures of its kind have in common
	judged  bool

	near      [][]int // per shard: the other shards that have slots in common with it
	gatesOpen []int8  // per shard: how many gates of it and of the near shards aren't closed
	contested int     // how many shards have more than one such gate
	work      []stamp
	tallies   []tally
	sealed    []ownership.Incarnation // ever sealed
	liveness
}

// stamp is the tenure under which the last write of a shard's reconciles was sent.
type stamp struct {
	epoch   ownership.Epoch
	by      ownership.Incarnation
	cluster uint64 // see gate
}

// tally is what was committed to a shard's record.
type tally struct {
	highest ownership.Epoch // ever, deleted records included
	writes  int             // since the last change of holder, without reports
	plans   int             // of these, changes of the plan
	upsets  int             // of these, those that withdraw or replace a warm successor
	taken   int             // moves and claims since the fleet had settled
}

// settle begins to count anew.
func (t *tally) settle() { t.writes, t.plans, t.upsets = 0, 0, 0 }

func (c *checks) reset(ids []keyspace.ShardID, s Schedule) {
	shards := len(ids)
	*c = checks{
		near: slices.Grow(c.near[:0], shards), gatesOpen: resized(c.gatesOpen, shards),
		work: resized(c.work, shards), tallies: resized(c.tallies, shards),
		sealed:   c.sealed[:0],
		liveness: liveness{served: resized(c.served, shards), fresh: c.fresh[:0], since: s.Faulty, last: s.Faulty},
	}
	for i := range ids {
		c.meet(ids[:i+1])
	}
}

// meet records which shards have slots in common with the last one.
func (c *checks) meet(ids []keyspace.ShardID) {
	at := len(ids) - 1
	c.near = append(c.near, nil)
	for i, id := range ids[:at] {
		if id.Cluster == ids[at].Cluster && overlap(id.Prefix, ids[at].Prefix) {
			c.near[i], c.near[at] = append(c.near[i], at), append(c.near[at], i)
		}
	}
}

func overlap(p, q keyspace.Prefix) bool {
	pFirst, _ := p.Slots()
	qFirst, _ := q.Slots()
	return p.ContainsSlot(qFirst) || q.ContainsSlot(pFirst)
}

// grow makes room for one more shard, the last.
func (c *checks) grow(ids []keyspace.ShardID) {
	c.meet(ids)
	c.gatesOpen = append(c.gatesOpen, 0)
	c.work = append(c.work, stamp{})
	c.tallies = append(c.tallies, tally{})
	c.served = append(c.served, false)
	c.fresh = append(c.fresh, true)
}

func resized[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// fail records the first violation.
func (w *world) fail(n *node, format string, args ...any) {
	if w.failure != "" {
		return
	}
	who := ""
	if n != nil {
		who = n.name + ": "
		if n.up {
			who = string(n.id) + ": "
		}
	}
	w.kind = format
	w.failure = fmt.Sprintf("at %.3fs: %s%s", w.now.Seconds(), who, fmt.Sprintf(format, args...))
	if w.out != nil {
		w.say(n, "✗ %s", w.failure)
	}
}

// setGate changes what a process does about a shard.
func (n *node) setGate(i int, to gateState) {
	g := &n.gates[i]
	was := g.state
	g.state = to
	w := n.w
	if (was == closed) == (to == closed) {
		return
	}
	d := int8(1)
	if to == closed {
		d = -1
	}
	w.opened(i, d)
	for _, j := range w.near[i] {
		w.opened(j, d)
	}
}

// opened counts a gate that was opened (1) or closed (-1).
func (w *world) opened(i int, d int8) {
	w.gatesOpen[i] += d
	switch {
	case d > 0 && w.gatesOpen[i] == 2:
		w.contested++
	case d < 0 && w.gatesOpen[i] == 1:
		w.contested--
	}
}

// checkHolders checks I1 for each slot: of all gates in all processes for shards that cover the slot, at most one
// may let reconciles work now, by its own process's clocks. It runs after every event.
func (w *world) checkHolders() {
	if w.exchanges {
		w.checkNames()
	}
	if w.contested == 0 {
		return
	}
	for i := range w.ids {
		if w.gatesOpen[i] < 2 {
			continue
		}
		var first *node
		for j := range w.nodes {
			n := &w.nodes[j]
			if !n.grants(i) {
				continue
			}
			if first != nil {
				w.fail(n, "I1: shard %s has two holders: %s at epoch %d and %s at epoch %d",
					w.ids[i], first.id, first.gates[i].epoch, n.id, n.gates[i].epoch)
			}
			first = n
		}
		for _, k := range w.near[i] {
			for j := range w.nodes {
				if n := &w.nodes[j]; first != nil && n.grants(k) {
					w.fail(n, "I1: shards %s and %s have slots in common, and are held by %s at epoch %d and %s at epoch %d",
						w.ids[i], w.ids[k], first.id, first.gates[i].epoch, n.id, n.gates[k].epoch)
				}
			}
		}
	}
}

// checkNames checks I1 for each slot of a cluster, under whichever names it is served.
func (w *world) checkNames() {
	for i := range w.ids {
		for j := range w.nodes {
			n := &w.nodes[j]
			if !n.grants(i) {
				continue
			}
			for k := range i {
				if !w.otherName(i, k) {
					continue
				}
				for m := range w.nodes {
					o := &w.nodes[m]
					if g, h := n.gates[i], o.gates[k]; o.grants(k) && g.cluster == h.cluster && !g.blind && !h.blind {
						w.fail(n, "I1: holds %s, and %s holds %s, of the same cluster", w.ids[i], o.id, w.ids[k])
					}
				}
			}
		}
	}
}

// otherName reports whether two shards have different clusters' names, and slots in common.
func (w *world) otherName(i, k int) bool {
	return w.ids[i].Cluster != w.ids[k].Cluster && overlap(w.ids[i].Prefix, w.ids[k].Prefix)
}

// blind reports whether a process hasn't seen some layout. What it opens then may be served under another name, too.
// The protocol promises nothing about that.
func (n *node) blind() bool {
	return slices.ContainsFunc(n.w.store.layouts.all, func(l ownership.Layout) bool {
		return n.driver.NewestLayout(l.Cluster) < l.Version
	})
}

// grants reports whether reconciles of a shard may work in this process now.
func (n *node) grants(i int) bool {
	return n.gates[i].state != closed && n.valid()
}

// work sends a write for each shard of the process whose gate lets it. The check of the lease and the sending are
// one instant, as in the fenced transport. It checks I2: the epochs of writes never fall, and each has one holder.
func (n *node) work() {
	w := n.w
	if !n.up || w.now < n.stoppedTill {
		return
	}
	valid, asked := false, false
	for i := range n.gates {
		g := &n.gates[i]
		if g.state == closed {
			continue
		}
		if !asked {
			valid, asked = n.valid(), true
		}
		if !valid {
			return
		}
		last := &w.checks.work[i]
		if g.epoch == last.epoch && last.by == n.id {
			continue
		}
		latest := *last
		for _, j := range w.near[i] {
			if o := w.checks.work[j]; o.epoch > latest.epoch {
				latest = o
			}
		}
		for j := range w.ids {
			if !w.exchanges || g.blind {
				break
			}
			if o := w.checks.work[j]; o.cluster == g.cluster && o.epoch > latest.epoch && w.otherName(i, j) {
				latest = o
			}
		}
		if g.epoch <= latest.epoch {
			w.fail(n, "I2: writes to slots of %s at epoch %d after %s did at epoch %d",
				w.ids[i], g.epoch, latest.by, latest.epoch)
		}
		last.epoch, last.by, last.cluster = g.epoch, n.id, g.cluster
	}
}

// checkSend checks the drain: a shard is given away only when none of its work runs. It also checks that no process
// announces itself warm while its caches fill.
func (w *world) checkSend(n *node, e ownership.WriteShard) {
	i := w.shardIndex(e.Shard.ID)
	if e.From == n.id && e.Shard.Holder != n.id && n.gates[i].state != closed {
		w.fail(n, "I1: gives %s to %q while its reconciles run", e.Shard.ID, e.Shard.Holder)
	}
	if e.Kind == ownership.AnnounceWarm && e.Shard.Warm == n.id && n.gates[i].pending {
		w.fail(n, "I3: says that it is warm for %s, and isn't", e.Shard.ID)
	}
	if e.Kind == ownership.HandOff && e.Shard.Holder != "" && w.store.shard(e.Shard.ID) != nil {
		w.checkSuccessor(n, e)
	}
}

// checkSuccessor checks that a planned move goes to a process that was ready to take over (make before break).
func (w *world) checkSuccessor(n *node, e ownership.WriteShard) {
	i := w.shardIndex(e.Shard.ID)
	for j := range w.nodes {
		to := &w.nodes[j]
		record := w.store.shard(e.Shard.ID)
		if to.up && to.id == e.Shard.Holder && to.gates[i].pending && !to.leaving() &&
			record.Version == e.Shard.Version && record.Warm != to.id {
			w.fail(n, "I3: hands %s to %s, which isn't warm", e.Shard.ID, to.id)
		}
	}
}

// checkLeaseWrite checks R3: a sealed lease stays as it is, and no incarnation is sealed that may still act.
func (w *world) checkLeaseWrite(old *ownership.Lease, next ownership.Lease) {
	if old != nil && old.Sealed && !(next.Sealed && w.Restores > 0) { // a seal that a restore lost is repeated
		w.fail(nil, "R3: the sealed lease of %s is written", old.ID)
	}
	if !next.Sealed {
		return
	}
	w.Seals++
	w.sealed = append(w.sealed, next.ID)
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.id == next.ID && n.valid() {
			w.fail(n, "R3: is sealed while it may act")
		}
	}
}

func (w *world) checkLeadWrite(next ownership.Lead) {
	if next.Floor < w.store.lead.Floor {
		w.fail(nil, "I2: the epoch floor falls from %d to %d", w.store.lead.Floor, next.Floor)
	}
}

// checkShardWrite checks R2 and I2 in the records: who may replace a holder, and how the epoch changes.
func (w *world) checkShardWrite(req *request, old, next ownership.Shard) {
	n := &w.nodes[req.node]
	i := w.shardIndex(next.ID)
	t := &w.tallies[i]
	used := t.highest
	for _, j := range w.near[i] {
		used = max(used, w.tallies[j].highest)
	}
	if old.Holder == next.Holder {
		if next.Epoch != old.Epoch {
			w.fail(n, "I2: the epoch of %s goes from %d to %d while %s holds it", next.ID, old.Epoch, next.Epoch, old.Holder)
		}
		return
	}
	if old.Holder != "" && old.Holder != req.id && !slices.Contains(w.sealed, old.Holder) {
		w.fail(n, "R2: %s takes %s from %s, which isn't sealed", req.id, next.ID, old.Holder)
	}
	if old.Holder == req.id && n.up && n.id == req.id && n.gates[w.shardIndex(next.ID)].state != closed {
		w.fail(n, "I1: %s goes to %q while its reconciles run", next.ID, next.Holder)
	}
	switch {
	case next.Holder == "":
		if next.Epoch != old.Epoch {
			w.fail(n, "I2: the epoch of %s goes from %d to %d when it is released", next.ID, old.Epoch, next.Epoch)
		}
	case next.Epoch <= used:
		w.fail(n, "I2: %s starts at epoch %d, and %d was used", next.ID, next.Epoch, used)
	case next.Epoch != old.Epoch+1 && !claims(req):
		w.fail(n, "I2: the epoch of %s goes from %d to %d in one change of holder", next.ID, old.Epoch, next.Epoch)
	}
	t.highest = max(t.highest, next.Epoch)
}

// claims reports whether the request is a claim, which may skip epochs.
func claims(req *request) bool {
	e, _ := req.effect.(ownership.WriteShard)
	return e.Kind.Claims()
}

// countWrite checks I5: it counts the writes of a record that a planned move costs.
func (w *world) countWrite(req *request, old, next ownership.Shard) {
	t := &w.tallies[w.shardIndex(next.ID)]
	e, status := req.effect.(ownership.WriteShard)
	switch {
	case !status:
		t.plans++
	case e.Kind == ownership.Report:
		if old.Assignee != old.Holder {
			w.fail(&w.nodes[req.node], "I5: reports on %s while it is to go to %s", next.ID, old.Assignee)
		}
		return
	case e.Kind == ownership.AnnounceWarm && (next.Warm == "" || old.Warm != ""):
		t.upsets++
	}
	t.writes++
	if old.Holder == next.Holder {
		return
	}
	if e.Kind == ownership.HandOff || e.Kind == ownership.HandOffOnExit {
		w.Moves++
		if t.plans <= 1 && t.upsets == 0 && t.writes > 3 {
			w.fail(&w.nodes[req.node], "I5: moving %s to %s took %d writes", next.ID, next.Holder, t.writes)
		}
		t.taken++
	} else if next.Holder != "" {
		w.Claims++
		t.taken++
	}
	t.settle()
}
