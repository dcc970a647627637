package ownership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/expect"
)

const lease = 10 * time.Second

// Each is all of its cluster.
var west, eastern = keyspace.ShardID{Cluster: "west"}, keyspace.ShardID{Cluster: "east"}

// bench drives one machine by hand: its clocks are what the test says, its writes are answered by the test.
type bench struct {
	t            *testing.T
	r            *Replica
	now          Instant
	out          []Effect
	v            Version
	probed       int
	away, silent bool // probes fail; they aren't answered
	// deaf: nothing shows that its watches go on.
	deaf bool
	// layout is what a live read finds.
	layout Layout
	// unread: live reads aren't answered.
	unread bool
}

// newBench returns a machine that has joined as a, sees the peer b alive, and knows the cluster west, which is one
// shard.
func newBench(t *testing.T) *bench {
	t.Helper()
	// so that the epochs of records, which are small, are no older than the incarnation
	return newBenchAt(t, time.Millisecond)
}

// begin returns a machine that has seen nothing yet.
func begin(t *testing.T, memory *Memory) *bench {
	return &bench{t: t, r: New(DefaultConfig("a", "a", lease), memory), now: Instant{Mono: time.Hour, Wall: time.Hour},
		v: 100}
}

func newBenchAt(t *testing.T, wall time.Duration) *bench {
	t.Helper()
	b := begin(t, nil)
	b.now.Wall = wall
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Version: 1}})
	b.feed(LeadSeen{Lead{Holder: "b", Version: 2}})
	b.laid(Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(0), Version: 3})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	b.feed(Synced{})
	b.commit(find[WriteLease](b).Seq)
	return b
}

// feed lets the machine take a step. Live reads of layouts are answered. What it probes answers, unless the test says
// that it is away.
func (b *bench) feed(in Input) {
	if !b.deaf {
		b.r.noteCaughtUp(LeaseWatch, b.now)
		b.r.noteCaughtUp(ShardWatch, b.now)
	}
	b.out = append(b.out, b.r.Step(b.now, in)...)
	b.tracks()
	for _, p := range all[Probe](b) {
		b.probed++
		if !b.silent {
			b.feed(Health{Cluster: p.Cluster, Usable: !b.away})
		}
	}
	if b.unread {
		return
	}
	for _, e := range all[FindLayout](b) {
		b.feed(LayoutRead{Ask: e.Ask, Cluster: e.Cluster, Layout: b.layout})
	}
}

// tracks checks that what steps keep in mind of all shards is what looking at each of them shows.
func (b *bench) tracks() {
	b.t.Helper()
	if b.r.over || !b.r.Valid(b.now) {
		return
	}
	unserved, filling := 0, 0
	for _, t := range b.r.order {
		if b.r.isUnserved(t) {
			unserved++
		}
		if t.successorCold() {
			filling++
		}
		at := t.wake(b.r)
		if hour := b.r.now.Mono + time.Hour; at < hour && !t.timed || at > b.r.now.Mono && at < min(hour, b.r.timedAt) {
			b.t.Errorf("%s must be decided after %v, and the machine isn't woken before %v", t.id, at-b.r.now.Mono,
				b.r.timedAt-b.r.now.Mono)
		}
	}
	if unserved != b.r.orphans {
		b.t.Errorf("%d shards are unserved, and %d are counted", unserved, b.r.orphans)
	}
	if filling != b.r.filling {
		b.t.Errorf("%d successors aren't warm, and %d are counted", filling, b.r.filling)
	}
}

// laid feeds a layout, as the watch would.
func (b *bench) laid(l Layout) {
	b.layout = l
	b.feed(LayoutSeen{l})
}

// next is the version of the next write.
func (b *bench) next() Version {
	b.v++
	return b.v
}

func (b *bench) commit(seq uint64) {
	b.feed(Written{Seq: seq, Outcome: Committed, Version: b.next()})
}

// commitRenewals commits the renewals that were sent.
func (b *bench) commitRenewals() {
	for _, w := range all[WriteLease](b) {
		b.commit(w.Seq)
	}
}

func (b *bench) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.feed(Tick{})
}

// seen feeds a record, as the watch would: that of west, unless it names another shard.
func (b *bench) seen(s Shard) {
	if s.ID == (keyspace.ShardID{}) {
		s.ID = west
	}
	s.Floor, s.Version = max(s.Floor, 1), b.next()
	b.feed(ShardSeen{s})
}

// served brings the machine to serve the shard, under epoch 1.
func (b *bench) served() {
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
	b.feed(Warmed{west})
	find[Activate](b)
}

// seals checks that its turn to seal comes now, and the version at which it seals a replica's Lease.
func (b *bench) seals(id Incarnation, base Version) {
	b.t.Helper()
	b.pass(lease / 50)
	if got := find[SealLease](b); got.ID != id || got.Base != base {
		b.t.Errorf("it seals %+v, want %s at version %d", got, id, base)
	}
}

// claimsAbove checks that it claims a shard, at a higher epoch than this.
func (b *bench) claimsAbove(epoch Epoch) {
	b.t.Helper()
	if got := find[WriteShard](b); got.Shard.Epoch <= epoch {
		b.t.Errorf("it claims at epoch %d, want one above %d", got.Shard.Epoch, epoch)
	}
}

// find takes the last effect of a type that was emitted since one of it was last taken.
func find[E Effect](b *bench) E {
	b.t.Helper()
	found := all[E](b)
	if len(found) == 0 {
		b.t.Fatalf("no %T was emitted", *new(E))
	}
	return found[len(found)-1]
}

// none checks that no effect of a type was emitted since one of it was last taken.
func none[E Effect](b *bench) {
	b.t.Helper()
	if found := all[E](b); len(found) > 0 {
		b.t.Fatalf("%#v was emitted", found[0])
	}
}

// all takes the effects of a type that were emitted since one of it was last taken.
func all[E Effect](b *bench) (found []E) {
	rest := b.out[:0]
	for _, e := range b.out {
		if wanted, ok := e.(E); ok {
			found = append(found, wanted)
		} else {
			rest = append(rest, e)
		}
	}
	b.out = rest
	return found
}

