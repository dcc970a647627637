package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// Fitness: which clusters a replica can serve, and what happens to shards of those that it can't.
//
// A replica is unfit for a cluster that records name and that it doesn't know, and for one whose API server it can't
// use. After a warm-up that missed its deadline, after a claim that the home cluster refused for a while, and for a
// while after an API server is usable again, the replica keeps its shards of the cluster and gets no more. It states
// this in its Lease, and every planner heeds it. Meanwhile it serves what it holds as well as it can: if no other
// replica is fit, nothing moves.
//
// Each replica notices at its own time that an API server went away or came back. So nothing moves away from an unfit
// holder until the replicas' statements about the cluster have been unchanged for FitGrace. In that time every replica
// that learns of an unfit one probes the cluster itself.

// health is the state of a cluster's API server as seen from this replica.
type health uint8

const (
	unprobed health = iota
	usable
	unusable
)

// site is a cluster as this replica sees it.
type site struct {
	health      health
	confirmedAt Instant // when health was last confirmed
	asked       Instant // when the unanswered probe was sent; zero if there is none
	met         bool    // this process has known the cluster at some time
	unmetSince  Instant // since when its shards count in plans although this replica doesn't know it; zero otherwise
	statedAt    Instant // when any replica's statement about it last changed
	lost        holdOff // after its API server was unusable
	late        holdOff // after warm-ups that missed their deadline
	lateAt      Instant // when one was counted last
	denied      holdOff // after claims that the home cluster refused
}

// fit is all that a replica knows about fitness.
type fit struct {
	sites        map[keyspace.ClusterName]*site
	statement    plan.UnfitFor // what this replica states about itself in its lease
	stale        bool          // statement must be computed again
	fitAt        Instant       // when statement was last computed
	refitAt      Instant       // when statement must be computed again even if nothing happens; zero for never
	planAt       Instant       // moves wait until then, and a plan is due then
	balanceAfter Instant       // until then no moves for balance: records name clusters that this replica hasn't met
}

// site returns the state of a cluster, new if it was unknown.
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

// clustersKnown records the clusters that this process knows now. It forgets the health of clusters that are gone:
// they aren't probed any more, so an old "unusable" would remain when they are back.
func (r *Replica) clustersKnown() {
	for c, s := range r.fit.sites { // order doesn't matter
		if _, given := r.given.Bits[c]; !given {
			s.health, s.asked = unprobed, Instant{}
		}
	}
	for c := range r.ownNames {
		s := r.site(c)
		s.met, s.unmetSince = true, Instant{}
	}
	r.fit.stale = true
}

// healthSeen handles the result of a probe.
func (r *Replica) healthSeen(in Health) {
	s := r.site(in.Cluster)
	was := s.health
	s.confirmedAt, s.asked = r.now, Instant{}
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
	if s.health != was {
		r.fit.stale = r.fit.stale || s.health == unusable || was == unusable
		r.replan = r.replan || r.remade(in.Cluster) // divide waits for it, and no record need be there to say so
		r.touchCluster(in.Cluster)
		return
	}
	for _, t := range r.of(in.Cluster) { // most probes show nothing new
		if t.probing && in.Usable { // a claim waits for one
			r.touch(t)
		}
	}
}

// touchCluster queues all shards of a cluster for a decision.
func (r *Replica) touchCluster(c keyspace.ClusterName) {
	for _, t := range r.of(c) {
		r.touch(t)
	}
}

// fitness returns what this replica can do for a cluster.
func (r *Replica) fitness(c keyspace.ClusterName) plan.Fitness {
	s := r.site(c)
	if !r.ownNames[c] {
		if s.met || (!s.unmetSince.IsZero() && r.now.AtLeast(s.unmetSince) >= r.cfg.WarmTimeout) {
			return plan.Unfit
		}
		return plan.Fit // it will probably be met soon
	}
	switch {
	case s.health == unusable:
		return plan.Unfit
	case s.holds(r):
		return plan.Keeps
	}
	return plan.Fit
}

