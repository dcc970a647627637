package ownership

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/expect"
)

// live lets time pass in which everybody renews. b says what it is unfit for.
func (b *bench) live(d time.Duration, peer plan.UnfitFor) {
	b.t.Helper()
	for ; d > 0; d -= lease / 8 {
		b.pass(min(d, lease/8))
		b.says("b", peer)
		b.commitRenewals()
	}
}

// says feeds a renewal.
func (b *bench) says(id Incarnation, word plan.UnfitFor) {
	b.feed(LeaseSeen{Lease{ID: id, Replica: string(id), Duration: lease, Protocol: 3, Unfit: word, Version: b.next()}})
}

// leads makes the machine the coordinator.
func (b *bench) leads() {
	b.feed(LeadSeen{Lead{Holder: "a", Version: b.next()}})
}

// held feeds a record of any shard.
func (b *bench) held(shard string, holder, assignee Incarnation) {
	b.t.Helper()
	b.seen(Shard{ID: id(b.t, shard), Holder: holder, Assignee: assignee, Epoch: 1})
}

// states checks which clusters it says that it is unfit for.
func (b *bench) states(want plan.UnfitFor) {
	b.t.Helper()
	expect.Equal(b.t, "what it says that it is unfit for", want, b.r.fit.statement)
}

// writes checks what it writes into the record of a shard, and returns that.
func (b *bench) writes(kind WriteKind, shard string, holder Incarnation) WriteShard {
	b.t.Helper()
	w := find[WriteShard](b)
	if w.Kind != kind || w.Shard.ID != id(b.t, shard) || w.Shard.Holder != holder {
		b.t.Errorf("%+v, want %v of %s with holder %q", w, kind, shard, holder)
	}
	return w
}

func TestAShardIsClaimedOnlyAfterItsClusterWasLookedAtAndCanBeUsed(t *testing.T) {
	b := newBench(t)
	b.away = true
	b.seen(Shard{Assignee: "a", Epoch: 1})
	none[WriteShard](b)
	if b.probed != 1 {
		t.Fatalf("looked at %d times", b.probed)
	}
	b.pass(lease / 40)
	if w := find[WriteLease](b); w.Lease.Unfit != "west" {
		t.Errorf("says at once that it is unfit for %q, want west", w.Lease.Unfit)
	} else {
		b.commit(w.Seq)
	}
	b.live(3*lease, "west")
	none[WriteShard](b)
	b.away = false
	b.feed(Health{Cluster: "west", Usable: true})
	b.writes(ClaimFree, "west/", "a")
}

func TestAnOrphanWhoseAssigneeCannotServeItIsClaimedByWhoCan(t *testing.T) {
	b := newBench(t)
	b.says("b", "west")
	b.seen(Shard{Assignee: "b", Epoch: 1})
	none[WriteShard](b) // b has said so just now: the cluster may be coming back for all
	b.live(lease, "west")
	b.writes(ClaimFree, "west/", "a")
}

func TestNothingMovesForFitnessOrBalanceBeforeWhatReplicasSayHasStoodStill(t *testing.T) {
	b := newBench(t)
	b.leads()
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, "east": 1}})
	b.held("east/0", "a", "a")
	b.held("east/1", "a", "a")
	b.held("west/", "b", "b")
	b.live(lease, "")
	none[WriteAssignee](b)
	probed := b.probed
	b.says("b", "west")
	if b.probed == probed {
		t.Error("hears that another can't serve a cluster, and doesn't look at it")
	}
	grace := DefaultConfig("a", "a", lease).FitGrace
	b.live(grace-lease/10, "west")
	b.says("b", "")
	b.live(lease/10, "")
	b.says("b", "west")
	b.live(grace-lease/10, "west")
	none[WriteAssignee](b)
	b.live(lease/5, "west")
	moves := map[string]Incarnation{}
	for _, w := range all[WriteAssignee](b) {
		moves[w.ID.String()] = w.Assignee
	}
	if len(moves) != 2 || moves["west/"] != "a" || moves["east/1"] != "b" {
		t.Errorf("moves %v", moves)
	}
}

