package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// Which clusters a replica can serve, and what it does about those that it can't.
//
// A replica is unfit for a cluster that it doesn't know although records name it, and for one whose API server it can't
// use. After a warm-up that missed its deadline, and for a while after an API server can be used again, it keeps what it
// has of the cluster and gets nothing more. Its Lease says so, and every planner heeds that. It serves what it holds as
// well as it can meanwhile: where nobody else is fit, nothing moves.
//
// An API server that goes away is noticed by each replica in its own time, and so is its coming back. So nothing is moved
// away from an unfit holder before what replicas say of the cluster has stood still for FitGrace, in which every replica
// that hears of an unfit one looks at the cluster itself.

// health is what is known of a cluster's API server, as it is seen from here.
type health uint8

const (
	unlooked health = iota
	usable
	unusable
)

// site is a cluster as this replica sees it.
type site struct {
	health  health
	looked  Instant // when that was last confirmed
	asked   Instant // when a probe was asked for that isn't answered, zero if there is none
	engaged int     // shards of it that are warmed or held here
	met     bool    // this process knew it once
	unmet   Instant // since when records have named it that this process never knew, zero if it isn't so
	said    Instant // when any replica's word about it last changed
	lost    backoff // after its API server couldn't be used
	late    backoff // after warm-ups that missed their deadline
}

// backoff is for how long a replica gets nothing of a cluster after trouble. It doubles with each trouble in a row.
type backoff struct {
	count int
	until Instant
}

// mostHolds bounds it, in lease durations.
const mostHolds = 16

// trouble counts one more, and forgets those before it if there was none for long.
func (b *backoff) trouble(r *Replica) {
	if b.count > 0 && r.now.AtLeast(b.until) > mostHolds*r.cfg.LeaseDuration {
		b.count = 0
	}
	b.count++
	b.hold(r)
}

// hold lets the time begin now.
func (b *backoff) hold(r *Replica) {
	b.until = r.now.Add(doubled(r.cfg.LeaseDuration, b.count-1))
}

// doubled is a time that was doubled so often, within bounds.
func doubled(d time.Duration, times int) time.Duration {
	return d * time.Duration(min(1<<min(times, 30), mostHolds))
}

func (b *backoff) holds(r *Replica) bool { return b.count > 0 && r.now.AtLeast(b.until) < 0 }

// fit is all that a replica knows of fitness.
type fit struct {
	sites map[keyspace.ClusterName]*site
	word  plan.UnfitFor // what this replica says of itself
	stale bool          // the word isn't made up of what is known now
	due   Instant       // when it must be made anew though nothing happens, zero for never
	wait  Instant       // until then moves wait; when it has come, a plan is due
	unmet Instant       // until then this replica moves nothing for balance: records name clusters that it hasn't met
}

// site returns the state of a cluster, new if it was never heard of.
func (r *Replica) site(c keyspace.ClusterName) *site {
	s := r.fit.sites[c]
	if s == nil {
		if r.fit.sites == nil {
			r.fit.sites = map[keyspace.ClusterName]*site{}
		}
		s = &site{}
		r.fit.sites[c] = s
	}
	return s
}

// clustersKnown takes note of the clusters that this process knows now.
func (r *Replica) clustersKnown() {
	for c := range r.clusters {
		s := r.site(c)
		s.met, s.unmet = true, Instant{}
	}
	r.fit.stale = true
}

// healthSeen takes a look's result.
func (r *Replica) healthSeen(in Health) {
	s := r.site(in.Cluster)
	was := s.health
	s.looked, s.asked = r.now, Instant{}
	s.health = unusable
	if in.Usable {
		s.health = usable
	}
	switch {
	case s.health == was:
	case s.health == unusable:
		s.lost.trouble(r)
	case was == unusable:
		s.lost.hold(r)
	}
	r.fit.stale = true
	if s.health != was || in.Usable {
		r.touchCluster(in.Cluster) // a claim may wait for it
	}
}

// touchCluster has the shards of a cluster decided anew that are nobody's or ours.
func (r *Replica) touchCluster(c keyspace.ClusterName) {
	for _, t := range r.of(c) {
		r.touch(t)
	}
}

// fitness is what this replica can do for a cluster.
func (r *Replica) fitness(c keyspace.ClusterName) plan.Fitness {
	s := r.site(c)
	if _, known := r.clusters[c]; !known {
		if s.met || (s.unmet != Instant{} && r.now.AtLeast(s.unmet) >= r.cfg.WarmTimeout) {
			return plan.Unfit
		}
		return plan.Fit // it is likely to be met in a moment
	}
	switch {
	case s.health == unusable:
		return plan.Unfit
	case s.lost.holds(r) || s.late.holds(r):
		return plan.Keeps
	}
	return plan.Fit
}