// refit computes this replica's statement about clusters, and acts if it changed. It goes through all clusters, so it
// does that once per planEvery at most: a replica whose network fails loses thousands of clusters one by one. One
// that may plan now doesn't wait.
func (r *Replica) refit() {
	if !r.fit.planAt.IsZero() && r.now.AtLeast(r.fit.planAt) >= 0 {
		r.fit.planAt, r.replan = Instant{}, true
	}
	if due := r.fit.refitAt; !due.IsZero() && r.now.AtLeast(due) >= 0 {
		r.fit.stale = true
	}
	if !r.fit.stale || !r.synced {
		return
	}
	next, plansNow := r.fit.fitAt.Add(r.planEvery()), r.mayPlan() && (r.lead.read || r.now.AtLeast(r.planAfter) >= 0)
	if !r.fit.fitAt.IsZero() && r.now.AtLeast(next) < 0 && !plansNow {
		r.fit.refitAt = next
		return
	}
	r.fit.stale, r.fit.fitAt, r.fit.refitAt, r.fit.balanceAfter = false, r.now, Instant{}, Instant{}
	r.meet()
	said, fit := map[keyspace.ClusterName]plan.Fitness{}, true
	for c, s := range r.fit.sites { // order doesn't matter
		if !r.ownNames[c] && !r.recorded(c) {
			continue
		}
		if s.health != unusable && s.holds(r) {
			r.reviewHoldOffs(c, s)
		}
		said[c] = r.fitness(c)
		fit = fit && said[c] == plan.Fit
	}
	is := plan.UnfitFor("")
	if !fit {
		is = plan.NewUnfitFor(said)
	}
	if was := r.fit.statement; is != was {
		r.fit.statement = is
		r.statementChanged(was, is, false)
	}
}

// recordsChange notes that a cluster got a record or lost one, or that one is served now, or no more. That matters if
// this replica doesn't know the cluster, or if the cluster has several names.
func (r *Replica) recordsChange(c keyspace.ClusterName) {
	r.namesStale = true
	r.fit.stale = r.fit.stale || !r.ownNames[c]
}

// meet records which clusters the records name that this replica doesn't know. Their provider may be about to connect
// them. Until then a coordinator can't know where their shards will go, so it makes no moves for balance for
// MeetTimeout. After that they count as removed. A cluster that this process has known may be on its way out, or back:
// its shards count in plans while others hold them, and those let go of them, or take them, one after the other.
func (r *Replica) meet() {
	last := keyspace.ClusterName("")
	for _, t := range r.order {
		if t.id.Cluster == last || !t.known {
			continue
		}
		last = t.id.Cluster
		if r.ownNames[last] {
			continue
		}
		s := r.site(last)
		if s.met && !slices.ContainsFunc(r.of(last), (*shardState).heldByLiving) {
			s.unmetSince = Instant{}
			continue
		}
		if s.unmetSince.IsZero() {
			s.unmetSince = r.now
		}
		for _, after := range []time.Duration{r.cfg.WarmTimeout, r.cfg.MeetTimeout} {
			if at := s.unmetSince.Add(after); r.now.AtLeast(at) < 0 {
				r.fit.refitAt = earliest(r.fit.refitAt, at)
			}
		}
		if till := s.unmetSince.Add(r.cfg.MeetTimeout); r.now.AtLeast(till) < 0 && till.Mono > r.fit.balanceAfter.Mono {
			r.fit.balanceAfter = till
		}
	}
}

// recorded reports whether any shard of the cluster has a record.
func (r *Replica) recorded(c keyspace.ClusterName) bool {
	return slices.ContainsFunc(r.of(c), func(t *shardState) bool { return t.known })
}

// statementChanged acts on the difference between two statements of one replica: it queues the shards of clusters about
// which they differ. When a peer reports trouble, this replica probes the cluster itself. When a peer's trouble is
// over, it probes again if it still has trouble.
func (r *Replica) statementChanged(was, is plan.UnfitFor, peers bool) {
	changed, all := was.Changes(is)
	if all {
		changed = changed[:0]
		for _, l := range r.layoutOrder {
			changed = append(changed, l.cluster)
		}
	}
	for _, c := range changed {
		if r.layouts[c] == nil {
			continue // it has no records, and this replica doesn't know it
		}
		r.touchCluster(c)
		s := r.site(c)
		r.fit.stale = r.fit.stale || s.holds(r) // see reviewHoldOffs
		before, after := was.Of(c) == plan.Unfit, is.Of(c) == plan.Unfit
		if before == after {
			continue
		}
		s.statedAt = r.now
		if peers && (after || s.health == unusable) {
			r.probe(c, s)
		}
	}
	r.replan = true
}

// probe requests a probe of the cluster's API server, unless one is under way. A probe that isn't answered within
// FitGrace counts as lost.
func (r *Replica) probe(c keyspace.ClusterName, s *site) {
	if !r.ownNames[c] || (!s.asked.IsZero() && r.now.AtLeast(s.asked) < r.cfg.FitGrace) {
		return
	}
	s.asked = r.now
	r.emit(Probe{Cluster: c})
}

