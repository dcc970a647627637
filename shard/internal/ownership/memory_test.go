package ownership

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// lapsed lets the machine lapse since its renewals aren't answered, and returns the one of the process's next
// incarnation, a2, which has joined. It finds what its peers' leases are now in the listing.
func (b *bench) lapsed(listing ...Lease) {
	b.t.Helper()
	b.pass(lease - lease/5)
	find[Lapse](b)
	b.r = New(DefaultConfig("a2", "a", lease), b.r.Memory())
	for _, l := range listing {
		b.feed(LeaseSeen{l})
	}
	b.feed(LeadSeen{Lead{Holder: "b", Version: 2}})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
	b.feed(Synced{})
	b.commit(find[WriteLease](b).Seq)
}

// sealed returns whose leases are sealed when the time has passed.
func (b *bench) sealed(after time.Duration) map[Incarnation]bool {
	b.out = nil
	ids := map[Incarnation]bool{}
	for range 8 { // so that everybody's turn comes
		b.pass(after / 8)
		for _, s := range all[SealLease](b) {
			ids[s.ID] = true
		}
	}
	return ids
}

func TestALeaseThatStoodStillBeforeTheLapseIsSealedAfterOneDurationInAll(t *testing.T) {
	b := newBench(t)
	b.lapsed(Lease{ID: "b", Replica: "b", Duration: lease, Version: 1},
		Lease{ID: "a", Replica: "a", Duration: lease, Version: 101})
	if ids := b.sealed(lease / 5 * 9 / 10); len(ids) != 0 {
		t.Errorf("sealed %v before a duration was over", ids)
	}
	if ids := b.sealed(lease / 5); !ids["a"] || !ids["b"] {
		t.Errorf("sealed %v, want the peer and our own earlier incarnation", ids)
	}
}

// A floor that a user raised isn't an epoch that a record was at: a lower one with this replica as holder is no sign of
// a home cluster that went back.
func TestAFloorThatAUserRaisedStaysAFloorForTheNextIncarnation(t *testing.T) {
	b := newBench(t)
	b.feed(ShardSeen{Shard{ID: west, Assignee: "b", Holder: "b", Epoch: 7, UID: "u", Floor: 1 << 40, Version: 900}})
	b.lapsed(Lease{ID: "b", Replica: "b", Duration: lease, Version: 1000})
	b.out = nil
	b.feed(ShardSeen{Shard{ID: west, Assignee: "a2", Holder: "a2", Epoch: 8, UID: "u", Floor: 1 << 40, Version: 910}})
	none[Lapse](b)
}

func TestALeaseThatWasRenewedUnseenIsWatchedAnew(t *testing.T) {
	b := newBench(t)
	b.lapsed(Lease{ID: "b", Replica: "b", Duration: lease, Version: 1000})
	if ids := b.sealed(lease * 9 / 10); len(ids) != 0 {
		t.Errorf("sealed %v less than a duration after it was seen", ids)
	}
}

func TestOurOwnEarlierIncarnationIsOverWhateverOfItsRenewalsLandsLate(t *testing.T) {
	b := newBench(t)
	b.lapsed(Lease{ID: "a", Replica: "a", Duration: lease, Version: 1000})
	if ids := b.sealed(lease / 4); !ids["a"] {
		t.Errorf("sealed %v, want our own earlier incarnation", ids)
	}
}

func TestALeaseThatWasGoneBeforeTheLapseIsSealedAfterOneDurationInAll(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1})
	b.feed(LeaseGone{"b"})
	b.pass(lease - lease/5)
	b.r = New(DefaultConfig("a2", "a", lease), b.r.Memory())
	b.feed(LeadSeen{Lead{Holder: "b", Version: 2}})
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 1})
	b.feed(Synced{})
	b.commit(find[WriteLease](b).Seq)
	if got := find[FindLease](b); got.ID != "b" {
		t.Errorf("it looks for the lease of %s, want b's", got.ID)
	}
	b.feed(LeaseGone{"b"})
	if ids := b.sealed(lease / 4); !ids["b"] {
		t.Errorf("sealed %v, want b", ids)
	}
}

