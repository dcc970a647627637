package ownership

import (
	"testing"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// east is a cluster that the machine under test knows, and its coordinator b need not.
const east = keyspace.ClusterName("east")

// knows feeds the clusters that there are. Of west there is all that it needs.
func (b *bench) knows(clusters ...keyspace.ClusterName) {
	b.t.Helper()
	bits := map[keyspace.ClusterName]int{}
	for _, c := range clusters {
		bits[c] = 0
	}
	b.feed(Clusters{Bits: bits})
	b.held("west/", "b", "b")
}

// inVain returns a machine that has had the role for long enough to help east, and couldn't: its layout is refused,
// say.
func inVain(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.knows("west", east)
	b.live(4*lease, "")
	b.commit(find[WriteLead](b).Seq)
	b.live(3*lease, "")
	return b
}

// losesRole shows that b is the coordinator now, and forgets what was emitted before.
func (b *bench) losesRole() {
	b.t.Helper()
	b.out = nil
	b.feed(LeadSeen{Lead{Holder: "b", Version: b.next()}})
}

// takesRole checks that it takes the coordinator's role, and returns that write.
func (b *bench) takesRole() WriteLead {
	b.t.Helper()
	w := find[WriteLead](b)
	if w.Lead.Holder != "a" {
		b.t.Errorf("%+v, want a as the holder", w)
	}
	return w
}

func TestWhoKnowsAClusterThatStaysUndividedTakesTheCoordinatorsRole(t *testing.T) {
	b := newBench(t)
	b.knows("west", east)
	patience := b.r.cfg.BuryTime + b.r.cfg.LeaseDuration
	b.live(patience-lease/4, "")
	none[WriteLead](b)
	b.live(lease/2, "")
	b.commit(b.takesRole().Seq)
	b.pass(b.r.cfg.PlanEvery)
	if l := find[WriteLayout](b); l.Layout.Cluster != east {
		t.Errorf("divides %s, want east", l.Layout.Cluster)
	}
}

func TestTheCoordinatorsRoleIsNotTakenFromTheLiving(t *testing.T) {
	whole := Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(0), Version: 50}
	for _, c := range []struct {
		name  string
		setUp func(*bench)
	}{
		{"the cluster is whole", func(b *bench) {
			b.feed(LayoutSeen{whole})
			b.held("east/", "b", "b")
		}},
		{"the cluster is gone again", func(b *bench) { b.knows("west") }},
		{"this replica can't use the cluster", func(b *bench) { b.feed(Health{Cluster: east}) }},
		{"this replica leaves", func(b *bench) { b.feed(Leave{}) }},
		{"a replica that knows no layouts is alive", func(b *bench) {
			b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: 100 * lease, Protocol: 2, Version: 60}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.knows("west", east)
			c.setUp(b)
			b.live(4*lease, "")
			none[WriteLead](b)
		})
	}
}

func TestTheCoordinatorsRoleIsNotTakenFromOneThatHasJustTakenIt(t *testing.T) {
	b := newBench(t)
	b.knows("west", east)
	for _, holder := range []Incarnation{"c", "b", "c"} {
		b.live(3*lease, "")
		b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: 100 * lease, Protocol: 3, Version: b.next()}})
		b.feed(LeadSeen{Lead{Holder: holder, Version: b.v}})
	}
	b.live(3*lease, "")
	none[WriteLead](b)
}

func TestAClusterThatLacksARecordIsReasonToTakeTheRole(t *testing.T) {
	b := newBench(t)
	b.knows("west", east)
	b.feed(LayoutSeen{Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(1), Version: 50}})
	b.held("east/0", "b", "b")
	b.live(4*lease, "")
	b.takesRole()
}

func TestWhoHadTheRoleAndCouldNotHelpWaitsTwiceAsLong(t *testing.T) {
	b := inVain(t)
	b.losesRole()
	b.live(6*lease, "")
	none[WriteLead](b)
	b.live(2*lease, "")
	b.commit(find[WriteLead](b).Seq)
	b.live(3*lease, "")
	b.losesRole()
	b.live(13*lease, "")
	none[WriteLead](b)
}

// A record that was deleted can't be made for a while. A coordinator that waits for that hasn't failed.
func TestARecordThatIsDeletedWhileOthersAreMissedBeginsTheWaitAnew(t *testing.T) {
	b := newBench(t)
	b.knows("west", east)
	b.feed(LayoutSeen{Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(1), Version: 50}})
	b.held("east/0", "b", "b")
	b.live(3*lease, "")
	b.feed(ShardGone{ID: keyspace.ShardID{Cluster: east, Prefix: keyspace.Partition(1)[0]}, Asked: b.now.Add(1)})
	b.live(3*lease, "")
	none[WriteLead](b)
	b.live(lease, "")
	b.takesRole()
}

// Replicas that start at the same moment take the role from one another, each before it has seen the others' Leases.
func TestWhoHadTheRoleForAMomentTakesItAgain(t *testing.T) {
	b := newBench(t)
	b.knows("west", east)
	b.live(4*lease, "")
	b.commit(find[WriteLead](b).Seq)
	b.live(lease, "")
	b.losesRole()
	b.live(4*lease, "")
	b.takesRole()
}

func TestWhoHadTheRoleBeforeARecordWasMissedHasNotTried(t *testing.T) {
	b := newBench(t)
	b.knows("west", east)
	b.feed(LayoutSeen{Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(0), Version: 50}})
	b.held("east/", "b", "b")
	b.leads()
	b.live(4*lease, "")
	b.feed(ShardGone{ID: eastern, Asked: b.now.Add(1)})
	b.live(lease, "")
	b.losesRole()
	b.live(4*lease, "")
	b.takesRole()
}

func TestWhoCouldNotHelpAClusterThatWasHelpedSinceWaitsNoLonger(t *testing.T) {
	b := inVain(t)
	b.losesRole()
	b.feed(LayoutSeen{Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(0), Version: b.next()}})
	b.held("east/", "b", "b")
	b.live(lease/4, "")
	b.feed(ShardGone{ID: eastern, Asked: b.now.Add(1)})
	b.live(4*lease, "")
	find[WriteLead](b)
}

func TestATryCountsAlsoIfTheSameTermHadOneBefore(t *testing.T) {
	b := inVain(t)
	b.feed(LayoutSeen{Layout{Cluster: east, Generation: 1, Prefixes: keyspace.Partition(0), Version: b.next()}})
	b.held("east/", "b", "b")
	b.live(lease/4, "")
	b.feed(ShardGone{ID: eastern, Asked: b.now.Add(1)})
	b.live(3*lease, "") // no live read of the lead record is answered, so it makes nothing
	b.losesRole()
	b.live(6*lease, "")
	none[WriteLead](b)
}
