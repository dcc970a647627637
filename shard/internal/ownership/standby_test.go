package ownership

import (
	"testing"
	"time"
)

// alone lets time pass in which nothing is heard of the peer, and of the machine's own renewals if seen.
func (b *bench) alone(d time.Duration, seen bool) {
	for range int(d / time.Second) {
		before := b.out
		b.out = nil
		b.pass(time.Second)
		passed := b.out
		renewals := all[WriteLease](b)
		b.out = append(before, passed...)
		for _, w := range renewals {
			b.commit(w.Seq)
			if seen {
				b.feed(LeaseSeen{Lease{ID: "a", Replica: "a", Duration: lease, Version: b.v}})
			}
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
	b.alone(3*time.Second, true)
	b.planned()
	none[Warm](b)
	b.alone(time.Second, true)
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
	b.alone(6*time.Second, true)
	b.planned()
	find[Warm](b)
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Version: 1000}})
	b.planned()
	find[Close](b)
	b.alone(3*time.Second, true)
	b.planned()
	none[Warm](b)
}

func TestWhoSeesNoLeaseAtAllHoldsNobodyForLate(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
	b.alone(7*time.Second, false)
	b.planned()
	none[Warm](b)
	// It sees leases again: what came of the others meanwhile is still on its way.
	b.feed(LeaseSeen{Lease{ID: "a", Replica: "a", Duration: lease, Version: b.v}})
	b.planned()
	none[Warm](b)
	b.alone(6*time.Second, true) // not from the peer
	b.planned()
	find[Warm](b)
}
