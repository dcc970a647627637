package ownership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

func TestAHistoryThatCannotFollowEndsTheIncarnation(t *testing.T) {
	record := Shard{ID: west, Assignee: "b", Holder: "b", Epoch: 7, UID: "u", Floor: 1}
	for _, c := range []struct {
		name string
		see  func(b *bench) Input
		want bool
	}{
		{"a live read that misses a write", func(*bench) Input { return WentBack{"home went back"} }, true},
		{"our lease with an earlier renewal", func(b *bench) Input {
			b.live(4*time.Second, "")
			return LeaseSeen{Lease{ID: "a", Renewal: 1, Version: 1000}}
		}, true},
		{"our lease with a label", func(b *bench) Input {
			return LeaseSeen{Lease{ID: "a", Renewal: 1, Version: 1000}}
		}, false},
		{"a record at an earlier epoch", func(*bench) Input {
			s := record
			s.Epoch, s.Version = 6, 1000
			return ShardSeen{s}
		}, true},
		{"another record of that name", func(*bench) Input {
			s := record
			s.Epoch, s.UID, s.Version = 6, "v", 1000
			return ShardSeen{s}
		}, false},
		{"an older version of a record", func(*bench) Input {
			s := record
			s.Epoch, s.Version = 6, 50
			return ShardSeen{s}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			s := record
			s.Version = 900
			b.feed(ShardSeen{s})
			b.feed(c.see(b))
			lapses := all[Lapse](b)
			if got := len(lapses) == 1 && strings.Contains(lapses[0].Reason, "went back"); got != c.want {
				t.Errorf("lapses: %v, want %v", lapses, c.want)
			}
		})
	}
}

// What a user says that a record's first epoch should be is no epoch that it had.
func TestARecordWhoseFloorAUserRaisesIsHeldOn(t *testing.T) {
	b := newBench(t)
	s := Shard{ID: west, Assignee: "a", Holder: "a", Epoch: 7, UID: "u", Floor: 1, Version: 900}
	b.feed(ShardSeen{s})
	s.Floor, s.Version = 1<<40, 901
	b.feed(ShardSeen{s})
	s.Objects, s.Version = 5, 902
	b.feed(ShardSeen{s})
	none[Lapse](b)
}

// After it, versions and times mean nothing any more. Epochs do.
func TestWhatWentBackIsWatchedForALeaseDurationAndClaimedAboveAllThatWasKnown(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1 << 50})
	b.feed(WentBack{"a record"})
	find[Lapse](b)
	b.r = New(DefaultConfig("a2", "a", lease), b.r.Memory())
	b.feed(LeadSeen{Lead{Holder: "b", Version: 1}})
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Sealed: true, Version: 1}})
	b.feed(ShardSeen{Shard{ID: west, Assignee: "a2", Holder: "b", Epoch: 5, Floor: 1, Version: 3}})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	b.feed(Synced{})
	began := b.now
	for b.now.AtLeast(began) < lease*9/10 {
		for _, w := range all[WriteLease](b) {
			if !w.Lease.Fresh {
				t.Fatal("it doesn't say that it is fresh")
			}
			b.commit(w.Seq)
		}
		for _, w := range all[WriteLead](b) {
			b.commit(w.Seq)
		}
		none[WriteShard](b)
		b.pass(lease / 10)
	}
	b.commitRenewals()
	b.pass(lease / 10)
	b.claimsAbove(1 << 50) // all that was known
	if find[WriteLease](b).Lease.Fresh {
		t.Error("it still says that it is fresh")
	}
}

func TestAFirstIncarnationClaimsNothingThatWasThereForALeaseDurationUnlessAllHaveLeft(t *testing.T) {
	free := Shard{ID: west, Assignee: "a", Epoch: 5, Floor: 1, Version: 50}
	held := free
	held.Holder = "b"
	others := held
	others.ID.Cluster = "north"
	for _, c := range []struct {
		name  string
		found []Input
		waits bool
	}{
		{"all have left in order", []Input{ShardSeen{free}}, false},
		{"another begins, too", []Input{ShardSeen{free}, LeaseSeen{Lease{ID: "c", Version: 40, Fresh: true}}}, false},
		{"another has begun and holds something", []Input{ShardSeen{free}, ShardSeen{others},
			LeaseSeen{Lease{ID: "b", Version: 40, Fresh: true}}}, true},
		{"somebody lives who can't serve it", []Input{ShardSeen{free}, LeaseSeen{Lease{ID: "b", Version: 40, Unfit: "west"}}},
			true},
		{"somebody was sealed", []Input{ShardSeen{free}, LeaseSeen{Lease{ID: "b", Version: 40, Sealed: true}}}, true},
		{"somebody who was sealed holds it", []Input{ShardSeen{held}, LeaseSeen{Lease{ID: "b", Version: 40, Sealed: true}}},
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := begin(t, nil)
			b.feed(LeadSeen{Lead{Holder: "a", Floor: 1 << 40, Version: 2}})
			for _, in := range c.found {
				b.feed(in)
			}
			b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
			b.feed(Synced{})
			claimed := 0
			for step := range 6 {
				b.commitRenewals()
				for range all[WriteShard](b) {
					if claimed++; c.waits && step < 5 {
						t.Fatalf("it claims %d fifths of a lease after it began", step)
					}
				}
				b.pass(lease / 5)
				if !c.waits && claimed == 0 {
					t.Fatal("it waits")
				}
			}
			if claimed+len(all[WriteShard](b)) == 0 {
				t.Error("it never claims")
			}
		})
	}
}

