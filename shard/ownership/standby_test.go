package ownership

import (
	"testing"
	"time"
)

// heard lets time pass in which the machine's own renewals are seen, and nothing of the peer.
func (b *bench) heard(d time.Duration) {
	for range int(d / time.Second) {
		b.pass(time.Second)
		for _, w := range all[WriteLease](b) {
			b.commit(w.Seq)
			b.feed(LeaseSeen{Lease{ID: "a", Replica: "a", Duration: lease, Version: b.v}})
		}
	}
}

// planned lets the planner run, and what it said be decided on.
func (b *bench) planned() {
	for range 3 {
		b.pass(10 * time.Millisecond)
	}
}

func TestAShardOfALatePeerIsWarmedButNotTouchedAndServedOnceItIsClaimed(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
	b.heard(5 * time.Second)
	b.planned()
	none[Warm](b)
	b.heard(time.Second)
	b.planned()
	find[Warm](b)
	b.feed(Warmed{west})
	b.planned()
	none[WriteShard](b)
	none[Activate](b)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Sealed: true, Version: 1000}})
	claim := find[WriteShard](b)
	b.v = 2000
	b.commit(claim.Seq)
	if got := find[Activate](b); got.ID != west || got.Epoch != 8 {
		t.Errorf("%+v, want west at epoch 8", got)
	}
}

func TestAPeerThatRenewsLateKeepsItsShardsAndTheCachesAreDropped(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
	b.heard(6 * time.Second)
	b.planned()
	find[Warm](b)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Version: 1000}})
	b.planned()
	find[Close](b)
	b.heard(5 * time.Second)
	b.planned()
	none[Warm](b)
}

func TestWhoSeesNoLeaseAtAllHoldsNobodyForLate(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
	for range 7 {
		b.pass(time.Second)
		for _, w := range all[WriteLease](b) {
			b.commit(w.Seq)
		}
	}
	b.planned()
	none[Warm](b)
	// It hears again: what came of the others meanwhile is still on its way.
	b.feed(LeaseSeen{Lease{ID: "a", Replica: "a", Duration: lease, Version: b.v}})
	b.planned()
	none[Warm](b)
	b.heard(6 * time.Second) // not from the peer
	b.planned()
	find[Warm](b)
}