func TestAWarmUpThatTakesTooLongIsGivenBackToWhoCanServe(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
	find[Warm](b)
	b.live(3*lease-lease/4, "west")
	b.states("") // it is too early
	b.live(lease, "west")
	none[WriteShard](b) // nobody else can: it goes on trying
	b.states("")
	b.live(6*lease, "")
	b.commit(b.writes(Release, "west/", "").Seq)
	b.states("west+") // it takes nothing more of west
	none[WriteShard](b)
	b.feed(Warmed{west}) // it can after all, and nobody was faster
	b.writes(ClaimFree, "west/", "a")
	b.states("")
}

func TestAReplicaGetsNothingMoreForAWhileAfterItsClusterWasAway(t *testing.T) {
	b := newBench(t)
	word := func(after time.Duration, peer plan.UnfitFor) plan.UnfitFor {
		b.live(after, peer)
		return b.r.fit.statement
	}
	for times, holds := range []time.Duration{lease, 2 * lease, 4 * lease, 8 * lease, 16 * lease, 16 * lease} {
		b.feed(Health{Cluster: "west"})
		if got := word(lease/4, ""); got != "west" {
			t.Fatalf("%d: says %q while it is away", times, got)
		}
		b.feed(Health{Cluster: "west", Usable: true})
		if got := word(holds-lease/4, ""); got != "west+" {
			t.Fatalf("%d: says %q shortly before %v have passed", times, got, holds)
		}
		if got := word(lease/2, ""); got != "" {
			t.Fatalf("%d: says %q after %v", times, got, holds)
		}
	}
	b.live(17*lease, "")
	b.feed(Health{Cluster: "west"})
	b.feed(Health{Cluster: "west", Usable: true})
	if got := word(lease/2, ""); got != "west+" {
		t.Errorf("says %q", got)
	}
	if got := word(lease, ""); got != "" {
		t.Errorf("what was long ago counts: says %q", got)
	}
	b.feed(Health{Cluster: "west"})
	b.feed(Health{Cluster: "west", Usable: true})
	if got := word(lease/4, "west"); got != "" {
		t.Errorf("nobody else can serve it, and it says %q", got)
	}
}

func TestACoordinatorThatHasNotMetAClusterMovesNothingForBalance(t *testing.T) {
	b := newBench(t)
	b.leads()
	b.laid(Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(2), Version: b.v})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 2}})
	for _, id := range []string{"west/00", "west/01", "west/10", "west/11"} {
		b.held(id, "a", "a")
	}
	b.held("north/0", "", "") // nobody holds it: its cluster may be gone, or on its way
	b.held("south/0", "b", "b")
	b.held("south/1", "b", "b")
	b.live(2*lease-lease/4, "")
	none[WriteAssignee](b)
	b.states("north,south") // it can't serve what it doesn't know
	b.live(lease/2, "")
	if moves := all[WriteAssignee](b); len(moves) != 1 || moves[0].Assignee != "b" {
		t.Errorf("of four and two that others hold of clusters it doesn't know, it moves %v", moves)
	}
}

// Replicas meet a cluster that is added at different times. What the first ones to meet it may have to take is no
// reason to take anything else from them.
func TestNothingMovesForBalanceWhileReplicasMeetACluster(t *testing.T) {
	b := newBench(t)
	b.leads()
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"north": 1}})
	b.held("north/0", "a", "a")
	b.held("north/1", "b", "b")
	b.held("east/0", "", "a")
	b.held("east/1", "", "b")
	b.live(3*lease, "east")
	all[WriteAssignee](b)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"north": 1, "east": 1}})
	b.says("b", "east")
	b.pass(time.Second)
	none[WriteAssignee](b)
	b.held("east/0", "a", "a")
	b.held("east/1", "b", "b")
	b.live(lease, "")
	none[WriteAssignee](b)
}