// refit makes this replica's word up, and takes note of what it changes.
func (r *Replica) refit() {
	if r.fit.wait != (Instant{}) && r.now.AtLeast(r.fit.wait) >= 0 {
		r.fit.wait, r.replan = Instant{}, true
	}
	if due := r.fit.due; due != (Instant{}) && r.now.AtLeast(due) >= 0 {
		r.fit.stale = true
	}
	if !r.fit.stale || !r.synced {
		return
	}
	r.fit.stale, r.fit.due, r.fit.unmet = false, Instant{}, Instant{}
	r.meet()
	said, fit := map[keyspace.ClusterName]plan.Fitness{}, true
	for c, s := range r.fit.sites { // in any order
		if _, known := r.clusters[c]; !known && !r.recorded(c) {
			continue
		}
		if s.health != unusable && (s.lost.holds(r) || s.late.holds(r)) {
			r.holdOff(c, s)
		}
		said[c] = r.fitness(c)
		fit = fit && said[c] == plan.Fit
	}
	word := plan.UnfitFor("")
	if !fit {
		word = plan.NewUnfitFor(said)
	}
	if was := r.fit.word; word != was {
		r.fit.word = word
		r.wordChanged(was, word, false)
		r.touchAll()
	}
}

// meet notes which clusters records name that this process has never known. For MeetTimeout they may still be met: a
// provider may be about to connect. Until then a coordinator moves nothing for balance, since it doesn't see whom the
// shards of those clusters could be with. Afterwards they count as clusters that were removed.
func (r *Replica) meet() {
	last := keyspace.ClusterName("")
	for _, t := range r.order {
		if t.id.Cluster == last || !t.known {
			continue
		}
		last = t.id.Cluster
		if _, known := r.clusters[last]; known {
			continue
		}
		s := r.site(last)
		if s.met {
			continue
		}
		if s.unmet == (Instant{}) {
			s.unmet = r.now
		}
		for _, after := range []time.Duration{r.cfg.WarmTimeout, r.cfg.MeetTimeout} {
			if at := s.unmet.Add(after); r.now.AtLeast(at) < 0 {
				r.fit.due = earliest(r.fit.due, at)
			}
		}
		if till := s.unmet.Add(r.cfg.MeetTimeout); r.now.AtLeast(till) < 0 && till.Mono > r.fit.unmet.Mono {
			r.fit.unmet = till
		}
	}
}

func earliest(a, b Instant) Instant {
	if a == (Instant{}) || b.Mono < a.Mono {
		return b
	}
	return a
}

// recorded reports whether there is a record of any shard of the cluster.
func (r *Replica) recorded(c keyspace.ClusterName) bool {
	return slices.ContainsFunc(r.of(c), func(t *tenure) bool { return t.known })
}

// holdOff goes on with the time after trouble, unless nobody else could serve the cluster: then there is nothing to wait for.
func (r *Replica) holdOff(c keyspace.ClusterName, s *site) {
	for _, b := range []*backoff{&s.lost, &s.late} {
		switch {
		case !b.holds(r):
		case r.othersTake(c):
			r.fit.due = earliest(r.fit.due, b.until)
		default:
			b.until = r.now
		}
	}
}

// wordChanged takes note of what changed between two words of one replica. A replica that hears of another's trouble
// looks at the cluster itself, and so does one that is in trouble when another's is over.
func (r *Replica) wordChanged(was, is plan.UnfitFor, peers bool) {
	names := slices.Clone(r.clusterNames)
	for _, t := range r.order {
		if _, known := r.clusters[t.id.Cluster]; !known && (len(names) == 0 || names[len(names)-1] != t.id.Cluster) {
			names = append(names, t.id.Cluster)
		}
	}
	for _, c := range names {
		before, after := was.Of(c) == plan.Unfit, is.Of(c) == plan.Unfit
		if before == after {
			continue
		}
		s := r.site(c)
		s.said = r.now
		if peers && (after || s.health == unusable) {
			r.probe(c, s)
		}
	}
	r.fit.stale = true
}

// probe has a cluster looked at, unless that is under way.
func (r *Replica) probe(c keyspace.ClusterName, s *site) {
	if _, known := r.clusters[c]; !known || (s.asked != (Instant{}) && r.now.AtLeast(s.asked) < r.cfg.FitGrace) {
		return
	}
	s.asked = r.now
	r.emit(Probe{Cluster: c})
}

// mayClaim reports whether a shard can be served from here, as far as its cluster was looked at lately. Who holds or warms
// some of the cluster needn't look; others look first, and claim then.
func (r *Replica) mayClaim(t *tenure) bool {
	c := t.id.Cluster
	t.probing = false
	if r.fitness(c) != plan.Fit {
		return false
	}
	s := r.site(c)
	if s.health == usable && (s.engaged > 0 || r.now.AtLeast(s.looked) < r.cfg.LeaseDuration/4) {
		return true
	}
	r.probe(c, s)
	t.probing = true
	return false
}

