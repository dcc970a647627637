package driver

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

func TestClaimsDoNotWaitBehindRecordsThatAreMade(t *testing.T) {
	b := newBench(t)
	begin := find[Begin](b)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"east": 7, "west": 0}})
	b.feed(Listed{begin.ID})
	var lead ownership.Lead // it coordinates, and makes records
	var created []Write
	var layouts []ownership.LayoutSeen
	for range 10 {
		for _, w := range all[Write](b) {
			switch e := w.Effect.(type) {
			case ownership.CreateShard:
				created = append(created, w)
				continue
			case ownership.WriteLead:
				lead = e.Lead
				lead.Version = b.v + 1
			case ownership.WriteLayout:
				e.Layout.Version = b.v + 1
				layouts = append(layouts, ownership.LayoutSeen{Layout: e.Layout})
			}
			b.answer(w, ownership.Committed)
		}
		for _, l := range layouts {
			b.feed(Seen{What: l})
		}
		for _, r := range all[Read](b) {
			b.feed(Found{Number: r.Number, What: ownership.LeadSeen{Lead: lead}})
		}
		b.pass(20 * time.Millisecond)
	}
	if len(created) != room[ownership.Others] {
		t.Fatalf("%d records are made at once, want %d", len(created), room[ownership.Others])
	}
	b.shows(ownership.Shard{Assignee: "a-1", Epoch: 4})
	if _, claim := writing[ownership.WriteShard](b); claim.Kind != ownership.ClaimFree {
		t.Errorf("it writes %v", claim.Kind)
	}
	for _, w := range created {
		b.answer(w, ownership.Committed)
	}
	if more := len(writes[ownership.CreateShard](b)); more != room[ownership.Others] {
		t.Errorf("%d were answered, and %d more are made", len(created), more)
	}
}

func TestAWriteThatWaitsForRoomAndIsSettledMeanwhileIsNotSent(t *testing.T) {
	b := joined(t)
	prefixes := keyspace.Partition(7)
	b.showsAll(ownership.Shard{Assignee: "a-1", Epoch: 4})
	sent := all[Write](b)
	last := keyspace.ShardID{Cluster: "west", Prefix: prefixes[len(prefixes)-1]}
	b.shows(ownership.Shard{ID: last, Assignee: "a-1", Holder: "b", Epoch: 5})
	claims := 0
	for len(sent) > 0 {
		for _, w := range sent {
			if e, ok := w.Effect.(ownership.WriteShard); ok && e.Kind == ownership.ClaimFree {
				claims++
				if e.Shard.ID == last {
					t.Error("a shard that another has claimed is claimed")
				}
			}
			b.answer(w, ownership.Committed)
		}
		sent = all[Write](b)
	}
	if claims != len(prefixes)-1 {
		t.Errorf("%d claims of %d", claims, len(prefixes))
	}
}

// What a request may take follows what requests took.
func TestAHomeClusterThatGetsSlowIsWaitedForLonger(t *testing.T) {
	b, w := claiming(t)
	b.unvouched = true // the home cluster takes its time for that, too
	var patience []time.Duration
	try := func(takes time.Duration) {
		patience = append(patience, w.Patience)
		b.now = b.now.Add(min(takes, w.Patience))
		b.feed(Written{Number: w.Number, Outcome: ownership.Unknown, Cause: ownership.Overloaded})
		for range 100 {
			again := false
			for _, other := range all[Write](b) {
				if _, renewal := other.Effect.(ownership.WriteLease); renewal {
					b.answer(other, ownership.Committed)
				} else {
					w, again = other, true
				}
			}
			if again {
				return
			}
			for _, read := range all[Read](b) {
				b.now = b.now.Add(min(takes, read.Patience))
				if takes < read.Patience {
					b.feed(b.ownLease(read))
				} else {
					b.feed(Found{Number: read.Number})
				}
			}
			b.pass(lease / 80)
		}
		t.Fatal("the write isn't repeated")
	}
	for range 4 {
		try(2 * time.Second)
	}
	if patience[0] != lease/8 || patience[len(patience)-1] != lease*2/5 {
		t.Errorf("with a home cluster that takes 2 s, a write is waited for %v", patience)
	}
	for range 20 {
		try(time.Millisecond)
	}
	if last := patience[len(patience)-1]; last != lease/8 {
		t.Errorf("when it is quick again, a write is waited for %v", last)
	}
}