// They give up a cluster that is removed at different times as well, and then take it back.
func TestNothingMovesForBalanceWhileReplicasGiveAClusterUp(t *testing.T) {
	b := newBench(t)
	b.leads()
	both := Clusters{Bits: map[keyspace.ClusterName]int{"north": 2, "east": 2}}
	b.feed(both)
	for _, cluster := range []string{"north", "east"} {
		b.held(cluster+"/00", "a", "a")
		b.held(cluster+"/01", "a", "a")
		b.held(cluster+"/10", "b", "b")
		b.held(cluster+"/11", "b", "b")
	}
	for _, w := range all[Warm](b) {
		b.feed(Warmed{w.ID})
	}
	b.live(lease, "")
	none[WriteAssignee](b)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"north": 2}})
	b.held("east/00", "", "a")
	b.held("east/01", "", "a")
	b.live(lease, "")
	none[WriteAssignee](b)
	b.held("east/10", "", "b")
	b.held("east/11", "", "b")
	b.live(4*lease, "east")
	none[WriteAssignee](b)
	b.held("east/10", "b", "b") // it is back, as b has seen
	b.held("east/11", "b", "b")
	b.live(lease, "")
	none[WriteAssignee](b)
	b.live(2*lease, "")
	for _, w := range all[WriteAssignee](b) {
		if w.ID.Cluster == "north" && w.Assignee == "a" {
			return
		}
	}
	t.Error("b alone serves a cluster for good, and nothing else moves away from it")
}

// Nobody looks at a cluster that is gone, so nobody would say that it is well when it comes back.
func TestAClusterThatWasRemovedWhileItCouldNotBeUsedIsLookedAtAnewWhenItComesBack(t *testing.T) {
	b := newBench(t)
	b.feed(Health{Cluster: "west"})
	b.seen(Shard{Assignee: "a", Epoch: 1})
	b.live(lease, "")
	none[WriteShard](b)
	b.feed(Clusters{})
	b.live(3*lease, "")
	probed := b.probed
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	b.live(3*lease, "")
	if b.probed == probed {
		t.Fatal("it isn't looked at")
	}
	b.writes(ClaimFree, "west/", "a")
}

// denied refuses all writes of records for that long.
func (b *bench) denied(d time.Duration, peer plan.UnfitFor) {
	for ; d > 0; d -= lease / 8 {
		for _, w := range all[WriteShard](b) {
			b.feed(Written{Seq: w.Seq, Outcome: Rejected, Cause: Refused})
		}
		b.live(lease/8, peer)
	}
}

// A replica may have a user of its own, who isn't allowed to write records.
func TestAnOrphanWhoseAssigneeMayNotClaimItFallsToAnother(t *testing.T) {
	b := newBench(t)
	b.says("b", "")
	b.seen(Shard{Assignee: "a", Epoch: 1})
	b.denied(lease/4, "")
	expect.Equal(t, "what it says after a moment", plan.UnfitFor(""), b.r.own.unfit)
	b.denied(lease/2, "")
	if got := b.r.own.unfit.Of("west"); got != plan.Keeps {
		t.Errorf("it says that it is %v for the cluster, want that it takes no more of it", got)
	}
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 2})
	b.live(2*lease+lease/4, "")
	expect.Equal(t, "what it says for good", plan.UnfitFor(""), b.r.own.unfit)
	b.says("b", "west+")
	b.seen(Shard{Assignee: "b", Epoch: 2})
	b.writes(ClaimFree, "west/", "a") // b says that it can't take it
}

func TestARecordThatNobodyMayClaimKeepsNobodyFromOthers(t *testing.T) {
	for name, c := range map[string]struct {
		peer plan.UnfitFor
		more bool // another record is written meanwhile
	}{"since nobody else is there": {peer: "west"}, "since others can be written": {more: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.says("b", c.peer)
			b.seen(Shard{Assignee: "a", Epoch: 1})
			for range 8 {
				b.denied(lease/4, c.peer)
				if c.more {
					b.r.recordWritten("east")
				}
			}
			expect.Equal(t, "what it says", plan.UnfitFor(""), b.r.own.unfit)
			b.live(lease, c.peer)
			find[WriteShard](b)
		})
	}
}

