package ownership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// deafBench returns a machine that holds the shard. Nothing shows that its watches go on from now on.
func deafBench(t *testing.T) *bench {
	b := newBench(t)
	b.served()
	b.deaf = true
	return b
}

func TestI1ALeaseIsRenewedOnlyWhileTheViewOfTheRecordsIsRecent(t *testing.T) {
	for _, c := range []struct {
		name  string
		show  func(b *bench, at Instant)
		lapse bool
	}{
		{"nothing shows it", func(*bench, Instant) {}, true},
		{"only the leases are seen", func(b *bench, at Instant) { b.feed(CaughtUp{LeaseWatch, at}) }, true},
		{"only the shards' records are seen", func(b *bench, at Instant) { b.feed(CaughtUp{ShardWatch, at}) }, true},
		{"both are seen", func(b *bench, at Instant) {
			b.feed(CaughtUp{LeaseWatch, at})
			b.feed(CaughtUp{ShardWatch, at})
		}, false},
		{"both are seen, very late", func(b *bench, at Instant) {
			b.feed(CaughtUp{LeaseWatch, at.Add(-b.r.cfg.WatchTimeout)})
			b.feed(CaughtUp{ShardWatch, at.Add(-b.r.cfg.WatchTimeout)})
		}, true},
		{"a live list shows them", func(b *bench, at Instant) {
			b.feed(Listing{Shards: []Shard{b.r.shards[west].rec}, Asked: at})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := deafBench(t)
			began := b.now
			for range 12 { // three leases
				b.live(lease/4, "")
				c.show(b, b.now)
			}
			lapses := all[Lapse](b)
			lapsed := len(lapses) > 0
			if lapsed != c.lapse {
				t.Fatalf("lapsed: %v", lapsed)
			}
			if lapsed && !strings.Contains(lapses[0].Reason, "the records couldn't be read in time") {
				t.Errorf("it says %q", lapses[0].Reason)
			}
			if until := b.r.ValidUntil().AtLeast(began); lapsed && until > b.r.cfg.WatchTimeout+lease-b.r.cfg.Margin {
				t.Errorf("it may act until %v after its watches were last known to be complete", until)
			}
		})
	}
}

func TestALiveListIsAskedForInTimeAndAgainWhereItIsNotAnswered(t *testing.T) {
	b := deafBench(t)
	if b.r.listAfter() <= b.r.cfg.ReportEvery {
		t.Error("a list is asked for though reports come back")
	}
	b.live(b.r.listAfter()-lease/40, "")
	none[ListRecords](b)
	b.live(lease/40+time.Millisecond, "")
	find[ListRecords](b)
	none[ListRecords](b)
	b.live(b.r.cfg.WatchTimeout/8, "")
	find[ListRecords](b)
	b.feed(Listing{Shards: []Shard{b.r.shards[west].rec}, Asked: b.now})
	b.live(b.r.listAfter(), "")
	if len(all[ListRecords](b)) > 1 {
		t.Error("it asks again though it has just seen one")
	}
}

func TestALiveListIsTakenForTheView(t *testing.T) {
	b := deafBench(t)
	b.now = b.now.Add(time.Second)
	asked := b.now
	b.now = b.now.Add(time.Second)
	taken := b.r.shards[west].rec
	taken.Holder, taken.Epoch, taken.Version = "b", 2, 900
	b.feed(Listing{Shards: []Shard{taken}, Asked: asked})
	find[Close](b)

	b = deafBench(t)
	b.now = b.now.Add(time.Second)
	b.feed(Listing{Asked: b.now}) // its record is gone
	find[Close](b)

	b = deafBench(t)
	b.feed(Listing{Asked: b.now.Add(-time.Second)}) // the record was seen since
	none[Close](b)

	b = deafBench(t)
	b.feed(Listing{Leases: []Lease{{ID: "a", Version: 900, Sealed: true}}, Asked: b.now})
	find[Lapse](b)
}

// Somebody mistypes an annotation of a record, and corrects it.
func TestARecordThatALiveListCannotReadIsNotDeleted(t *testing.T) {
	b := newBench(t)
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1, UID: "u"})
	b.feed(Warmed{west})
	find[Activate](b)
	b.deaf = true
	b.now = b.now.Add(time.Second)
	b.feed(Listing{Unreadable: map[string]bool{"u": true}, UnreadableLayouts: map[keyspace.ClusterName]bool{"west": true},
		Asked: b.now})
	none[Close](b)
	if !b.r.layout("west").known {
		t.Error("the layout of west counts as deleted")
	}
	if b.r.caughtUpTo() != b.now {
		t.Error("the list doesn't count as what a watch shows")
	}
	b.seen(Shard{Assignee: "a", Holder: "a", Epoch: 1, UID: "u"})
	none[Lapse](b)

	b.now = b.now.Add(time.Second)
	b.feed(Listing{Unreadable: map[string]bool{"another's": true}, Asked: b.now}) // it was made again under its name
	find[Close](b)
}

func TestALiveListIsTakenForTheViewOfLayoutsToo(t *testing.T) {
	for _, c := range []struct {
		name   string
		list   Listing
		asked  time.Duration // after the layout was seen
		known  bool
		newest Version
	}{
		{"a newer one", Listing{Layouts: []Layout{divided(2, 950)}}, time.Second, true, 950},
		{"an older one", Listing{Layouts: []Layout{divided(2, 850)}}, time.Second, true, 900},
		{"none", Listing{}, time.Second, false, 902},
		{"none, before it was seen", Listing{}, -time.Second, true, 900},
	} {
		b := newBench(t)
		b.now = b.now.Add(time.Second)
		b.feed(LayoutSeen{divided(1, 900)})
		c.list.Asked = b.now.Add(c.asked)
		b.now = b.now.Add(2 * time.Second)
		b.feed(c.list)
		if l := b.r.layout("west"); l.known != c.known || l.rec.Version != c.newest {
			t.Errorf("%s: the layout is known: %v, in version %d", c.name, l.known, l.rec.Version)
		}
	}
}

// Ten replicas get the event of each write.
func TestWhereAListCostsMoreThanAWriteSomethingIsReportedEvenIfNothingChanges(t *testing.T) {
	const replicas = 10
	least := listedPerWrite + listedPerEvent*replicas + 1
	for records, reported := range map[int]bool{least - 1: false, least: true} {
		b := newBench(t) // it knows a layout and b
		b.served()
		for i := range records - 2 {
			b.held(fmt.Sprintf("west/%06b", i), "b", "b")
		}
		renew := func() {
			for i := range replicas - 2 {
				b.says(Incarnation(fmt.Sprintf("c%d", i)), "")
			}
		}
		b.feed(LeaseSeen{Lease{ID: "dead", Sealed: true, Version: b.next()}})
		reports := 0
		for range 10 {
			for range 4 {
				renew()
				b.live(lease/4, "")
			}
			for _, w := range all[WriteShard](b) {
				reports++
				b.commit(w.Seq)
				b.feed(Measured{ID: west}) // it is idle, as it was
			}
		}
		if want := map[bool]int{true: 10}[reported]; reports < want-1 || reports > want {
			t.Errorf("with %d records %d reports in ten lease durations, want %d", records, reports, want)
		}
	}
}