func TestR1AReplicaMayActUntilAMarginBeforeItsLeaseRunsOutCountedFromBeforeItsRenewalWasSent(t *testing.T) {
	b := newBench(t)
	b.now = b.now.Add(4 * time.Second)
	b.feed(Tick{})
	sent := b.now
	renewal := find[WriteLease](b)
	b.now = b.now.Add(time.Second)
	b.commit(renewal.Seq)
	for _, c := range []struct {
		name string
		at   Instant
		want bool
	}{
		{"just before on both clocks", sent.Add(8*time.Second - 1), true},
		{"just past on both clocks", sent.Add(8 * time.Second), false},
		{"past on the monotonic clock alone", Instant{Mono: sent.Mono + 8*time.Second, Wall: sent.Wall - time.Hour}, false},
		{"past on the wall clock alone", Instant{Mono: sent.Mono, Wall: sent.Wall + 8*time.Second}, false},
	} {
		if got := b.r.Valid(c.at); got != c.want {
			t.Errorf("%s: valid is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestR1AReplicaThatIsNotRenewedLapsesForGood(t *testing.T) {
	b := newBench(t)
	b.served()
	b.now = b.now.Add(8 * time.Second)
	b.feed(Tick{})
	find[Lapse](b)
	b.out = nil
	b.feed(Written{Seq: 2, Outcome: Committed, Version: 1000})
	b.pass(time.Second)
	if len(b.out) != 0 || b.r.Valid(Instant{}) {
		t.Errorf("after its lapse the machine does %v", b.out)
	}
}

func TestR1ARenewalThatWasSentTwiceCountsFromTheFirstTimeOnceItIsSeen(t *testing.T) {
	b := newBench(t)
	b.pass(4 * time.Second)
	sent := b.now
	first := find[WriteLease](b)
	b.feed(Written{Seq: first.Seq, Outcome: Unknown})
	b.pass(time.Second)
	again := find[WriteLease](b)
	b.feed(LeaseSeen{Lease{ID: "a", Renewal: again.Lease.Renewal, Version: b.next()}})
	want := sent.Add(8 * time.Second)
	if got := b.r.ValidUntil(); got != want {
		t.Errorf("valid until %v, want %v: nobody knows which of the two it was", got, want)
	}
	b.feed(Written{Seq: again.Seq, Outcome: Rejected}) // the repeat's answer: the first one was committed
	if got := b.r.ValidUntil(); got != want {
		t.Errorf("valid until %v after the repeat's answer, want %v", got, want)
	}
	b.pass(b.r.cfg.RenewEvery)
	if next := find[WriteLease](b); next.Base != b.v || next.Lease.Renewal == again.Lease.Renewal {
		t.Errorf("the next renewal, %+v, doesn't replace version %d or can't be told from the one before", next, b.v)
	}
}

func TestR1WhatSomebodyElseWritesOnTheLeaseIsNoRenewal(t *testing.T) {
	b := newBench(t)
	until := b.r.ValidUntil()
	b.pass(4 * time.Second)
	renewal := find[WriteLease](b)
	b.feed(Written{Seq: renewal.Seq, Outcome: Unknown})
	b.feed(LeaseSeen{Lease{ID: "a", Renewal: renewal.Lease.Renewal - 1, Version: b.next()}})
	if got := b.r.ValidUntil(); got != until {
		t.Errorf("valid until %v, want %v as before", got, until)
	}
	if next := find[WriteLease](b); next.Base != b.v {
		t.Errorf("the next renewal is on version %d, want %d", next.Base, b.v)
	}
}

func TestALeaseThatIsSealedOrGoneIsALapseAtOnce(t *testing.T) {
	for name, in := range map[string]Input{
		"sealed": LeaseSeen{Lease{ID: "a", Sealed: true, Version: 1000}},
		"gone":   LeaseGone{"a"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.feed(in)
			find[Lapse](b)
			if gone := name == "gone"; b.r.Afresh() != gone || (b.r.Memory().lead == 0) != gone {
				t.Errorf("the next begins afresh: %v, and knows the lead record in version %d", b.r.Afresh(), b.r.Memory().lead)
			}
		})
	}
}

func TestALeaseThatCannotBeCreatedInTimeIsGivenUpWithItsName(t *testing.T) {
	b := begin(t, nil)
	b.feed(Tick{})
	b.feed(Written{Seq: find[WriteLease](b).Seq, Outcome: Unknown})
	b.pass(8*time.Second - 1)
	none[Lapse](b)
	b.pass(1)
	find[Lapse](b)
}

func TestTheUIDOfARecordThatWasWrittenHereComesWithTheWatch(t *testing.T) {
	b := newBench(t)
	written := Shard{ID: west, Assignee: "a", Holder: "a", Epoch: 1, Floor: 1, Version: 1000}
	b.feed(ShardSeen{written}) // as after a write of its own, whose answer says no UID
	written.UID = "uid"
	b.feed(ShardSeen{written})
	if rec, ok := b.r.Record(west); !ok || rec.UID != "uid" {
		t.Errorf("record %+v, %v", rec, ok)
	}
}

func TestR2AGateOpensOnlyForARecordThatNamesTheReplica(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 7})
	find[Warm](b)
	b.feed(Warmed{west})
	announced := find[WriteShard](b)
	if announced.Kind != AnnounceWarm || announced.Shard.Warm != "a" || announced.Shard.Holder != "b" {
		t.Errorf("it writes %+v, want that it is warm", announced)
	}
	b.commit(announced.Seq)
	none[Activate](b)
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 8})
	if got := find[Activate](b); got.Epoch != 8 {
		t.Errorf("it serves at epoch %d, want the record's, 8", got.Epoch)
	}
}

func TestR2AShardIsClaimedOnlyFromNobodyOrFromASealedHolderOneEpochUp(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 7})
	b.live(4*time.Second, "")
	none[WriteShard](b)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Sealed: true, Version: 1000}})
	claim := find[WriteShard](b)
	if claim.Kind != ClaimDead || claim.From != "b" || claim.Shard.Holder != "a" || claim.Shard.Epoch != 8 {
		t.Errorf("it writes %+v, want a claim from b at epoch 8", claim)
	}
}

func TestAClaimOnItsWayCountsInThePlansThatAreMadeMeanwhile(t *testing.T) {
	b := newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 3}})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Version: 1}})
	var orphans []keyspace.ShardID
	for i, holder := range []Incarnation{"a", "a", "b", "b", "c", "c", "c", "c"} {
		id := keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(3)[i]}
		if holder == "c" {
			orphans = append(orphans, id)
		}
		b.seen(Shard{ID: id, Assignee: holder, Holder: holder, Epoch: 1})
	}
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Sealed: true, Version: 1000}})
	b.planned()
	claims := map[keyspace.ShardID]bool{}
	for _, w := range all[WriteShard](b) {
		claims[w.Shard.ID] = true
	}
	if len(claims) != 2 {
		t.Fatalf("%v are claimed, want half of the dead replica's four", claims)
	}
	b.v = 2000
	for _, id := range slices.Backward(orphans) {
		if !claims[id] {
			b.seen(Shard{ID: id, Assignee: "b", Holder: "b", Epoch: 1})
			b.planned()
			none[WriteShard](b)
		}
	}
}