func TestAReplicaThatMayClaimAgainSaysSoAtOnce(t *testing.T) {
	b := newBench(t)
	b.says("b", "")
	b.seen(Shard{Assignee: "a", Epoch: 1})
	b.denied(lease/2, "")
	if got := b.r.own.unfit; got == "" {
		t.Error("it says nothing")
	}
	b.live(lease/2, "")
	b.commit(find[WriteShard](b).Seq)
	b.live(lease/8, "")
	expect.Equal(t, "what it says", plan.UnfitFor(""), b.r.own.unfit)
}

// lopsided returns the coordinator, which holds all four shards of east. Whoever holds west has no Lease.
func lopsided(t *testing.T, ofWest Incarnation) *bench {
	b := newBench(t)
	b.leads()
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, east: 2}})
	b.held("west/", ofWest, "a")
	for _, shard := range []string{"east/00", "east/01", "east/10", "east/11"} {
		b.held(shard, "a", "a")
	}
	return b
}

// evens checks that some of east is planned for b.
func (b *bench) evens() {
	b.t.Helper()
	if !slices.ContainsFunc(all[WriteAssignee](b), func(w WriteAssignee) bool {
		return w.Assignee == "b" && w.ID.Cluster == east
	}) {
		b.t.Error("b gets nothing of what a has")
	}
}

func TestAHolderWhoseLeaseCannotBeMadeHoldsUpNoOtherMoves(t *testing.T) {
	b := lopsided(t, "NONE")      // typed by hand
	b.feed(LeaseGone{ID: "NONE"}) // as a live read shows
	b.live(lease, "")
	seal := find[SealLease](b)
	b.pass(b.r.cfg.PlanEvery)
	none[WriteAssignee](b)
	b.feed(Written{Seq: seal.Seq, Outcome: Rejected, Cause: Refused})
	b.pass(b.r.cfg.PlanEvery)
	b.evens()
}

// A record may name a holder whose Lease can't be judged: one of another fleet, or of another program.
func TestAHolderWhoseLeaseNobodyFindsHoldsUpNoOtherMoves(t *testing.T) {
	b := lopsided(t, "x")
	b.live(3*lease, "")
	none[SealLease](b)
	b.evens()
}

// A coordinator whose watch of the Leases stands still plans the same move to it again and again.
func TestALeavingReplicaCallsTheSameMoveOffAFewTimesPerLease(t *testing.T) {
	b := newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"east": 0, "west": 0}})
	b.served() // so that it isn't gone at once
	b.feed(Leave{})
	b.commit(find[WriteLease](b).Seq)
	off := 0
	for range 100 {
		b.held("east/", "b", "a")
		b.pass(b.r.cfg.PlanEvery)
		for _, w := range all[WriteAssignee](b) {
			if w.ID.Cluster == "east" {
				off++
			}
			b.commit(w.Seq)
		}
	}
	if took := 100 * b.r.cfg.PlanEvery; off != 1+int(took/(lease/callOffs)) {
		t.Errorf("called off %d times in %v", off, took)
	}
}

func TestAReplicaSaysThatItDoesNotKnowAClusterEachTimeItsRecordsComeBack(t *testing.T) {
	b := newBench(t)
	for range 2 {
		b.held("east/", "b", "b")
		b.live(lease/2, "")
		b.states("east")
		b.feed(ShardGone{ID: id(t, "east/"), Asked: b.now.Add(1)})
		b.states("") // no record names the cluster
	}
}

