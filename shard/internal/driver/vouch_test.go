package driver

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// taking returns a process that wants to claim a shard, when it last renewed its lease too long ago.
func taking(t *testing.T) *bench {
	t.Helper()
	b := joined(t)
	b.unvouched = true
	b.now = b.now.Add(vouchFor)
	b.feed(Seen{What: b.record(ownership.Shard{Assignee: "a-1", Epoch: 4, UID: "u"})})
	return b
}

func TestR5NothingIsTakenBeforeTheHomeClusterHasShownTheLastRenewal(t *testing.T) {
	gone := func(b *bench, read Read) Found {
		return Found{Number: read.Number, What: ownership.LeaseGone{ID: read.Of.Lease}}
	}
	older := func(b *bench, read Read) Found {
		found := b.ownLease(read)
		l := found.What.(ownership.LeaseSeen).Lease
		l.Version--
		return Found{Number: read.Number, What: ownership.LeaseSeen{Lease: l}}
	}
	for _, c := range []struct {
		name          string
		found         func(b *bench, read Read) Found
		claims, stops bool
	}{
		{"it is shown", (*bench).ownLease, true, false},
		{"an earlier one is shown", older, false, true},
		{"the lease isn't there", gone, false, true},
		{"no answer", func(_ *bench, read Read) Found { return Found{Number: read.Number} }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := taking(t)
			none[Write](b)
			b.feed(c.found(b, find[Read](b)))
			claims := 0
			for _, w := range all[Write](b) {
				if takes(w.Effect) {
					claims++
				}
			}
			if stops := len(all[Stop](b)) > 0; claims > 0 != c.claims || stops != c.stops {
				t.Errorf("it claims %d times, and ends: %v", claims, stops)
			}
		})
	}
}

func TestALostReadOfTheOwnLeaseIsRepeated(t *testing.T) {
	b := taking(t)
	b.feed(Found{Number: find[Read](b).Number})
	none[Read](b)
	if wake := b.d.Wake(); wake > b.now.Mono+lease/40 {
		t.Errorf("it wants to be woken in %v", wake-b.now.Mono)
	}
	b.pass(lease / 40)
	b.feed(b.ownLease(find[Read](b)))
	writing[ownership.WriteShard](b)
}

func TestARenewalVouchesForAWhile(t *testing.T) {
	b := joined(t)
	b.unvouched = true
	b.pass(lease / 4)
	b.answer(find[Write](b), ownership.Committed)
	b.now = b.now.Add(vouchFor - time.Millisecond)
	b.feed(Seen{What: b.record(ownership.Shard{Assignee: "a-1", Epoch: 4, UID: "u"})})
	writing[ownership.WriteShard](b)
	none[Read](b)
}

func TestAClaimThatWaitsForThatIsDroppedWhereTheClusterIsNotReachedAnyMore(t *testing.T) {
	b := taking(t)
	b.feed(Health{"west", false})
	b.feed(b.ownLease(find[Read](b)))
	for _, w := range all[Write](b) {
		if takes(w.Effect) {
			t.Errorf("it sends %+v", w.Effect)
		}
	}
}