func TestR3ALeaseIsSealedOnlyAfterTheVersionStoodStillForItsWholeDurationHere(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: 2 * lease, Version: 50}})
	for range 4 {
		b.pass(4 * time.Second)
		b.commit(find[WriteLease](b).Seq)
		none[SealLease](b)
	}
	b.pass(4*time.Second - 1)
	b.commit(find[WriteLease](b).Seq)
	b.now.Wall += lease // no wall clock makes it older
	none[SealLease](b)
	b.now.Wall -= lease
	b.pass(lease / 50)
	b.seals("b", 50) // the version that stood still
}

// Those that leave do so one after the other as well, for the whole fleet may leave.
func TestALeavingReplicaSealsAfterAllOthers(t *testing.T) {
	for before := range 2 {
		b := newBench(t)
		b.served()
		if before > 0 {
			b.feed(LeaseSeen{Lease{ID: "A", Replica: "A", Duration: lease, Protocol: 3, Version: 40, Sealed: true}})
		}
		b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Version: 50}})
		b.feed(Leave{})
		b.live(lease, "")
		b.pass(time.Duration(2+lastTurn+before)*longestTurn - 1)
		none[SealLease](b)
		b.pass(1)
		if got := find[SealLease](b); got.ID != "c" {
			t.Errorf("it seals %+v, want c", got)
		}
	}
}

func TestR3AnOldVersionOfALeaseIsNoSignOfLife(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Version: 50}})
	b.pass(6 * time.Second)
	b.commit(find[WriteLease](b).Seq)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Version: 49}})
	b.pass(4 * time.Second)
	b.pass(lease / 50)
	find[SealLease](b)
}

func TestR3ALeaseThatIsMissedAgainRunsOutAllTheSame(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
	b.feed(LeaseGone{"b"})
	b.pass(6 * time.Second)
	b.commit(find[WriteLease](b).Seq)
	b.feed(LeaseGone{"b"}) // as the fresh read after a lost seal tells
	b.pass(4 * time.Second)
	b.seals("b", 0) // there is no lease
}

// Our view of the leases may be late: not to have seen one is no sign that it isn't there.
func TestR3ALeaseThatWasNeverSeenRunsOutOnlySinceAReadShowedThatItIsMissing(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "c", Holder: "c", Epoch: 7})
	if got := find[FindLease](b); got.ID != "c" {
		t.Errorf("it looks for the lease of %s, want c's", got.ID)
	}
	b.live(2*lease, "")
	none[SealLease](b)
	b.feed(LeaseGone{"c"})
	b.live(lease-1, "")
	none[SealLease](b)
	b.pass(1)
	b.seals("c", 0) // there is no lease
}

func TestR3ADeletedLeaseRunsOutAfterItsOwnDuration(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "c", Duration: 3 * lease, Version: b.next()}})
	b.seen(Shard{Assignee: "c", Holder: "c", Epoch: 7})
	b.feed(LeaseGone{"c"})
	b.live(3*lease-1, "")
	none[SealLease](b)
	b.pass(1)
	b.seals("c", 0) // there is no lease
}

func TestR4AHandoffOfUnknownOutcomeIsRepeatedAsItWasAndNothingIsServedMeanwhile(t *testing.T) {
	for _, outcome := range []Outcome{Unknown, Rejected} {
		t.Run(outcome.String(), func(t *testing.T) {
			b := newBench(t)
			b.served()
			b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1, Warm: "b"})
			find[Drain](b)
			none[WriteShard](b)
			b.feed(Drained{west})
			first := find[WriteShard](b)
			b.feed(Written{Seq: first.Seq, Outcome: outcome})
			// no successor now
			b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Leaving: true, Version: b.next()}})
			none[Activate](b)
			b.pass(b.r.cfg.RetryEvery)
			expect.Equal(t, "the repeat differs", first, find[WriteShard](b))
			b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
			find[Activate](b)
		})
	}
}

// The handoff may be committed, so b's time runs from when its lease was gone.
func TestR3ALeaseIsMissedThatGoesWhileAHandoffToItIsUnderWay(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Version: b.next()}}) // else that record names b, too
	b.served()
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1, Warm: "b"})
	b.feed(Drained{west})
	handoff := find[WriteShard](b)
	gone := b.now
	b.feed(LeaseGone{"b"})
	b.pass(lease / 4)
	b.commit(handoff.Seq)
	if p := b.r.peers["b"]; p == nil || p.changed != gone {
		t.Errorf("%+v, want b missed since %v", p, gone)
	}
}

func TestALeavingReplicaDoesNotCoordinate(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Version: b.next()}})
	b.feed(Leave{})
	// it coordinated
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Sealed: true, Version: b.next()}})
	b.pass(b.r.cfg.PlanEvery)
	none[WriteLead](b)
}

func TestAHandoffIsOneWriteToTheWarmSuccessorOneEpochUp(t *testing.T) {
	b := newBench(t)
	b.served()
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1})
	none[Drain](b) // b isn't warm
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1, Warm: "b"})
	find[Drain](b)
	b.feed(Drained{west})
	got := find[WriteShard](b)
	next := Shard{ID: west, Assignee: "b", Holder: "b", Epoch: 2, Floor: 1, Version: b.v}
	want := WriteShard{Kind: HandOff, From: "a", Shard: next}
	expect.Equal(t, "the handoff", want, got, cmpopts.IgnoreFields(WriteShard{}, "Seq"))
	b.commit(got.Seq)
	find[Close](b)
}

func TestI5AShardThatIsToGoIsNotReportedOnUntilItsPlanIsCalledOff(t *testing.T) {
	b := newBench(t)
	b.served()
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1})
	b.feed(Measured{ID: west, Objects: 7})
	b.live(2*b.r.cfg.ReportEvery, "")
	none[WriteShard](b)
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
	b.live(2*b.r.cfg.ReportEvery, "")
	if w := find[WriteShard](b); w.Kind != Report || w.Shard.Objects != 7 {
		t.Errorf("the holder writes %+v, want a report of 7 objects", w)
	}
}

func TestALoadThatTheRecordWouldNotShowIsNotReported(t *testing.T) {
	b := newBench(t)
	b.served()
	measured := func(load float64) []WriteShard {
		b.feed(Measured{ID: west, Load: load})
		b.live(2*b.r.cfg.ReportEvery, "")
		return all[WriteShard](b)
	}
	if got := measured(0.0004); len(got) > 0 {
		t.Fatalf("the load of a shard that rests is reported: %+v", got)
	}
	got := measured(0.0127)
	if len(got) != 1 || got[0].Kind != Report || got[0].Shard.Load != 0.013 {
		t.Fatalf("the holder writes %+v, want a report of 0.013", got)
	}
	b.commit(got[0].Seq)
	for _, load := range []float64{0.0127, 0.0133, 0.0125} {
		if got := measured(load); len(got) > 0 {
			t.Errorf("a load of %v is reported: %+v", load, got)
		}
	}
}