// mayClaim reports whether this replica can serve a shard's cluster, by a recent probe. A replica that holds or warms
// shards of the cluster needs no probe. Any other probes first, and claims when the answer is good.
func (r *Replica) mayClaim(t *shardState) bool {
	c := t.id.Cluster
	t.probing = false
	if r.fitness(c) != plan.Fit {
		return false
	}
	s := r.site(c)
	engaged := func(o *shardState) bool { return o.phase != idle }
	if s.health == usable && (r.now.AtLeast(s.confirmedAt) < r.cfg.LeaseDuration/4 ||
		slices.ContainsFunc(t.layout.shards, engaged)) {
		return true
	}
	r.probe(c, s)
	t.probing = true
	return false
}

// takesOf reports whether an incarnation can be given shards of a cluster.
func (r *Replica) takesOf(id Incarnation, c keyspace.ClusterName) bool {
	if !r.takes(id) {
		return false
	}
	if id == r.cfg.ID {
		return r.fitness(c) == plan.Fit
	}
	return r.peers[id].lease.Unfit.Of(c) == plan.Fit
}

// mayReturn reports whether an orphan's assignee is alive and only recently became unfit. Replicas meet a cluster that
// comes back at different times: the first to meet it shouldn't claim all of it.
func (r *Replica) mayReturn(t *shardState) bool {
	stated := r.site(t.id.Cluster).statedAt
	return r.takes(t.rec.Assignee) && !stated.IsZero() && !r.past(stated.Add(r.cfg.WarmTimeout))
}

// othersTake reports whether any other replica can be given shards of a cluster.
func (r *Replica) othersTake(c keyspace.ClusterName) bool {
	return slices.ContainsFunc(r.peerOrder, func(p *peer) bool { return r.takesOf(p.id, c) })
}

// removed reports whether a cluster that has a record with a dead holder counts as removed: for MeetTimeout, this
// replica has led, its provider hasn't had the cluster, and each replica that may be alive has stated that it can't
// serve it. If that is only a matter of time, it schedules a plan for then.
func (r *Replica) removed(l *layout) bool {
	serves := func(p *peer) bool { return !p.dead() && p.lease.Unfit.Of(l.cluster) != plan.Unfit }
	if !r.mayClear(l.cluster) || !slices.ContainsFunc(l.shards, (*shardState).heldByDead) ||
		r.fit.statement.Of(l.cluster) != plan.Unfit || slices.ContainsFunc(r.peerOrder, serves) {
		l.goneSince = Instant{}
		return false
	}
	if l.goneSince.IsZero() || l.goneSince.Mono < r.lead.since.Mono {
		l.goneSince = r.now
	}
	return r.past(l.goneSince.Add(r.cfg.MeetTimeout))
}

// mayClear reports whether this replica leads and doesn't have the cluster: neither met nor yet to be met.
func (r *Replica) mayClear(c keyspace.ClusterName) bool {
	return r.Leads() && !r.ownNames[c] && !r.given.Unmet[c]
}

// statementsSteady reports whether the replicas' statements about a cluster have been unchanged for FitGrace. If not,
// it schedules a plan for when they will have been.
func (r *Replica) statementsSteady(c keyspace.ClusterName) bool {
	stated := r.site(c).statedAt
	return stated.IsZero() || r.past(stated.Add(r.cfg.FitGrace))
}

// past reports whether a time has come. If not, it schedules a plan for then.
func (r *Replica) past(at Instant) bool {
	if r.now.AtLeast(at) >= 0 {
		return true
	}
	r.fit.planAt = earliest(r.fit.planAt, at)
	return false
}

// unsure reports whether moves for balance must wait because the final placement isn't known yet: shards may have to
// leave an unfit replica, or belong to clusters that this replica hasn't met. Or it has just met a cluster, and plans
// its orphans for the few that have met it as well.
func (r *Replica) unsure(moves []plan.Move) bool {
	return !r.past(r.fit.balanceAfter) || slices.ContainsFunc(moves, func(m plan.Move) bool {
		return (m.Reason == plan.Elsewhere || m.Reason == plan.Orphan) && !r.statementsSteady(m.Shard.Cluster)
	})
}

// postpones reports whether a planned move must wait. Claims of orphans never wait.
func (r *Replica) postpones(m plan.Move, unsure bool) bool {
	switch m.Reason {
	case plan.Elsewhere:
		return !r.statementsSteady(m.Shard.Cluster)
	case plan.Balance:
		return unsure || !r.ownNames[m.Shard.Cluster]
	}
	return false
}

// wakeFit returns when refit has something to do.
func (r *Replica) wakeFit() time.Duration {
	wake := r.now.Mono + time.Hour
	for _, at := range []Instant{r.fit.refitAt, r.fit.planAt} {
		if !at.IsZero() {
			wake = min(wake, at.Mono)
		}
	}
	return wake
}

func earliest(a, b Instant) Instant {
	if a.IsZero() || b.Mono < a.Mono {
		return b
	}
	return a
}