func TestWhatWasSeenOutlivesAnIncarnationThatNeverSawAnything(t *testing.T) {
	b := newBench(t)
	b.pass(lease - lease/5)
	b.r = New(DefaultConfig("a2", "a", lease), b.r.Memory())
	b.feed(Tick{})
	b.lapsed(Lease{ID: "b", Replica: "b", Duration: lease, Version: 1})
	if ids := b.sealed(lease / 5); !ids["b"] {
		t.Errorf("sealed %v, want b", ids)
	}
}

func TestALeaseThatWasGoneStaysSoThroughAnIncarnationThatCouldNotLookForIt(t *testing.T) {
	b := newBench(t)
	record := Shard{Assignee: "b", Holder: "b", Epoch: 1}
	b.seen(record)
	b.feed(LeaseGone{"b"})
	for _, id := range []Incarnation{"a2", "a3"} {
		b.pass(lease - lease/5)
		b.r = New(DefaultConfig(id, "a", lease), b.r.Memory())
		b.feed(LeadSeen{Lead{Holder: "b", Version: 2}})
		b.seen(record) // a cache shows it, and home is away
		b.feed(Synced{})
	}
	b.commit(find[WriteLease](b).Seq)
	b.feed(LeaseGone{"b"})
	if ids := b.sealed(lease / 10); !ids["b"] {
		t.Errorf("sealed %v, want b", ids)
	}
}

func TestWhatIsSeenBetweenTwoIncarnationsCountsFromThen(t *testing.T) {
	now := Instant{Mono: time.Hour}
	before := sighting{version: 5, at: now}
	for _, c := range []struct {
		name string
		old  sighting
		see  Input
		want sighting
	}{
		{"a renewal", before, LeaseSeen{Lease{ID: "b", Version: 6}}, sighting{6, now.Add(1), false}},
		{"the version that is known", before, LeaseSeen{Lease{ID: "b", Version: 5}}, before},
		{"an older one", before, LeaseSeen{Lease{ID: "b", Version: 4}}, before},
		{"that it is gone", before, LeaseGone{"b"}, sighting{0, now.Add(1), false}},
		{"that it is still gone", sighting{at: now}, LeaseGone{"b"}, sighting{at: now}},
		{"a late renewal of our own that is over", sighting{5, now, true}, LeaseSeen{Lease{ID: "b", Version: 6}},
			sighting{5, now, true}},
		{"what is no lease", before, Synced{}, before},
	} {
		m := &Memory{leases: map[Incarnation]sighting{"b": c.old}}
		m.See(c.see, now.Add(1))
		if m.leases["b"] != c.want {
			t.Errorf("%s: remembers %+v, want %+v", c.name, m.leases["b"], c.want)
		}
	}
	m := &Memory{leases: map[Incarnation]sighting{}}
	m.See(LeaseSeen{Lease{ID: "c", Version: 1}}, now)
	if m.leases["c"] != (sighting{1, now, false}) {
		t.Errorf("of a lease that is new it remembers %+v", m.leases["c"])
	}
}

func TestAnOlderLayoutIsIgnoredByLaterIncarnationsUnlessHomeWentBack(t *testing.T) {
	for _, back := range []bool{false, true} {
		b := newBench(t)
		b.feed(LayoutSeen{divided(2, 900)})
		m := b.r.Memory()
		if back {
			m.GoBack()
		}
		r := New(DefaultConfig("a2", "a", lease), m)
		r.Step(b.now, LayoutSeen{divided(1, 800)})
		if r.layout("west").known != back {
			t.Errorf("home went back: %v; the older layout counts: %v", back, !back)
		}
		r.Step(b.now, LayoutSeen{divided(2, 900)})
		if l := r.layout("west"); !l.known || l.rec.Generation != 2 {
			t.Errorf("the layout that was known is %+v", l.rec)
		}
	}
}