func TestAPlanThatMovesOnMakesAReplicaTakeBackThatItIsWarm(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 1})
	b.feed(Warmed{west})
	b.commit(find[WriteShard](b).Seq)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1, Warm: "a"})
	if got := find[WriteShard](b); got.Kind != AnnounceWarm || got.Shard.Warm != "" {
		t.Errorf("it writes %+v, want that nobody is warm", got)
	}
}

func TestAHolderTakesBackThatItsSuccessorIsWarmWhenThatIsGone(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1})
	b.feed(Warmed{west})
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1, Warm: "b"}) // called off; b takes it back itself while it lives
	none[WriteShard](b)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Leaving: true, Version: b.next()}})
	if w := find[WriteShard](b); w.Shard.Warm != "" || w.Shard.Holder != "a" || w.Shard.Epoch != 1 {
		t.Errorf("the holder writes %+v", w)
	}
}

func TestALeavingReplicaIsNotGoneBeforeNobodyCanHandItAShard(t *testing.T) {
	b := newBench(t)
	b.feed(Leave{})
	leaving := find[WriteLease](b)
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 1}) // planned by who hasn't seen yet that a leaves
	b.commit(leaving.Seq)
	none[DropLease](b)
	b.pass(b.r.cfg.PlanEvery)
	off := find[WriteAssignee](b)
	if off.Assignee != "b" {
		t.Fatalf("the leaving replica plans the shard for %q", off.Assignee)
	}
	b.commit(off.Seq)
	find[DropLease](b)
}

func TestALeavingReplicaPlansNothingBeforeTheOthersCanKnowThatItLeaves(t *testing.T) {
	b := newBench(t)
	b.served()
	b.feed(Leave{})
	b.pass(b.r.cfg.PlanEvery)
	none[WriteAssignee](b)
	b.commit(find[WriteLease](b).Seq)
	b.pass(b.r.cfg.PlanEvery)
	if got := find[WriteAssignee](b); got.Assignee != "b" {
		t.Errorf("the shard is planned for %q, want b", got.Assignee)
	}
}

func TestAFleetThatLeavesAtOnceMovesNothing(t *testing.T) {
	b := newBench(t)
	b.served()
	b.feed(Leave{})
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Leaving: true, Version: b.next()}})
	none[WriteAssignee](b)
	find[Drain](b)
	b.feed(Drained{west})
	if got := find[WriteShard](b); got.Kind != Release || got.Shard.Holder != "" {
		t.Errorf("it writes %+v, want the release", got)
	}
}

func TestALeavingReplicaLeavesItToALeavingHolderToCallOffAMove(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Version: 3}}) // both can leave to it
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Leaving: true, Version: b.next()}})
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 1})
	b.feed(Leave{})
	none[WriteAssignee](b)
	b.commit(find[WriteLease](b).Seq)
	b.pass(b.r.cfg.PlanEvery)
	none[WriteAssignee](b)
	none[DropLease](b)
	b.seen(Shard{Assignee: "c", Holder: "b", Epoch: 1})
	find[DropLease](b)
}

func TestARecordMadeAnewIsLeftAloneUntilItsOldHolderMustHaveSeenThat(t *testing.T) {
	anew := map[string]func(b *bench){
		"the deletion was seen": func(b *bench) {
			b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
			b.next() // the deletion's
			b.seen(Shard{Assignee: "a"})
		},
		"only its end was seen": func(b *bench) { b.seen(Shard{Assignee: "a"}) },
	}
	for name, happen := range anew {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
			happen(b)
			b.live(b.r.cfg.BuryTime-1, "")
			none[WriteShard](b)
			b.pass(1)
			if got := find[WriteShard](b); got.Shard.Epoch != 8 {
				t.Errorf("it claims at epoch %d, want above the old record's: 8", got.Shard.Epoch)
			}
		})
	}
}

func TestAReadThatWasSentBeforeARecordWasSeenIsNoSignThatItIsGone(t *testing.T) {
	b := newBench(t)
	asked := b.now
	b.served()
	b.feed(ShardGone{ID: west, Asked: asked})
	none[Close](b)
	b.feed(ShardGone{ID: west, Asked: asked.Add(1)})
	find[Close](b)
}

func TestANewCoordinatorRaisesTheEpochFloorAndLooksBeforeItMakesRecords(t *testing.T) {
	b := newBenchAt(t, time.Hour)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Protocol: 3, Sealed: true, Version: 1000}})
	lead := find[WriteLead](b)
	if want := Epoch(time.Hour / time.Millisecond); lead.Lead.Floor != want {
		t.Errorf("the floor is %d, want %d, the time in milliseconds", lead.Lead.Floor, want)
	}
	b.feed(Written{Seq: lead.Seq, Outcome: Committed, Version: 1001})
	for range 6 {
		b.pass(4 * time.Second)
		b.commit(find[WriteLease](b).Seq)
		none[CreateShard](b)
	}
	b.pass(b.r.cfg.BuryTime - 24*time.Second)
	none[CreateShard](b)
	find[FindLead](b)
	b.feed(LeadFound{b.r.lead.rec})
	none[CreateShard](b)
	lead = find[WriteLead](b)
	if want := Epoch((time.Hour + b.r.cfg.BuryTime) / time.Millisecond); lead.Lead.Floor != want {
		t.Errorf("the floor is %d, want %d, the time by now", lead.Lead.Floor, want)
	}
	b.feed(Written{Seq: lead.Seq, Outcome: Committed, Version: 1002})
	find[FindLead](b)
	b.feed(LeadFound{b.r.lead.rec})
	none[WriteLead](b)
	if got := find[CreateShard](b); got.ID != west || got.Floor <= lead.Lead.Floor {
		t.Errorf("it makes %+v, want %s above the floor %d", got, west, lead.Lead.Floor)
	}
}

// The last moves of the old record, and a claim of one that a user made in its place, may have gone unseen.
func TestI2ARecordThatIsMadeAnewStartsTwoBandsAboveAllThatIsKnownOfTheOldOne(t *testing.T) {
	const floor = 1_000_000 // above the clock
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Floor: floor, Version: b.v}})
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: floor + 10})
	b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
	b.live(b.r.cfg.BuryTime-1, "")
	none[CreateShard](b)
	b.pass(1)
	b.feed(LeadFound{b.r.lead.rec})
	if got := find[CreateShard](b); got.Floor != floor+10+2*epochBand+1 {
		t.Errorf("its first epoch is to be %d, want %d", got.Floor, floor+10+2*epochBand+1)
	}
}