func TestAfterAnOverloadNothingIsReadAndTheWriteWaits(t *testing.T) {
	b, w := claiming(t)
	b.feed(Written{Number: w.Number, Outcome: ownership.Unknown, Cause: ownership.Overloaded, After: time.Second})
	none[Read](b)
	b.pass(time.Second - time.Millisecond)
	none[Write](b)
	b.pass(time.Millisecond)
	writing[ownership.WriteShard](b)
}

// A write of its own that comes back through the watch shows that the watch goes on. The process lapses where nothing
// does.
func TestI1WhatShowsThatTheWatchesGoOn(t *testing.T) {
	lease := func(b *bench) { b.feed(Seen{What: leaseSeen("a-1", b.v)}) }
	record := func(report Write, v ownership.Version) ownership.ShardSeen {
		rec := report.Effect.(ownership.WriteShard).Shard
		rec.Version = v
		return ownership.ShardSeen{Shard: rec}
	}
	var renewals []ownership.Version
	for _, c := range []struct {
		name  string
		lapse bool
		show  func(b *bench, report Write) // after each renewal
	}{
		{"they come back when two more renewals are answered", false, func(b *bench, report Write) {
			if renewals = append(renewals, b.v); len(renewals) > 2 {
				b.feed(Seen{What: leaseSeen("a-1", renewals[len(renewals)-3])})
			}
			b.answer(report, ownership.Committed)
			b.feed(Seen{What: record(report, b.v)})
		}},
		{"nothing", true, func(b *bench, report Write) { b.answer(report, ownership.Unknown) }},
		{"its lease and its writes of a record come back", false, func(b *bench, report Write) {
			lease(b)
			b.answer(report, ownership.Committed)
			b.feed(Seen{What: record(report, b.v)})
		}},
		{"they come back before they are answered", false, func(b *bench, report Write) {
			lease(b)
			b.feed(Seen{What: record(report, b.v+1)})
			b.answer(report, ownership.Committed)
		}},
		{"its lease alone comes back", true, func(b *bench, report Write) {
			lease(b)
			b.answer(report, ownership.Committed)
		}},
		{"its writes of a record alone come back", true, func(b *bench, report Write) {
			b.answer(report, ownership.Committed)
			b.feed(Seen{What: record(report, b.v)})
		}},
		{"the write changed nothing", true, func(b *bench, report Write) {
			lease(b)
			b.feed(Written{Number: report.Number, Outcome: ownership.Committed,
				Version: report.Effect.(ownership.WriteShard).Shard.Version})
		}},
		{"a live list", false, func(b *bench, report Write) {
			for _, r := range all[Read](b) {
				if r.Of.All {
					b.now = b.now.Add(time.Second)
					shown := report.Effect.(ownership.WriteShard).Shard
					b.feed(Found{Number: r.Number, What: ownership.Listing{Shards: []ownership.Shard{shown}}})
				}
			}
			b.answer(report, ownership.Committed)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBenchWith(t, func(cfg *ownership.Config) {
				cfg.WatchTimeout,
					cfg.ReportEvery = cfg.LeaseDuration, time.Second
			})
			b.join()
			b.served()
			for size := range int64(16) {
				b.feed(Measured{ID: west, Objects: size + 1})
				b.pass(2500 * time.Millisecond)
				writes := all[Write](b)
				for _, w := range writes {
					if _, renewal := w.Effect.(ownership.WriteLease); renewal {
						b.answer(w, ownership.Committed)
					}
				}
				for _, w := range writes {
					if e, ok := w.Effect.(ownership.WriteShard); ok && e.Kind == ownership.Report {
						c.show(b, w)
					}
				}
			}
			if lapsed := len(all[Stop](b)) > 0; lapsed != c.lapse {
				t.Errorf("lapsed: %v", lapsed)
			}
		})
	}
}