// A user deletes a record and makes it again, and then the home cluster is set back to before that.
func TestARecordThatComesBackAtAnEpochThatIsOverIsServedByNobody(t *testing.T) {
	for epoch, serves := range map[Epoch]bool{5: false, 6: false, 7: true} {
		t.Run(fmt.Sprint(epoch), func(t *testing.T) {
			b := newBench(t)
			b.seen(Shard{UID: "first", Assignee: "b", Holder: "b", Epoch: 7})
			b.seen(Shard{UID: "second", Assignee: "a"})
			b.seen(Shard{UID: "first", Assignee: "a", Holder: "a", Epoch: epoch})
			if b.r.over == serves {
				t.Errorf("it goes on: %t, want %t", !b.r.over, serves)
			}
		})
	}
}

// The home cluster may have been set back between the listing and the join, and have shown nothing before.
func TestARecordThatAppearsWithAnEpochFromBeforeIsClaimedAboveARaisedFloor(t *testing.T) {
	for _, c := range []struct {
		what  string
		epoch Epoch // of the record
		above Epoch // the least epoch of the claim
	}{
		{"of before", 500, Epoch(time.Hour / time.Millisecond)},
		{"claimed meanwhile, or by a clock that is ahead", 1 << 40, 1 << 40},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := begin(t, nil)
			b.feed(LeadSeen{Lead{Holder: "a", Floor: 400, Version: 2}})
			b.laid(Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(0), Version: 3})
			b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
			b.feed(Synced{})
			b.commit(find[WriteLease](b).Seq)
			b.seen(Shard{Assignee: "a", Epoch: c.epoch})
			for _, w := range all[WriteLead](b) {
				b.commit(w.Seq)
			}
			b.pass(b.r.cfg.PlanEvery)
			b.claimsAbove(c.above)
		})
	}
}

func TestAnOrphanFallsToAReplicaThatNeedNotWait(t *testing.T) {
	for assignee, what := range map[Incarnation]string{"c": "whose assignee is gone", "b": "whose assignee has to wait"} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.feed(LeadSeen{Lead{Holder: "a", Floor: 1 << 40, Version: b.v}})
			b.r.watched = true
			b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Version: 900, Fresh: true}})
			b.seen(Shard{Assignee: assignee, Epoch: 5}) // nobody holds it, and a has four others
			for _, prefix := range keyspace.Partition(2) {
				id := keyspace.ShardID{Cluster: "north", Prefix: prefix}
				b.seen(Shard{ID: id, Assignee: "a", Holder: "a", Epoch: 3})
			}
			b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0, "north": 2}})
			b.pass(time.Second)
			claimed := false
			for _, w := range all[WriteShard](b) {
				claimed = claimed || w.Shard.ID == west && w.Shard.Holder == "a"
			}
			if !claimed {
				t.Error("it leaves the orphan to a fresh replica, which would wait")
			}
		})
	}
}

// Who has followed another history founds nothing, and leaves alone what nobody has held by this one.
func TestAProcessThatHasFollowedAnotherHistoryWaitsForAllThatItFinds(t *testing.T) {
	for name, found := range map[string]Shard{
		"all have left":      {ID: west, Assignee: "a", Epoch: 5, Floor: 1, Version: 50},
		"nobody has held it": {ID: west, Assignee: "a", Floor: 1, Version: 50},
	} {
		t.Run(name, func(t *testing.T) {
			b := begin(t, &Memory{another: true})
			if found.Epoch == 0 {
				b.feed(LeaseSeen{Lease{ID: "b", Version: 40}})
			}
			b.feed(ShardSeen{found})
			b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
			b.feed(Synced{})
			if b.r.empty {
				t.Error("it founds a fleet")
			}
			if at := b.r.shards[west].freeAt; at != b.now.Add(lease) {
				t.Errorf("the shard may be claimed at %v, and now is %v", at, b.now)
			}
		})
	}
	b := begin(t, &Memory{another: true})
	if b.feed(Synced{}); b.r.empty {
		t.Error("it founds a fleet where nothing is")
	}
	b = begin(t, nil)
	b.feed(LayoutSeen{divided(1, 50)})
	if b.feed(Synced{}); b.r.empty {
		t.Error("it founds a fleet where a layout is")
	}
}

func TestAClaimThatIsNotSentYetIsTakenBackWhereItsClusterIsNotReached(t *testing.T) {
	b := newBench(t)
	b.r.watched = true
	b.seen(Shard{Assignee: "a", Epoch: 5})
	claim := find[WriteShard](b)
	if _, _, left := b.r.Current(claim.Seq); !left {
		t.Fatal("the claim isn't wanted")
	}
	b.feed(Health{"west", false})
	if _, _, left := b.r.Current(claim.Seq); left {
		t.Error("the claim is still to be sent")
	}
}

func TestARecordThatComesBackAfterItWasDeletedProvesThatHomeWentBack(t *testing.T) {
	for _, c := range []struct {
		uid   string
		known bool // it wasn't deleted
		epoch Epoch
		back  bool
	}{
		{"u", false, 5, true},
		{"u", false, 6, true},
		{"another", false, 4, false},
		{"u", true, 4, true},
		{"u", true, 6, false},
	} {
		b := newBench(t)
		b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 5, UID: "u"})
		if !c.known {
			b.pass(1)
			b.feed(ShardGone{ID: west, Asked: b.now})
			b.v += 10
		}
		b.seen(Shard{Assignee: "b", Holder: "b", Epoch: c.epoch, UID: c.uid})
		if lapses := len(all[Lapse](b)) > 0; lapses != c.back {
			t.Errorf("%+v: it ends: %v", c, lapses)
		}
	}
}