// After a mistyped epoch there must be no record, and no lead record, that nobody can read.
func TestNoFloorIsWrittenThatDoesNotCount(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Floor: 20, Version: b.v}})
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: MaxFloor + 1000})
	b.live(4*time.Second, "")
	raised := find[WriteLead](b)
	if raised.Lead.Floor != MaxFloor {
		t.Errorf("the floor is raised to %d, want %d", raised.Lead.Floor, MaxFloor)
	}
	b.commit(raised.Seq)
	b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
	b.live(28*time.Second, "")
	b.feed(LeadFound{b.r.lead.rec})
	made := find[CreateShard](b)
	if made.Floor != MaxFloor {
		t.Errorf("a record is made with floor %d, want %d", made.Floor, MaxFloor)
	}
	b.commit(made.Seq)
	b.seen(Shard{Assignee: "a", Floor: MaxFloor})
	b.pass(time.Second)
	b.feed(LeadFound{b.r.lead.rec})
	b.claimsAbove(MaxFloor + 1000) // what was used
	none[WriteLead](b)
}

// One that stood still may have been succeeded, and its successor may have raised the floor and made the record.
func TestI2ACoordinatorMakesRecordsAboveTheFloorThatALiveReadShows(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Floor: 20, Version: b.v}})
	b.live(5*time.Second, "")
	b.r.lead.founded, b.r.replan = true, true
	b.pass(time.Second)
	find[FindLead](b)
	b.feed(LeadFound{Lead{Holder: "b", Floor: 500, Version: b.v + 1}})
	none[CreateShard](b)
	b.feed(LeadSeen{Lead{Holder: "a", Floor: 900, Version: b.v + 2}})
	none[CreateShard](b)
	b.pass(lease / 20)
	find[FindLead](b)
	b.feed(LeadFound{Lead{Holder: "a", Floor: 900, Version: b.v + 2}})
	if got := find[CreateShard](b); got.Floor <= 900 {
		t.Errorf("its first epoch is to be %d, want one above the floor of 900", got.Floor)
	}
}

func TestI2ARecordMadeBelowTheFloorIsClaimedAboveIt(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "b", Floor: 500, Version: b.v}})
	b.seen(Shard{Assignee: "a", Floor: 300})
	none[WriteShard](b)
	find[FindLead](b)
	b.feed(LeadFound{Lead{Holder: "b", Floor: 700, Version: b.v + 1}})
	if got := find[WriteShard](b); got.Shard.Epoch != 700+epochBand+1 {
		t.Errorf("it is claimed at epoch %d, want a band above the floor of 700", got.Shard.Epoch)
	}
}

// The record that it replaces may have been one of a former coordinator, and have been claimed at the epoch that the
// floor gives that.
func TestI2ARecordMadeByHandIsClaimedHigherThanOneOfAFormerCoordinator(t *testing.T) {
	const floor = 1_000_000 // above the clock
	b := newBench(t)
	b.live(b.r.cfg.BuryTime+lease/4, "")
	b.feed(LeadSeen{Lead{Holder: "b", Floor: floor, Version: b.next()}})
	lead := b.v
	b.feed(ShardSeen{Shard{ID: west, Assignee: "a", Version: b.v}})
	b.live(b.r.cfg.BuryTime-time.Millisecond, "")
	none[FindLead](b)
	b.live(time.Millisecond, "") // whoever held the one that it replaces, perhaps never seen here, has seen that by now
	find[FindLead](b)
	b.feed(LeadFound{Lead{Holder: "b", Floor: floor, Version: lead}})
	b.claimsAbove(floor + epochBand + 1)
}

// Home may have been set up again from nothing, and epochs may have been used of which nobody here knows.
func TestI2ARecordMadeByHandIsClaimedAboveAFloorThatWasRaisedAMomentAgo(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "b", Floor: 5, Version: b.next()}})
	b.feed(ShardSeen{Shard{ID: west, Assignee: "a", Version: b.v}})
	b.live(b.r.cfg.BuryTime, "")
	find[FindLead](b)
	b.feed(LeadFound{b.r.lead.rec})
	none[WriteShard](b)
	raise, now := find[WriteLead](b), b.r.era()
	if raise.Lead.Holder != "b" || raise.Lead.Floor != now {
		t.Errorf("it writes %+v, want b as before and a floor of %d, the time by now", raise.Lead, now)
	}
	b.commit(raise.Seq)
	find[FindLead](b)
	b.feed(LeadFound{b.r.lead.rec})
	b.claimsAbove(now)
}

// It may have come back from a snapshot, while its epochs were used up.
func TestI2WhatAnIncarnationFindsIsClaimedAboveAFloorRaisedSince(t *testing.T) {
	b := begin(t, nil)
	now := Epoch(time.Hour / time.Millisecond)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Version: 1}})
	b.feed(LeadSeen{Lead{Holder: "b", Floor: 40, Version: 2}})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Sealed: true, Version: 3}})
	b.seen(Shard{Assignee: "a", Holder: "c", Epoch: 50})
	b.r.watched = true
	b.feed(Synced{})
	b.commit(find[WriteLease](b).Seq)
	none[WriteShard](b)
	raise := find[WriteLead](b)
	if raise.Lead.Holder != "b" || raise.Lead.Floor < now {
		t.Errorf("it writes %+v, want b as before and a floor of at least %d", raise.Lead, now)
	}
	b.commit(raise.Seq)
	b.claimsAbove(now)
}

func TestADeletedCoordinatorRecordIsMadeAnewAboveTheFloorThatItHeld(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "b", Floor: 1 << 40, Version: b.v}})
	b.feed(LeadGone{})
	b.feed(LeadSeen{Lead{Holder: "b", Floor: 1 << 40, Version: b.v}}) // a late read
	lead := find[WriteLead](b)
	if lead.Base != 0 || lead.Lead.Holder != "a" || lead.Lead.Floor <= 1<<40 {
		t.Errorf("it writes %+v over version %d, want a new record for a with a higher floor", lead.Lead, lead.Base)
	}
	b.commit(lead.Seq)
	b.pass(time.Second)
	none[CreateShard](b)
	none[FindLead](b) // it didn't found the fleet, so it looks for records first
}

func TestASealedLeaseStaysForALeaseDurationForThoseWhoStillNameIt(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Version: b.v}})
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: 1000}})
	b.live(lease-1, "")
	none[ForgetLease](b)
	b.pass(1)
	if got := find[ForgetLease](b); got.ID != "c" {
		t.Errorf("it removes the lease of %s, want c's", got.ID)
	}
}

func TestASealedLeaseIsRemovedSoonAfterTheLastRecordThatNamesItChanges(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Version: b.v}})
	b.seen(Shard{Assignee: "a", Holder: "c", Epoch: 1})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: 1000}})
	b.live(3*lease, "")
	none[ForgetLease](b)
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 2})
	b.pass(lease / 20)
	find[ForgetLease](b)
}

var deserted = Shard{ID: eastern, Holder: "c", Assignee: "c", Warm: "b", Epoch: 5, Floor: 3}