// Where there are thousands of records, a list takes seconds. It may, and other requests are given up as soon as ever.
// But it may also be lost.
func TestAListMayTakeALeaseAndSetsNoPace(t *testing.T) {
	b := newBench(t)
	b.join()
	lists := func() (found []pending) {
		for _, p := range b.d.pending {
			if p.of.All {
				found = append(found, p)
			}
		}
		return found
	}
	slow, before := lease/3, b.d.patience()
	b.d.list()
	list := lists()[0]
	if list.patience != lease {
		t.Errorf("a list may take %v, want %v", list.patience, lease)
	}
	b.now = b.now.Add(slow)
	b.feed(Tick{})
	b.d.list()
	if n := len(lists()); n != 1 {
		t.Errorf("%d lists are in flight after %v, want 1", n, slow)
	}
	b.feed(Found{Number: list.number, What: ownership.Listing{}})
	if after := b.d.patience(); after != before {
		t.Errorf("other requests may take %v after a slow list, want %v", after, before)
	}
	b.d.list()
	b.answerRenewals(2) // half a lease duration
	b.d.list()
	if n := len(lists()); n != 2 {
		t.Errorf("%d lists are in flight after half a lease duration, want another", n)
	}
	b.d.pace = lease / 5
	b.feed(Found{Number: lists()[1].number, What: ownership.Listing{}})
	if n := len(lists()); n != 0 {
		t.Errorf("%d lists are awaited that would show what is older", n)
	}
	if b.d.pace >= lease/5 {
		t.Errorf("a list that is answered at once says nothing of a slow home cluster: %v", b.d.pace)
	}
}

// A record that was seen after a list was asked for isn't gone because the list doesn't show it.
func TestAListIsAsOldAsItsRequest(t *testing.T) {
	b := newBenchWith(t, func(cfg *ownership.Config) { cfg.WatchTimeout = cfg.LeaseDuration })
	b.join()
	var list Read
	for list.Number == 0 {
		b.pass(lease / 40)
		for _, w := range all[Write](b) {
			b.answer(w, ownership.Committed)
		}
		for _, r := range all[Read](b) {
			if r.Of.All {
				list = r
			}
		}
	}
	b.now = b.now.Add(time.Second)
	b.served()
	b.now = b.now.Add(time.Second)
	b.feed(Found{Number: list.Number, What: ownership.Listing{}})
	none[Close](b)
}

// Whatever is refused for good, the home cluster isn't asked to write often.
func TestAProcessWhoseWritesAreAllRefusedSendsFew(t *testing.T) {
	for name, refuses := range map[string]func(ownership.Effect) bool{
		"everything": func(ownership.Effect) bool { return true },
		"everything but creations of leases": func(e ownership.Effect) bool {
			w, lease := e.(ownership.WriteLease)
			return !lease || w.Base != 0
		},
		"everything but leases": func(e ownership.Effect) bool { return ownership.LaneOf(e) != ownership.Renewals },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			known := Clusters{Bits: map[keyspace.ClusterName]int{"west": 7},
				ClusterNos: map[keyspace.ClusterName]uint64{"west": 1}}
			b.feed(known)
			refused, made := 0, map[ownership.Incarnation]bool{}
			const minutes = 5
			for began := b.now; b.now.AtLeast(began) < minutes*time.Minute; b.pass(50 * time.Millisecond) {
				for _, begin := range all[Begin](b) {
					b.showsAll(ownership.Shard{Assignee: begin.ID, Holder: "dead", Epoch: 4})
					b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "dead", Sealed: true, Version: 1}}})
					b.feed(Listed{begin.ID})
				}
				for _, s := range all[Stop](b) {
					b.feed(Stopped{s.Number, true})
				}
				for _, r := range all[Read](b) {
					var what ownership.Input
					switch id := r.Of.Lease; {
					case made[id]:
						what = leaseSeen(id, 1)
					case id != "":
						what = ownership.LeaseGone{ID: id}
					}
					b.feed(Found{Number: r.Number, What: what})
				}
				for _, w := range all[Write](b) {
					if !refuses(w.Effect) {
						made[About(w.Effect).Lease] = true
						b.answer(w, ownership.Committed)
						continue
					}
					if b.now.AtLeast(began) > time.Minute { // then it is steady
						refused++
					}
					b.feed(Written{Number: w.Number, Outcome: ownership.Rejected, Cause: ownership.Refused})
				}
			}
			if rate := float64(refused) / ((minutes - 1) * 60); rate > 2 || rate == 0 {
				t.Errorf("%.2f writes a second are refused, want 2 at most, and some", rate)
			}
		})
	}
}