// takesOf reports whether the incarnation can be given shards of a cluster.
func (r *Replica) takesOf(id Incarnation, c keyspace.ClusterName) bool {
	if !r.takes(id) {
		return false
	}
	if id == r.cfg.ID {
		return r.fitness(c) == plan.Fit
	}
	return r.peers[id].lease.Unfit.Of(c) == plan.Fit
}

// mayReturn reports whether an orphan's assignee lives, and said only lately that it can't serve it. A cluster that comes
// back is met by each replica in its own time: who meets it first shouldn't claim all of it.
func (r *Replica) mayReturn(t *tenure) bool {
	said := r.site(t.id.Cluster).said
	return r.takes(t.rec.Assignee) && said != (Instant{}) && !r.past(said.Add(r.cfg.WarmTimeout))
}

// othersTake reports whether any other replica can be given shards of a cluster.
func (r *Replica) othersTake(c keyspace.ClusterName) bool {
	return slices.ContainsFunc(r.peerOrder, func(p *peer) bool { return r.takesOf(p.id, c) })
}

// settled reports whether what replicas say of a cluster has stood still for FitGrace; if not, a plan is due then.
func (r *Replica) settled(c keyspace.ClusterName) bool {
	said := r.site(c).said
	return said == (Instant{}) || r.past(said.Add(r.cfg.FitGrace))
}

// past reports whether a time has come; if not, a plan is due then.
func (r *Replica) past(at Instant) bool {
	if r.now.AtLeast(at) >= 0 {
		return true
	}
	r.fit.wait = earliest(r.fit.wait, at)
	return false
}

// unsure reports whether nothing may move for balance: it isn't known yet who all shards will be with, since some may
// have to leave a replica that is unfit, or may be of clusters that this replica hasn't met.
func (r *Replica) unsure(moves []plan.Move) bool {
	return !r.past(r.fit.unmet) || slices.ContainsFunc(moves, func(m plan.Move) bool {
		return m.Reason == plan.Elsewhere && !r.settled(m.Shard.Cluster)
	})
}

// postpones reports whether a move that the plan has must wait. Orphans never do.
func (r *Replica) postpones(m plan.Move, unsure bool) bool {
	switch m.Reason {
	case plan.Elsewhere:
		return !r.settled(m.Shard.Cluster)
	case plan.Balance:
		_, known := r.clusters[m.Shard.Cluster]
		return unsure || !known
	}
	return false
}

// engage counts the shards of each cluster that are here.
func (r *Replica) engage(t *tenure, before, p phase) {
	switch {
	case before == idle && p != idle:
		r.site(t.id.Cluster).engaged++
	case before != idle && p == idle:
		r.site(t.id.Cluster).engaged--
	}
	if p == warming {
		t.warmingAt, t.overdue = r.now, false
	}
}

// filled takes the end of a warm-up: the cluster can be served.
func (r *Replica) filled(t *tenure) {
	s := r.site(t.id.Cluster)
	s.health, s.looked, s.late = usable, r.now, backoff{}
	r.fit.stale = true
}

// fillTimeout is how long a warm-up may take: longer each time that one of the cluster took too long.
func (r *Replica) fillTimeout(c keyspace.ClusterName) time.Duration {
	return doubled(r.cfg.FillTimeout, r.site(c).late.count)
}

// fills reports whether a warm-up is under way that has a deadline. What is kept warm for a peer that is late has none.
func (r *Replica) fills(t *tenure) bool {
	return t.phase == warming && t.known && (t.rec.Holder == r.cfg.ID || t.rec.Assignee == r.cfg.ID)
}

// awaitFilling judges a warm-up that doesn't end.
func (r *Replica) awaitFilling(t *tenure) {
	if !r.fills(t) {
		return
	}
	if c := t.id.Cluster; r.now.AtLeast(t.warmingAt) >= r.fillTimeout(c) {
		t.warmingAt, t.overdue = r.now, true
		r.site(c).late.trouble(r)
		r.fit.stale = true
		r.touch(t)
	}
}

// givesBack reports whether a shard that is held here and can't be served should go to whoever can serve it.
func (r *Replica) givesBack(t *tenure) bool {
	return t.overdue && r.fitness(t.id.Cluster) != plan.Fit && r.othersTake(t.id.Cluster) && r.settled(t.id.Cluster)
}

// wakeFit is when something of this is due.
func (r *Replica) wakeFit() time.Duration {
	wake := r.now.Mono + time.Hour
	for _, at := range []Instant{r.fit.due, r.fit.wait} {
		if at != (Instant{}) {
			wake = min(wake, at.Mono)
		}
	}
	return wake
}