// desert returns a coordinator that no longer knows a cluster whose record has a holder.
func desert(t *testing.T, dead bool) *bench {
	b := newBench(t)
	b.leads()
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, "east": 0}})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: 10 * lease, Protocol: 3, Version: b.next()}})
	b.seen(deserted)
	b.live(lease, "")
	if dead {
		b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: b.next()}})
	}
	all[WriteShard](b)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	return b
}

// A replica that died while its cluster was removed leaves records that nobody claims.
func TestADeadHolderIsClearedFromTheRecordsOfARemovedCluster(t *testing.T) {
	b := desert(t, true)
	b.live(b.r.cfg.MeetTimeout, "east")
	none[WriteShard](b)
	b.live(lease/4, "east")
	got, want := b.writes(Clear, "east/", "").Shard, deserted
	want.Holder, want.Warm, want.Version = "", "", got.Version
	expect.Equal(t, "what it writes", want, got)
	none[ForgetLease](b)
	b.seen(want)
	b.live(lease, "east")
	find[ForgetLease](b)
	none[WriteShard](b)

	for name, c := range map[string]struct {
		dead bool
		does func(b *bench)
		says plan.UnfitFor // b
	}{
		"a holder that may be alive": {false, func(b *bench) { b.says("c", "east") }, "east"},
		"another can serve it":       {true, func(*bench) {}, ""},
		"another keeps it":           {true, func(*bench) {}, "east+"},
		"another could serve it, which is late": {true, func(b *bench) {
			b.feed(LeaseSeen{Lease{ID: "d", Replica: "d", Duration: lease, Protocol: 3, Version: b.next()}})
		}, "east"},
		"it is here, and wasn't reached yet": {true, func(b *bench) {
			b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0},
				Unmet: map[keyspace.ClusterName]bool{"east": true}})
		}, "east"},
		"another coordinates": {true, func(b *bench) {
			b.feed(LeadSeen{Lead{Holder: "b", Version: b.next()}})
		}, "east"},
		"it is here, and can't be used": {true, func(b *bench) {
			b.away = true
			b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, "east": 0}})
			b.feed(Health{Cluster: "east"})
		}, "east"},
	} {
		t.Run(name, func(t *testing.T) {
			b := desert(t, c.dead)
			c.does(b)
			b.live(5*lease, c.says)
			none[WriteShard](b)
		})
	}
}

// Whoever can serve it may take it over.
func TestAClusterCountsAsRemovedOnlyAfterNobodyCouldServeItForLongWithoutABreak(t *testing.T) {
	for name, interrupt := range map[string]func(b *bench){
		"another could, and died": func(b *bench) {
			b.feed(LeaseSeen{Lease{ID: "d", Replica: "d", Duration: lease, Protocol: 3, Version: b.next()}})
			b.live(lease/4, "east")
			b.feed(LeaseSeen{Lease{ID: "d", Replica: "d", Duration: lease, Protocol: 3, Sealed: true, Version: b.next()}})
		},
		"it was here, unreached": func(b *bench) {
			given := Clusters{Bits: b.r.given.Bits, Unmet: map[keyspace.ClusterName]bool{"east": true}}
			b.feed(given)
			b.live(lease/4, "east")
			given.Unmet = nil
			b.feed(given)
		},
		"another coordinated": func(b *bench) {
			b.feed(LeadSeen{Lead{Holder: "b", Version: b.next()}})
			b.live(lease/4, "east")
			b.leads()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := desert(t, true)
			b.live(b.r.cfg.MeetTimeout-lease/4, "east")
			interrupt(b)
			b.live(b.r.cfg.MeetTimeout-lease/4, "east")
			none[WriteShard](b)
			b.live(lease/2, "east")
			b.writes(Clear, "east/", "")
		})
	}
}

func TestFewRecordsAreClearedAtOnce(t *testing.T) {
	b := desert(t, true)
	b.seen(Shard{ID: eastern, Assignee: "c", Epoch: 5})
	for _, p := range keyspace.Partition(5) {
		b.seen(Shard{ID: keyspace.ShardID{Cluster: "north", Prefix: p}, Holder: "c", Epoch: 5})
	}
	b.live(2*b.r.cfg.MeetTimeout, "east,north")
	cleared := 0
	for range 20 {
		writes := all[WriteShard](b)
		if len(writes) > clearsAtOnce {
			t.Fatalf("%d are cleared at once", len(writes))
		}
		for _, w := range writes {
			cleared++
			b.commit(w.Seq)
		}
		b.live(lease/8, "east,north")
	}
	expect.Equal(t, "cleared", 1<<5, cleared)
}

func TestAClearingThatWasNotSentYetIsWithdrawn(t *testing.T) {
	here := map[keyspace.ClusterName]int{"west": 0, "east": 0}
	for name, in := range map[string]func(b *bench) Input{
		"the cluster is back": func(*bench) Input { return Clusters{Bits: here} },
		"the cluster is back, mute": func(*bench) Input {
			return Clusters{Unmet: map[keyspace.ClusterName]bool{"east": true}}
		},
		"it leaves":           func(*bench) Input { return Leave{} },
		"another coordinates": func(b *bench) Input { return LeadSeen{Lead{Holder: "b", Version: b.next()}} },
	} {
		t.Run(name, func(t *testing.T) {
			b := desert(t, true)
			b.live(2*b.r.cfg.MeetTimeout, "east")
			w := b.writes(Clear, "east/", "")
			if _, _, ok := b.r.Current(w.Seq); !ok {
				t.Fatal("it is withdrawn too soon")
			}
			b.feed(in(b))
			if _, _, ok := b.r.Current(w.Seq); ok {
				t.Error("it would be sent")
			}
		})
	}
	b := desert(t, true)
	b.live(2*b.r.cfg.MeetTimeout, "east")
	w := b.writes(Clear, "east/", "")
	b.feed(Written{Seq: w.Seq, Outcome: Unknown})
	b.feed(Clusters{Bits: here})
	if _, again, ok := b.r.Current(w.Seq); !ok || !again {
		t.Error("what may have been committed isn't repeated")
	}
}

func TestADeadPeerIsForgottenOnceItsLeaseHasGoneAndNoRecordNamesIt(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "c", Epoch: 1})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: 1000}})
	b.feed(LeaseGone{"c"})
	b.live(3*lease, "")
	if p := b.r.peers["c"]; p == nil || !p.dead() {
		t.Fatal("a record names it, and it isn't known to be dead")
	}
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 2})
	b.live(lease, "")
	if b.r.peers["c"] != nil || len(b.r.peerOrder) != 1 {
		t.Errorf("%d peers are known, want b alone", len(b.r.peerOrder))
	}
}