func TestAPlannedShardIsFilledWhenTheWaitAfterTroubleIsOver(t *testing.T) {
	b := newBench(t)
	b.feed(Health{Cluster: "west"})
	b.feed(Health{Cluster: "west", Usable: true})
	b.held("west/", "b", "a")
	b.live(lease/2, "")
	none[Warm](b)
	b.live(lease, "")
	find[Warm](b)
}

// Otherwise replicas hand a shard whose caches take long to each other for ever, and nobody serves it.
func TestAWarmUpHasMoreTimeAfterEachThatTookTooLongHoweverLongAgoThatWas(t *testing.T) {
	b := newBench(t)
	b.held("west/", "b", "b")
	shard := b.r.shards[west]
	for times, want := range []time.Duration{1, 2, 4, 8} {
		want *= b.r.cfg.FillTimeout
		if got := b.r.fillTimeout(shard); got != want {
			t.Fatalf("after %d that took too long it is %v, want %v", times, got, want)
		}
		b.held("west/", "a", "a")
		b.live(want+lease/8, "west")
		b.held("west/", "b", "b") // which tries it for long
		b.live(2*mostHolds*lease, "")
	}
	b.held("west/", "a", "a")
	b.live(5*lease, "west")
	b.feed(Warmed{west})
	if got := b.r.fillTimeout(shard); got != 10*lease {
		t.Errorf("after one that took %v it is %v", 5*lease, got)
	}
	b.held("west/", "b", "b")
	b.held("west/", "a", "a")
	b.live(lease, "west")
	b.feed(Warmed{west})
	if got := b.r.fillTimeout(shard); got != b.r.cfg.FillTimeout {
		t.Errorf("after one that took %v it is %v", lease, got)
	}
}

// The other shards of its cluster may be small.
func TestAWarmUpKeepsItsTimeWhenAnotherOfItsClusterEnds(t *testing.T) {
	b := newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 1}})
	b.laid(Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(1), Version: b.next()})
	b.held("west/1", "a", "a")
	b.live(b.r.cfg.FillTimeout+lease/8, "west") // from now on it has twice the time
	b.held("west/0", "a", "a")
	b.feed(Warmed{b.r.of("west")[0].id})
	b.live(2*b.r.cfg.FillTimeout-lease/4, "")
	none[WriteShard](b)
	b.live(lease, "") // feed checks when it wakes up
	b.writes(Release, "west/1", "")
}

func TestWarmUpsOfOneClusterThatHangTogetherCountOnce(t *testing.T) {
	b := newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 2}})
	b.laid(Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(2), Version: b.next()})
	for _, id := range []string{"west/00", "west/01", "west/10", "west/11"} {
		b.held(id, "a", "a")
		b.live(lease/8, "west")
	}
	b.live(b.r.cfg.FillTimeout, "west")
	if got := b.r.site("west").late.count; got != 1 {
		t.Errorf("%d are counted", got)
	}
}

func TestAWarmUpThatIsTooLateAfterTheWaitForAnotherIsGivenBackToo(t *testing.T) {
	b := newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 1}})
	b.laid(Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(1), Version: b.next()})
	b.held("west/0", "a", "a")
	b.live(lease*3/2, "")
	b.held("west/1", "a", "a")
	b.live(b.r.cfg.FillTimeout-lease/8, "")
	b.writes(Release, "west/0", "")
	b.live(lease/2, "")
	b.writes(Release, "west/1", "")
}

func TestAnOrphanThatAPlanLeavesForLaterIsClaimedThen(t *testing.T) {
	b := newBench(t)
	b.says("b", "west")
	b.coordinates()
	b.feed(ShardSeen{Shard{ID: west, Version: b.next()}})
	b.feed(Health{Cluster: "west", Usable: true}) // else the claim waits for that first
	b.pass(b.r.cfg.PlanEvery)
	b.pass(b.r.cfg.PlanEvery)
	b.live(b.r.cfg.BuryTime-lease/8, "west")
	none[FindLead](b)
	b.live(lease/4, "west")
	find[FindLead](b)
	b.feed(LeadFound{b.r.lead.rec})
	b.writes(ClaimFree, "west/", "a")
}

