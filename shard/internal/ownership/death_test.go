package ownership

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	ofB   = "tenure-system/b/8d1f/manager"
	other = "tenure-system/b/77aa/manager" // of another Pod of that name
)

// housed returns a machine like newBench's whose peer runs in a container and holds the shard.
func housed(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.peerIn(ofB)
	b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
	b.planned()
	return b
}

// peerIn shows a renewal of the peer that names its container.
func (b *bench) peerIn(container string) {
	b.feed(LeaseSeen{Lease{ID: "b", Replica: "b", Duration: lease, Container: container, Version: b.next()}})
}

// turned lets the machine's turn to seal come, if the time before that is over now.
func (b *bench) turned() {
	b.pass(50 * time.Millisecond)
	b.pass(longestTurn)
}

func TestAPeerWhoseContainerHasEndedIsSealedAfterASecondAndItsShardWarmedBefore(t *testing.T) {
	for name, prove := range map[string]func(*bench){
		"its lease was seen before": func(b *bench) {
			b.peerIn(ofB)
			b.feed(ContainerSeen{Container: ofB, Ended: []Incarnation{"b-0", "b"}})
		},
		"its lease was seen after": func(b *bench) {
			b.feed(ContainerSeen{Container: ofB, Ended: []Incarnation{"b", "b-0"}})
			b.peerIn(ofB)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
			prove(b)
			b.planned()
			find[Warm](b)
			b.feed(Warmed{west})
			b.pass(850 * time.Millisecond)
			b.turned()
			none[SealLease](b)
			b.turned()
			seal := find[SealLease](b)
			if seal.ID != "b" || seal.Base != b.r.peers["b"].lease.Version || !seal.Ended {
				t.Errorf("sealed as %+v", seal)
			}
			none[WriteShard](b)
			b.commit(seal.Seq)
			b.planned()
			claim := find[WriteShard](b)
			b.commit(claim.Seq)
			if got := find[Activate](b); got.Epoch != 8 {
				t.Errorf("served at epoch %d, want 8", got.Epoch)
			}
		})
	}
}

func TestWhatDoesNotNameAPeerInItsOwnContainerProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		container string // that the peer's lease names
		seen      ContainerSeen
	}{
		"an earlier incarnation of the container":      {ofB, ContainerSeen{ofB, []Incarnation{"b-0"}}},
		"another Pod of that name":                     {ofB, ContainerSeen{other, []Incarnation{"b"}}},
		"a Pod that is gone":                           {ofB, ContainerSeen{ofB, nil}},
		"a lease that names no container":              {"", ContainerSeen{"", []Incarnation{"b"}}},
		"a container that names the observer himself":  {ofB, ContainerSeen{ofB, []Incarnation{"a"}}},
		"a container that names whom nobody has heard": {ofB, ContainerSeen{ofB, []Incarnation{"c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.seen(Shard{Assignee: "b", Holder: "b", Epoch: 7})
			b.peerIn(c.container)
			b.feed(c.seen)
			b.planned()
			none[Warm](b)
			b.pass(2 * time.Second)
			b.turned()
			none[SealLease](b)
			none[Lapse](b)
		})
	}
}

func TestAReportThatIsGoneWhenTheLeaseIsSeenProvesNothing(t *testing.T) {
	b := newBench(t)
	b.feed(ContainerSeen{ofB, []Incarnation{"b"}})
	b.feed(ContainerSeen{ofB, nil})
	b.peerIn(ofB)
	b.pass(2 * time.Second)
	b.turned()
	none[SealLease](b)
}

func TestARenewalThatArrivesAfterTheProofPutsTheSealOffAndDoesNotPreventIt(t *testing.T) {
	b := housed(t)
	b.feed(ContainerSeen{ofB, []Incarnation{"b"}})
	b.pass(900 * time.Millisecond)
	b.peerIn(ofB) // it was on its way
	b.pass(850 * time.Millisecond)
	b.turned()
	none[SealLease](b)
	b.turned()
	first := find[SealLease](b)
	b.peerIn(ofB) // one more, which is faster than the seal
	b.feed(Written{Seq: first.Seq, Outcome: Rejected})
	b.pass(850 * time.Millisecond)
	b.turned()
	none[SealLease](b)
	b.turned()
	if seal := find[SealLease](b); seal.Base != b.r.peers["b"].lease.Version {
		t.Errorf("sealed at version %d, want the newest, %d", seal.Base, b.r.peers["b"].lease.Version)
	}
}

func TestWhoIsProvenToHaveEndedIsGivenNothing(t *testing.T) {
	b := newBench(t)
	b.peerIn(ofB)
	b.served()
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1, Warm: "b"})
	find[Drain](b)
	b.feed(ContainerSeen{ofB, []Incarnation{"b"}})
	b.feed(Drained{west})
	none[WriteShard](b)
}

func TestAProofIsWorthASecondAtAnyLeaseDurationAndThatIsLessOnlyWhereTheLeaseRunsOutBefore(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 15 * time.Second, 10 * time.Minute} {
		b := begin(t, nil)
		b.r = New(DefaultConfig("z", "z", lease), nil)
		for _, id := range []Incarnation{"b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			b.feed(LeaseSeen{Lease{ID: id, Replica: string(id), Duration: lease, Container: string(id), Version: b.next()}})
		}
		b.feed(LeadSeen{Lead{Holder: "c", Version: 2}})
		b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}})
		b.feed(Synced{})
		b.commit(find[WriteLease](b).Seq)
		b.feed(ContainerSeen{"b", []Incarnation{"b"}})
		began := b.now
		for b.now.Mono < began.Mono+2*time.Second {
			b.pass(10 * time.Millisecond)
			b.commitRenewals()
			if len(all[SealLease](b)) > 0 {
				break
			}
		}
		// Eight peers have their turns before this one.
		if took := b.now.Mono - began.Mono; took > min(lease, time.Second)+9*longestTurn+20*time.Millisecond {
			t.Errorf("lease of %v: sealed after %v", lease, took)
		}
	}
}