func TestASealedLeaseThatIsStillThereIsRemovedAgainLessAndLessOften(t *testing.T) {
	b := newBench(t)
	b.feed(LeadSeen{Lead{Holder: "a", Version: b.v}})
	b.seen(Shard{Assignee: "a", Holder: "c", Epoch: 1})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: 1000}})
	asked := func(d time.Duration) int {
		b.live(d, "")
		return len(all[ForgetLease](b))
	}
	b.feed(LeaseGone{"c"}) // somebody removes it
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 2})
	if got := asked(3 * lease); got != 0 {
		t.Fatalf("a lease that isn't there is removed %d times", got)
	}
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: 2000}})
	if got := asked(4 * lease); got != 3 { // at once, after one lease, and after two more
		t.Errorf("in four leases it is removed %d times, want 3", got)
	}
	if got := asked(40 * lease); got > 5 {
		t.Errorf("in forty leases it is removed %d times more", got)
	}
	b.feed(LeaseGone{"c"})
	if got := asked(20 * lease); got != 0 || b.r.peers["c"] != nil {
		t.Errorf("once it has gone it is removed %d times more", got)
	}
}

func TestI3AWordThatCachesAreWarmThatArrivesWhileTheyAreFilledAnewIsTakenBack(t *testing.T) {
	b := newBench(t)
	for _, warm := range []Incarnation{"a", "", "a"} {
		b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 1, Warm: warm})
		if warm == "" {
			none[WriteShard](b)
		} else if got := find[WriteShard](b); got.Kind != AnnounceWarm || got.Shard.Warm != "" {
			t.Errorf("it writes %+v, want its word taken back", got)
		}
	}
}

func TestI3ARepeatedWordThatItIsWarmIsTakenBackWhereItIsNotSoAnyMore(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 1})
	b.feed(Warmed{west})
	said := find[WriteShard](b)
	b.feed(Written{Seq: said.Seq, Outcome: Unknown})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{}})
	find[Close](b)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	find[Warm](b)
	b.pass(b.r.cfg.RetryEvery)
	again := find[WriteShard](b)
	now, _, left := b.r.Current(again.Seq)
	if got, ok := now.(WriteShard); !ok || !left || got.Shard.Warm != "" || got.Shard.Version != said.Shard.Version {
		t.Errorf("it repeats %+v, want the same version replaced, and not warm", now)
	}
}

func TestALeavingReplicaHandsOffToAColdSuccessorOnlyAfterATimeout(t *testing.T) {
	b := newBench(t)
	b.r.cfg.LeaveTimeout = b.r.cfg.LeaseDuration / 4 // nobody renews the lease here
	b.served()
	b.feed(Leave{})
	b.commit(find[WriteLease](b).Seq)
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1})
	none[Drain](b)
	b.pass(b.r.cfg.LeaveTimeout - 1)
	none[Drain](b)
	b.pass(1)
	find[Drain](b)
	b.feed(Drained{west})
	if got := find[WriteShard](b); got.Kind != HandOffOnExit || got.Shard.Holder != "b" {
		t.Errorf("it writes %+v, want the handoff to b", got)
	}
	none[DropLease](b)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 2})
	find[DropLease](b)
}

func TestALeavingReplicaWhoseCachesAreNotThereHandsOffAtOnce(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
	find[Warm](b)
	b.feed(Leave{})
	b.commit(find[WriteLease](b).Seq)
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1})
	if got := find[WriteShard](b); got.Kind != HandOffOnExit || got.Shard.Holder != "b" || got.Shard.Epoch != 2 {
		t.Errorf("it writes %+v, want the handoff to b", got)
	}
}

func TestAShardWhoseReleaseIsRefusedIsServedOnlyWithItsCachesThere(t *testing.T) {
	wanted, gone := Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}}, Clusters{}
	for _, warmed := range []bool{false, true} {
		t.Run(fmt.Sprintf("warmed meanwhile: %v", warmed), func(t *testing.T) {
			b := newBench(t)
			b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
			find[Warm](b)
			b.feed(gone)
			release := find[WriteShard](b)
			if release.Kind != Release || release.Shard.Holder != "" {
				t.Fatalf("it writes %+v, want the release", release)
			}
			b.feed(wanted)
			if warmed {
				b.feed(Warmed{west})
			}
			b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1, Pin: "a"})
			b.feed(Written{Seq: release.Seq, Outcome: Rejected})
			if !warmed {
				none[Activate](b)
				b.feed(Warmed{west})
			}
			find[Activate](b)
		})
	}
}

func TestAHandoffWaitsWhileCachesAreFilledForOtherMoves(t *testing.T) {
	start := func() *bench {
		b := newBench(t)
		b.served()
		b.seen(Shard{ID: eastern, Assignee: "c", Holder: "b", Epoch: 1})
		b.seen(Shard{Assignee: "b", Holder: "a", Warm: "b", Epoch: 1})
		none[Drain](b)
		return b
	}
	t.Run("until they are filled", func(t *testing.T) {
		b := start()
		b.seen(Shard{ID: eastern, Assignee: "c", Holder: "b", Warm: "c", Epoch: 1})
		find[Drain](b)
	})
	t.Run("until the other move is off", func(t *testing.T) {
		b := start()
		b.seen(Shard{ID: eastern, Assignee: "b", Holder: "b", Epoch: 1})
		find[Drain](b)
	})
	t.Run("until the other record is gone", func(t *testing.T) {
		b := start()
		b.feed(ShardGone{ID: eastern, Asked: b.now.Add(1)})
		find[Drain](b)
	})
	t.Run("until the other holder is dead", func(t *testing.T) {
		b := start()
		b.seen(Shard{ID: eastern, Assignee: "c", Holder: "d", Epoch: 2})
		b.feed(LeaseSeen{Lease{ID: "d", Version: b.next()}})
		b.feed(LeaseSeen{Lease{ID: "d", Sealed: true, Version: b.next()}})
		find[Drain](b) // nobody hands anything off: nobody knows that cluster, and the record stays as it is
	})
	t.Run("not for ever", func(t *testing.T) {
		b := start()
		b.r.cfg.GatherTimeout = lease / 4 // nobody renews the lease here
		if wake := b.r.Wake() - b.now.Mono; wake > lease/4 {
			t.Errorf("it wants to be woken after %v, want %v", wake, lease/4)
		}
		b.pass(lease/4 - 1)
		none[Drain](b)
		b.pass(1)
		find[Drain](b)
	})
	t.Run("as long again after a move that was called off", func(t *testing.T) {
		b := start()
		b.r.cfg.GatherTimeout = lease / 4
		b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1})
		b.pass(lease / 4)
		b.seen(Shard{Assignee: "b", Holder: "a", Warm: "b", Epoch: 1})
		none[Drain](b)
	})
}