// With a thousand clusters, looks that show nothing new come all the time.
func TestALookThatShowsNothingNewCausesNoWork(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1})
	b.feed(Health{Cluster: "west", Usable: true})
	b.r.fit.stale, b.r.replan = false, false
	b.r.healthSeen(Health{Cluster: "west", Usable: true})
	if b.r.fit.stale || b.r.replan {
		t.Errorf("fitness is computed anew: %v; planned anew: %v", b.r.fit.stale, b.r.replan)
	}
}

// A replica that starts, or that loses its way out, gets an answer for each of thousands of clusters within a second.
func TestAnswersOfManyClustersCauseOneStatementBetweenTwoPlans(t *testing.T) {
	b := newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"north": 0, "south": 0, "west": 0}})
	b.pass(time.Second)
	b.r.healthSeen(Health{Cluster: "north", Usable: true})
	if b.r.fit.stale {
		t.Error("the first answer of a cluster that can be used counts as a change")
	}
	b.feed(Health{Cluster: "north"})
	b.pass(b.r.cfg.PlanEvery)
	b.feed(Health{Cluster: "south"})
	b.states("north") // it is too early for south
	b.pass(b.r.cfg.PlanEvery)
	b.states("north,south")
}

func TestNoPlanIsMadeFromAStatementThatMustBeComputedAgain(t *testing.T) {
	b := newBench(t)
	b.leads()
	b.pass(time.Second)
	b.r.fit.stale = true
	b.feed(Tick{})
	b.feed(Health{Cluster: "west"})
	b.states("west") // it may plan now
}

func TestAClusterGetsItsRecordsOnceAReplicaCanServeIt(t *testing.T) {
	b := newBench(t)
	b.away = true
	b.coordinates()
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, east: 0}})
	b.says("b", "east")
	b.feed(Health{Cluster: east})
	b.feed(LayoutSeen{Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(0), Version: b.next()}})
	b.pass(b.r.cfg.PlanEvery)
	b.pass(b.r.cfg.PlanEvery)
	b.out = nil
	b.pass(lease / 20)
	none[FindLead](b) // nobody can serve it
	b.says("b", "")
	b.pass(lease / 20)
	find[FindLead](b) // else it isn't planned for
}

// No tick helps here.
func TestAListThatIsTurnedRoundIsAChangeOfEachCluster(t *testing.T) {
	b := newBench(t)
	b.served()
	b.says("b", "!")
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1, Warm: "b"})
	none[Drain](b)
	b.says("b", "")
	find[Drain](b)
}

func TestNobodyWaitsAfterTroubleOnceTheOnlyOtherIsDead(t *testing.T) {
	b := newBench(t)
	b.held("west/", "b", "b")
	for range 4 {
		b.feed(Health{Cluster: "west"})
		b.feed(Health{Cluster: "west", Usable: true})
	}
	b.live(lease/4, "")
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Sealed: true, Version: b.next()}})
	b.pass(b.r.cfg.PlanEvery)
	b.feed(Health{Cluster: "west", Usable: true})
	b.writes(ClaimDead, "west/", "a")
}

func TestASecondBurialEndsToo(t *testing.T) {
	b := newBench(t)
	for range 2 {
		b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1})
		b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
		b.live(b.r.cfg.BuryTime+lease/4, "")
		if left := b.r.shards[west].freeAt; !left.IsZero() {
			t.Errorf("waits until %v, and it is %v", left, b.now)
		}
	}
}

func TestTheMachineWakesUpWhenABurialEnds(t *testing.T) {
	b := newBench(t)
	b.pass(lease / 8) // so that no renewal is due at that time
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1})
	b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
	free := b.now.Add(b.r.cfg.BuryTime)
	b.live(b.r.cfg.BuryTime-lease/100, "")
	if at := b.r.Wake(); at > free.Mono {
		t.Errorf("wakes up %v after that", at-free.Mono)
	}
}