func TestWhatARemovedClusterLeftBehindMakesNobodyPlan(t *testing.T) {
	for _, holder := range []Incarnation{"", "dead"} {
		b := newBench(t)
		b.feed(LeaseSeen{Lease{ID: "dead", Sealed: true, Version: b.next()}})
		b.seen(Shard{ID: eastern, Assignee: "b", Holder: holder, Epoch: 1})
		b.pass(b.r.cfg.PlanEvery)
		if b.r.mayPlan() {
			t.Errorf("it plans for a shard of %q that nobody can serve", holder)
		}
		b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, "east": 0}})
		if !b.r.mayPlan() {
			t.Errorf("it doesn't plan for a shard of %q, whose cluster was added again", holder)
		}
	}
}

// serves brings the machine to serve n shards, each of a cluster of its own.
func (b *bench) serves(n int) (ids []keyspace.ShardID) {
	clusters := map[keyspace.ClusterName]int{}
	for i := range n {
		ids = append(ids, keyspace.ShardID{Cluster: keyspace.ClusterName(fmt.Sprint("cluster-", i))})
		clusters[ids[i].Cluster] = 0
	}
	b.feed(Clusters{Bits: clusters})
	for _, id := range ids {
		b.seen(Shard{ID: id, Assignee: "a", Holder: "a", Epoch: 1})
		b.feed(Warmed{id})
	}
	return ids
}

func TestFewPlansAreOnTheirWayAtATime(t *testing.T) {
	b := newBench(t)
	b.serves(plansAtOnce + 3)
	b.feed(Leave{})
	b.commit(find[WriteLease](b).Seq)
	b.pass(b.r.cfg.PlanEvery)
	first := all[WriteAssignee](b)
	if len(first) != plansAtOnce {
		t.Fatalf("%d plans are sent, want %d at a time", len(first), plansAtOnce)
	}
	b.pass(b.r.cfg.PlanEvery)
	none[WriteAssignee](b)
	b.feed(Written{Seq: first[0].Seq, Outcome: Unknown}) // one that gets no answer must not hold up the others
	b.commit(first[1].Seq)
	b.pass(b.r.cfg.PlanEvery)
	if got := all[WriteAssignee](b); len(got) != 2 {
		t.Fatalf("two are answered; then %d more are sent, want 2", len(got))
	}
}

func TestFewShardsAreHandedOffAtATime(t *testing.T) {
	b := newBench(t)
	ids := b.serves(handoffsAtOnce + 2)
	for _, id := range ids {
		b.seen(Shard{ID: id, Assignee: "b", Holder: "a", Warm: "b", Epoch: 1})
	}
	if got := all[Drain](b); len(got) != handoffsAtOnce {
		t.Fatalf("%d shards are drained, want %d at a time", len(got), handoffsAtOnce)
	}
	b.feed(Drained{ids[0]})
	none[Drain](b)
	b.seen(Shard{ID: ids[0], Assignee: "b", Holder: "b", Epoch: 2})
	if got := all[Drain](b); len(got) != 1 || got[0].ID != ids[handoffsAtOnce] {
		t.Fatalf("one is handed off; then %v are drained, want %s", got, ids[handoffsAtOnce])
	}
	b.seen(Shard{ID: ids[1], Assignee: "a", Holder: "a", Epoch: 1}) // the plan changes back while it drains
	b.feed(Drained{ids[1]})
	if got := all[Drain](b); len(got) != 1 || got[0].ID != ids[handoffsAtOnce+1] {
		t.Fatalf("one isn't to go after all; then %v are drained, want %s", got, ids[handoffsAtOnce+1])
	}
}

func TestAReplicaThatIsToldToLeaveTakesNothing(t *testing.T) {
	b := newBench(t)
	b.feed(Leave{})
	b.seen(Shard{Assignee: "a", Holder: "", Epoch: 3})
	none[WriteShard](b)
	none[Warm](b)
}

func TestWithoutMembershipNothingIsDoneAndNobodySpins(t *testing.T) {
	b := begin(t, nil)
	b.r.Step(b.now, Synced{})
	out := b.r.Step(b.now, ShardSeen{Shard{ID: west, Assignee: "a", Floor: 1, Version: 1}})
	if len(out) != 0 {
		t.Errorf("it does %v before it has joined", out)
	}
	if wake := b.r.Wake(); wake <= b.now.Mono {
		t.Errorf("it wants to be woken at %v, now is %v", wake, b.now.Mono)
	}
}

func TestTheDefaultTimingsFitTogether(t *testing.T) {
	for _, d := range []time.Duration{time.Second, lease, 24 * time.Hour} {
		c := DefaultConfig("a", "a", d)
		for rule, ok := range map[string]bool{
			"the margin is less than half of the lease":                       c.Margin > 0 && c.Margin < d/2,
			"two renewals fit into the time for which one allows to act":      c.RenewEvery > 0 && 2*c.RenewEvery <= d-c.Margin,
			"an orphan waits for less than a crash takes":                     c.WarmTimeout > 0 && c.WarmTimeout < d,
			"a slow list ends no lease":                                       c.WatchTimeout >= d/2,
			"who missed a deletion has stopped when the record may be remade": c.BuryTime > c.WatchTimeout+d-c.Margin,
		} {
			if !ok {
				t.Errorf("a lease of %v: it isn't so that %s: %+v", d, rule, c)
			}
		}
	}
}

func TestR3ALeaseThatCannotBeReadIsNeverTakenForDead(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "x", Unreadable: true, Version: 60}}) // of a fleet or a version that nobody here knows
	b.seen(Shard{Assignee: "a", Holder: "x", Epoch: 7})
	b.live(5*lease, "")
	none[SealLease](b)
	none[WriteShard](b)
	none[WriteAssignee](b)
	b.feed(LeaseSeen{Lease{ID: "x", Sealed: true, Version: 1000}}) // a person did it
	find[WriteShard](b)
}

func TestALeaseThatWasReadableIsJudgedByWhatItsOwnerSaid(t *testing.T) {
	b := newBench(t)
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: 2 * lease, Protocol: 3, Version: 60}})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Unreadable: true, Version: 61}}) // somebody edited it
	b.live(2*lease-1, "")
	none[SealLease](b)
	b.pass(1)
	b.seals("c", 61)
}

func TestNoLayoutIsMadeWhileAReplicaMayBeAliveThatKnowsNone(t *testing.T) {
	for protocol, made := range map[int]int{0: 0, 1: 0, 2: 0, 3: 1, 4: 1} {
		b := newBench(t)
		b.feed(LayoutGone{Cluster: "west"})
		b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: protocol, Version: 60}})
		b.coordinates()
		if got := len(all[WriteLayout](b)); got != made {
			t.Errorf("beside a replica of version %d, %d layouts are made, want %d", protocol, got, made)
		}
	}
}
