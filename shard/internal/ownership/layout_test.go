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
	"github.com/tenure-dev/tenure/test/must"
)

func id(t *testing.T, text string) keyspace.ShardID {
	t.Helper()
	parsed, err := keyspace.ParseShardID(text)
	must.Succeed(t, err)
	return parsed
}

// divided is a layout of west of two shards.
func divided(generation uint32, v Version) Layout {
	return Layout{Cluster: "west", Generation: generation, Prefixes: keyspace.Partition(1), UID: "u1", Version: v}
}

// of is that layout, of the cluster with that UID.
func of(uid string, l Layout) Layout {
	l.UID = uid
	return l
}

// cluster is the only one that there is.
func cluster(name keyspace.ClusterName, bits int, uid string) Clusters {
	return Clusters{Bits: map[keyspace.ClusterName]int{name: bits}, UIDs: map[keyspace.ClusterName]string{name: uid}}
}

// twoNames are names of one cluster.
var twoNames = Clusters{
	Bits: map[keyspace.ClusterName]int{"east": 0, "west": 0},
	UIDs: map[keyspace.ClusterName]string{"east": "u1", "west": "u1"},
}

// layTwoNamesOut feeds layouts of one cluster: of 1<<bits[0] shards as east, and of 1<<bits[1] as west.
func (b *bench) layTwoNamesOut(bits ...int) {
	for i, name := range []keyspace.ClusterName{"east", "west"} {
		b.feed(LayoutSeen{Layout{Cluster: name, Generation: 1, Prefixes: keyspace.Partition(bits[i]), UID: "u1",
			Version: Version(50 + i)}})
	}
}

// coordinates makes the machine the coordinator, of a fleet that it has looked at for long enough, and has it plan.
func (b *bench) coordinates() {
	lead := Lead{Holder: "a", Floor: 1 << 40, Version: b.next()}
	b.feed(LeadSeen{lead})
	b.r.lead.founded, b.r.replan = true, true
	b.pass(b.r.cfg.PlanEvery)
	if len(all[FindLead](b)) > 0 {
		b.feed(LeadFound{lead})
	}
}

// shows feeds a record as it is: without a floor, it is one that a user made.
func (b *bench) shows(text string, s Shard) {
	b.t.Helper()
	s.ID, s.Version = id(b.t, text), b.next()
	b.feed(ShardSeen{s})
}

func TestARecordThatWasNeverHeldIsClaimedOnlyAfterALiveReadThatListsIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		epoch  Epoch
		read   Layout
		claims bool
	}{
		{"the layout lists it", 0, Layout{Cluster: "west", Generation: 1, Prefixes: keyspace.Partition(0), Version: 3}, true},
		{"another does not", 0, divided(1, 9), false},
		{"another generation does", 0, Layout{Cluster: "west", Generation: 2, Prefixes: keyspace.Partition(0), Version: 9},
			false},
		{"there is none", 0, Layout{}, false},
		{"there is none, but it was held", 5, Layout{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.layout = c.read
			b.seen(Shard{Assignee: "a", Epoch: c.epoch})
			if got := len(all[WriteShard](b)) > 0; got != c.claims {
				t.Errorf("it is claimed: %v, want %v", got, c.claims)
			}
		})
	}
}

func TestAReadThatWasSentBeforeARecordWasSeenAllowsNoClaim(t *testing.T) {
	b := newBench(t)
	asks := func() FindLayout {
		t.Helper()
		found := all[FindLayout](b)
		if len(found) != 1 {
			t.Fatalf("%d reads are asked for, want one", len(found))
		}
		return found[0]
	}
	b.unread = true
	shown := func(v Version) { b.feed(ShardSeen{Shard{ID: west, Assignee: "a", Floor: 1, Version: v}}) }
	shown(200)
	first := asks()
	shown(201)
	b.feed(LayoutRead{Ask: first.Ask, Cluster: "west", Layout: b.layout})
	none[WriteShard](b)
	second := asks()
	b.feed(LayoutRead{Ask: second.Ask, Cluster: "west", Layout: b.layout})
	if got := find[WriteShard](b); got.Shard.Version != 201 {
		t.Errorf("it claims version %d", got.Shard.Version)
	}
}

func TestALostReadOfALayoutIsRepeated(t *testing.T) {
	b := newBench(t)
	b.unread = true
	b.feed(ShardSeen{Shard{ID: west, Assignee: "a", Floor: 1, Version: 200}})
	b.unread = false
	find[FindLayout](b)
	b.now = b.now.Add(lease / 20)
	if wake := b.r.Wake(); wake > b.now.Mono {
		t.Errorf("it wants to be woken at %v, want %v at the latest", wake, b.now.Mono)
	}
	b.feed(Tick{})
	find[WriteShard](b)
}

func TestNoRecordIsClaimedBesideOneThatMayStillBeServed(t *testing.T) {
	for _, c := range []struct {
		name   string
		epoch  Epoch // of the one that is to be claimed
		other  Shard // that overlaps it
		claims bool
	}{
		{"it is held by the living", 5, Shard{Holder: "b", Epoch: 3, Floor: 1}, false},
		{"it was held", 0, Shard{Epoch: 3, Floor: 1}, false},
		{"it was never held", 0, Shard{Floor: 1}, false},
		{"it was retired", 0, Shard{Epoch: 3, Floor: 1, Retired: true}, true},
		{"it was held, as this one", 5, Shard{Epoch: 3, Floor: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.shows("west/0", c.other)
			b.seen(Shard{Assignee: "a", Epoch: c.epoch})
			if got := len(all[WriteShard](b)) > 0; got != c.claims {
				t.Errorf("it is claimed: %v, want %v", got, c.claims)
			}
		})
	}
}

func TestWhatALayoutDoesNotListIsRetiredByWhoHoldsItAndElseByTheCoordinator(t *testing.T) {
	b := newBench(t)
	b.served()
	b.laid(divided(1, 500))
	find[Drain](b)
	b.feed(Drained{west})
	got := find[WriteShard](b)
	if got.Kind != Retire || !got.Shard.Retired || got.Shard.Holder != "" || got.Shard.Epoch != 1 {
		t.Errorf("its holder writes %+v", got)
	}
	b.shows("west/", Shard{Assignee: "a", Floor: 1, Retired: true})
	none[WriteShard](b)

	b = newBench(t)
	b.coordinates()
	b.shows("west/1", Shard{Assignee: "a", Holder: "b", Epoch: 2})
	b.shows("west/0", Shard{Assignee: "a"})
	b.pass(b.r.cfg.PlanEvery)
	retired := all[WriteShard](b)
	if len(retired) != 1 || retired[0].Kind != Retire || retired[0].Shard.ID != id(t, "west/0") {
		t.Errorf("the coordinator writes %+v, want west/0 to be retired and nothing else", retired)
	}
}

func TestARecordIsMadeOnlyWhenWhatOverlapsItCanNeverBeServedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		other func(b *bench)
		made  int
	}{
		{"nothing does", func(b *bench) {}, 2},
		{"one is held", func(b *bench) { b.shows("west/", Shard{Holder: "b", Epoch: 3}) }, 0},
		{"one isn't retired yet", func(b *bench) { b.shows("west/00", Shard{Epoch: 3}) }, 1},
		{"one was retired", func(b *bench) { b.shows("west/", Shard{Epoch: 3, Retired: true}) }, 2},
		{"one was deleted just now", func(b *bench) {
			b.shows("west/", Shard{Epoch: 3})
			b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
		}, 0},
		{"one that replaces another that was deleted just now was retired", func(b *bench) {
			b.shows("west/", Shard{Epoch: 3, UID: "1"})
			b.shows("west/", Shard{Retired: true, UID: "2"})
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.laid(divided(1, 50))
			c.other(b)
			b.coordinates()
			if got := len(all[CreateShard](b)); got != c.made {
				t.Errorf("%d records are made, want %d", got, c.made)
			}
		})
	}
}

// A layout may change while a record of the one before is on its way to the API server.
func TestNoRecordIsMadeBesideOneThatIsBeingMade(t *testing.T) {
	b := newBench(t)
	undivided := divided(1, 50)
	undivided.Prefixes = keyspace.Partition(0)
	b.laid(undivided)
	b.coordinates()
	if made := all[CreateShard](b); len(made) != 1 || made[0].ID != west {
		t.Fatalf("%v is made, want %s", made, west)
	}
	if missing := b.r.missing(); !slices.Equal(missing, []keyspace.ShardID{west}) {
		t.Errorf("%v is planned for, want %s, which is being made", missing, west)
	}
	b.laid(divided(2, 51))
	if missing := b.r.missing(); len(missing) > 0 {
		t.Errorf("%v is to be made beside %s", missing, west)
	}
	b.shows("west/", Shard{Retired: true})
	if missing := b.r.missing(); len(missing) != 2 {
		t.Errorf("%v is to be made once %s is retired, want both halves", missing, west)
	}
}

// The founder's first listing may have been old. A layout shows what it lacks, as the watch shows it after all older
// records; beside a replica that knows no layouts there is none.
func TestAFounderWaitsBesideAReplicaThatKnowsNoLayouts(t *testing.T) {
	b := newBench(t)
	b.feed(LayoutGone{Cluster: "west"})
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: 100 * lease, Protocol: 2, Version: 60}})
	b.coordinates()
	if made := all[CreateShard](b); len(made) > 0 {
		t.Errorf("%v is made at once", made)
	}
	b.live(5*lease/2, "")
	b.coordinates()
	if made := all[CreateShard](b); len(made) != 1 {
		t.Errorf("%v is made after %v, want one record", made, b.r.cfg.BuryTime)
	}
}

// A cluster was made anew before it had a record, so that its health changes no shard.
func TestAClusterMadeAnewIsDividedOnceItCanBeUsed(t *testing.T) {
	b := newBench(t)
	b.feed(LayoutGone{Cluster: "west"})
	b.feed(cluster("west", 1, "u1"))
	b.laid(of("u0", divided(1, 50)))
	b.feed(Health{Cluster: "west"})
	b.coordinates()
	if writes := all[WriteLayout](b); len(writes) > 0 {
		t.Fatalf("it divides a cluster that it can't use: %+v", writes)
	}
	b.feed(Health{Cluster: "west", Usable: true})
	b.pass(b.r.cfg.PlanEvery)
	if writes := all[WriteLayout](b); len(writes) != 1 || writes[0].Layout.UID != "u1" {
		t.Errorf("it writes %+v", writes)
	}
}

func TestTheCoordinatorDividesClusters(t *testing.T) {
	prefixes := func(texts ...string) (all []keyspace.Prefix) {
		for _, text := range texts {
			all = append(all, id(t, "west/"+text).Prefix)
		}
		return all
	}
	for _, c := range []struct {
		name   string
		before func(b *bench)
		want   *Layout
	}{
		{"a new one", func(b *bench) {}, &Layout{Generation: 1, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"one that has a layout", func(b *bench) { b.laid(divided(1, 50)) }, nil},
		{"one that version 1 may still serve", func(b *bench) {
			b.feed(LeaseSeen{Lease{ID: "old", Replica: "old", Duration: lease, Version: 1}})
		}, nil},
		{"one whose layout was deleted, by what is held", func(b *bench) {
			b.shows("west/0", Shard{Epoch: 7})
			b.shows("west/00", Shard{Holder: "b", Epoch: 3})
			b.shows("west/1", Shard{Epoch: 3})
		}, &Layout{Generation: 1, Prefixes: prefixes("00", "01", "1"), UID: "u1"}},
		{"not by what was made by hand", func(b *bench) { b.shows("west/00", Shard{}) },
			&Layout{Generation: 1, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"in the generation of what is held", func(b *bench) {
			b.shows("west/0@3", Shard{Holder: "b", Epoch: 3})
			b.shows("west/1", Shard{Epoch: 3, Retired: true})
		}, &Layout{Generation: 3, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"around what was retired", func(b *bench) {
			b.shows("west/0", Shard{Epoch: 3, Retired: true})
			b.shows("west/1", Shard{Holder: "b", Epoch: 3})
		}, &Layout{Generation: 1, Prefixes: prefixes("00", "01", "1"), UID: "u1"}},
		{"anew, if a record was retired that it lists", func(b *bench) {
			b.laid(divided(1, 50))
			b.shows("west/0", Shard{Epoch: 3, Retired: true})
		}, &Layout{Generation: 2, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"anew, in a generation that no record has, if somebody made one of the last", func(b *bench) {
			b.laid(divided(1, 50))
			b.shows("west/0", Shard{Epoch: 3, Retired: true})
			b.shows("west/1@2", Shard{Retired: true})
			b.shows("west/1@999999999", Shard{})
		}, &Layout{Generation: 3, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"whose UID wasn't known", func(b *bench) { b.laid(of("", divided(1, 50))) },
			&Layout{Generation: 1, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"that was made anew, once the old one's records are retired", func(b *bench) {
			b.laid(of("u0", divided(2, 50)))
			b.shows("west/0", Shard{Epoch: 3, Retired: true})
		}, &Layout{Generation: 3, Prefixes: keyspace.Partition(1), UID: "u1"}},
		{"that was made anew, so that the old one's records are retired", func(b *bench) {
			b.laid(of("u0", divided(1, 50)))
			b.shows("west/0", Shard{Epoch: 3})
		}, &Layout{Generation: 2, Prefixes: keyspace.Partition(1), UID: "u0"}},
		{"that was made anew, not while the old one's records are being retired", func(b *bench) {
			b.laid(of("u0", divided(2, 50)))
			b.shows("west/0", Shard{Epoch: 3})
		}, nil},
		{"that was made anew, not while a holder may not know that its record was deleted", func(b *bench) {
			b.laid(of("u0", divided(2, 50)))
			b.shows("west/0@2", Shard{Holder: "b", Epoch: 3})
			b.feed(ShardGone{ID: id(t, "west/0@2"), Asked: b.now.Add(1)})
		}, nil},
		{"that this replica knew, and can't use, while others know the one that was made anew", func(b *bench) {
			b.laid(of("u2", divided(1, 50)))
			b.shows("west/0", Shard{Epoch: 3})
			b.feed(Health{Cluster: "west"})
		}, nil},
		{"that was made anew, not before the old one is given up", func(b *bench) {
			b.laid(of("u0", divided(1, 50)))
			b.shows("west/0", Shard{Holder: "b", Epoch: 3})
		}, nil},
		{"that was made anew, so that the old one's holder gives it up if it can't serve it", func(b *bench) {
			b.laid(of("u0", divided(1, 50)))
			b.shows("west/0", Shard{Holder: "b", Epoch: 3})
			b.says("b", "west")
		}, &Layout{Generation: 2, Prefixes: keyspace.Partition(1), UID: "u0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.feed(LayoutGone{Cluster: "west"})
			b.feed(cluster("west", 1, "u1"))
			c.before(b)
			b.coordinates()
			writes := all[WriteLayout](b)
			if c.want == nil {
				if len(writes) > 0 {
					t.Errorf("it writes %+v", writes)
				}
				return
			}
			if len(writes) != 1 {
				t.Fatalf("%d layouts are written", len(writes))
			}
			c.want.Cluster = "west"
			expect.Equal(t, "layout", *c.want, writes[0].Layout, cmpopts.IgnoreFields(Layout{}, "Version"))
			b.feed(Written{Seq: writes[0].Seq, Outcome: Committed, Version: 1000})
			if only := c.name == "whose UID wasn't known"; writes[0].OnlyUID != only {
				t.Errorf("it writes only the UID: %v", writes[0].OnlyUID)
			}
			if !b.r.layouts["west"].known {
				none[CreateShard](b) // the watch hasn't shown it yet
			}
			next := writes[0].Layout
			next.Version = 1000
			b.feed(LayoutSeen{next})
			b.pass(b.r.cfg.PlanEvery)
			none[WriteLayout](b)
		})
	}
}

func TestAClusterIsServedUnderOneOfItsNames(t *testing.T) {
	layout := func(c keyspace.ClusterName, v Version) LayoutSeen {
		return LayoutSeen{Layout{Cluster: c, Generation: 1, Prefixes: keyspace.Partition(0), UID: "u1", Version: v}}
	}
	for _, c := range []struct {
		name   string
		before []Input
		given  Clusters
		served string
	}{
		{"the first", nil, twoNames, "east"},
		{"the one that has a layout", []Input{layout("west", 50)}, twoNames, "west"},
		{"the first of two that have", []Input{layout("west", 50), layout("east", 51)}, twoNames, "east"},
		{"one that isn't known here, while somebody serves it", []Input{
			layout("west", 50), ShardSeen{Shard{ID: west, Holder: "b", Epoch: 3, Floor: 1, Version: 60}},
		}, cluster("east", 0, "u1"), ""},
		{"not one that nobody serves", []Input{
			layout("west", 50), ShardSeen{Shard{ID: west, Epoch: 3, Floor: 1, Version: 60}},
		}, cluster("east", 0, "u1"),
			"east"},
		{"one that doesn't tell its UID, while its layout does", []Input{layout("east", 50), layout("west", 51)}, Clusters{
			Bits: map[keyspace.ClusterName]int{"east": 0, "west": 0},
			UIDs: map[keyspace.ClusterName]string{"east": "u1", "west": ""},
		}, "east"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			for _, in := range c.before {
				b.feed(in)
			}
			b.feed(c.given)
			served := ""
			for name := range b.r.ownNames {
				served += string(name)
			}
			if served != c.served {
				t.Errorf("served: %q, want %q", served, c.served)
			}
		})
	}
}

// West is the cluster u1 by its layout, and east u2. Since then the operator has given their names to other clusters.
func TestAClusterWhoseNameAnotherOneHadIsServed(t *testing.T) {
	given := func(uids map[keyspace.ClusterName]string) Clusters {
		bits := map[keyspace.ClusterName]int{}
		for name := range uids {
			bits[name] = 0
		}
		return Clusters{Bits: bits, UIDs: uids}
	}
	for _, c := range []struct {
		name   string
		uids   map[keyspace.ClusterName]string
		before func(b *bench)
		want   map[keyspace.ClusterName]string // the UIDs of the layouts that are written, one after the other
	}{
		{"the names are exchanged", map[keyspace.ClusterName]string{"east": "u1", "west": "u2"}, func(b *bench) {
			b.seen(Shard{ID: west, Epoch: 3})
			b.seen(Shard{ID: eastern, Epoch: 3})
		}, map[keyspace.ClusterName]string{"east": " u2 u1", "west": " u1 u2"}},
		{"three names take turns", map[keyspace.ClusterName]string{"east": "u1", "north": "u2", "west": "u3"},
			func(b *bench) {
				b.feed(LayoutSeen{Layout{Cluster: "north", Generation: 1, Prefixes: keyspace.Partition(0), UID: "u3", Version: 52}})
			}, map[keyspace.ClusterName]string{"east": " u1", "north": " u2", "west": " u3"}},
		{"not while somebody serves it under its old name",
			map[keyspace.ClusterName]string{"east": "u1", "west": "u2"}, func(b *bench) {
				b.seen(Shard{ID: eastern, Holder: "b", Epoch: 3})
			}, nil},
		{"a replica that can serve neither holds both", map[keyspace.ClusterName]string{"east": "u1", "west": "u2"},
			func(b *bench) {
				b.seen(Shard{ID: west, Holder: "b", Epoch: 3})
				b.seen(Shard{ID: eastern, Holder: "b", Epoch: 3})
				b.says("b", "east,west")
			}, map[keyspace.ClusterName]string{"east": " u2 u1", "west": " u1 u2"}},
		{"the cluster that has its old name can't be used",
			map[keyspace.ClusterName]string{"east": "u2", "west": "u3", "west-old": "u1"}, func(b *bench) {
				b.feed(Health{Cluster: "west"})
			}, map[keyspace.ClusterName]string{"west-old": " u1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			for i, l := range []Layout{{Cluster: "west", UID: "u1"}, {Cluster: "east", UID: "u2"}} {
				l.Generation, l.Prefixes, l.Version = 1, keyspace.Partition(0), Version(50+i)
				b.feed(LayoutSeen{l})
			}
			b.feed(given(c.uids))
			c.before(b)
			b.coordinates()
			written := map[keyspace.ClusterName]string{}
			for range 3 {
				for _, w := range all[WriteLayout](b) {
					written[w.Layout.Cluster] += " " + w.Layout.UID
					w.Layout.Version = b.next()
					b.feed(LayoutSeen{w.Layout})
				}
				for _, s := range b.r.order {
					if s.known && s.excluded && !s.rec.Retired { // its holder retires it, or the coordinator
						b.seen(Shard{ID: s.id, Epoch: s.rec.Epoch, Retired: true})
					}
				}
				b.pass(b.r.cfg.PlanEvery)
			}
			expect.Equal(t, "the layouts", c.want, written, cmpopts.EquateEmpty())
			for name := range written {
				if !b.r.ownNames[name] {
					t.Errorf("%s isn't served", name)
				}
			}
		})
	}
}

func TestANameOfThePastCountsWhileAReplicaThatCanServeItHoldsIt(t *testing.T) {
	b := newBench(t)
	b.feed(LayoutSeen{divided(1, 50)})
	b.shows("west/0", Shard{Holder: "b", Epoch: 3})
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"north": 0, "west": 0},
		UIDs: map[keyspace.ClusterName]string{"north": "u1", "west": "u2"}})
	for _, unfit := range []plan.UnfitFor{"", "west", ""} {
		b.says("b", unfit)
		if served := unfit != ""; b.r.ownNames["north"] != served {
			t.Errorf("b can't serve %q, and it is served as north: %v", unfit, !served)
		}
	}
}

// A watch may never show a layout that was committed, for example if it was deleted at once.
func TestACommittedLayoutThatNoWatchShowsIsWrittenAgain(t *testing.T) {
	b := newBench(t)
	b.feed(cluster("east", 0, "u1"))
	b.coordinates()
	written := find[WriteLayout](b)
	b.commit(written.Seq)
	b.live(lease/2, "")
	none[WriteLayout](b)
	b.live(lease, "")
	if again := find[WriteLayout](b); again.Seq != written.Seq {
		t.Errorf("it writes %+v, want %+v again", again, written)
	}
}

// Replicas may know different names of a cluster. Who knows both serves it as east, which must wait until nobody serves
// these slots as west.
func TestWhatIsServedUnderAnotherNameIsNotClaimed(t *testing.T) {
	b := newBench(t)
	b.layTwoNamesOut(0, 0)
	b.feed(ShardSeen{Shard{ID: west, Holder: "b", Epoch: 1000, Floor: 1, Version: 70}})
	b.feed(twoNames)
	b.feed(ShardSeen{Shard{ID: eastern, Assignee: b.r.cfg.ID, Epoch: 2000, Floor: 1, Version: 71}})
	none[WriteShard](b)
	b.feed(ShardSeen{Shard{ID: west, Epoch: 1000, Floor: 1, Version: 72}})
	if got := find[WriteShard](b).Shard; got.ID.Cluster != "east" || got.Epoch != 2001 {
		t.Errorf("%v is claimed at epoch %d, want east at 2001", got.ID, got.Epoch)
	}
}

// B may not know that its record is gone.
func TestWhatWasServedUnderAnotherNameIsNotClaimedSoonAfterItsRecordWasDeleted(t *testing.T) {
	b := newBench(t)
	b.layTwoNamesOut(0, 0)
	b.feed(ShardSeen{Shard{ID: west, Holder: "b", Epoch: 1000, Floor: 1, Version: 70}})
	b.feed(twoNames)
	b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
	b.feed(ShardSeen{Shard{ID: eastern, Assignee: b.r.cfg.ID, Epoch: 2000, Floor: 1, Version: 71}})
	b.live(b.r.cfg.BuryTime-1, "")
	none[WriteShard](b)
	b.live(1, "")
	b.writes(ClaimFree, "east/", "a")
}

// Each of two replicas may claim the slots under a name of its own before it sees the other's claim.
func TestAShardOfAClusterWithTwoNamesIsOpenedOnceEarlierClaimsAreKnown(t *testing.T) {
	claimed := func(t *testing.T, given Clusters) (*bench, Shard) {
		b := newBench(t)
		b.layTwoNamesOut(0, 0)
		b.feed(given)
		b.feed(ShardSeen{Shard{ID: west, Epoch: 1000, Floor: 1, Version: 70}})
		b.feed(ShardSeen{Shard{ID: eastern, Assignee: b.r.cfg.ID, Epoch: 2000, Floor: 1, Version: 71}})
		b.deaf = true
		b.pass(time.Millisecond)
		claim := find[WriteShard](b)
		b.commit(claim.Seq)
		b.feed(Warmed{eastern})
		none[Activate](b)
		find[ListRecords](b)
		record, _ := b.r.Record(eastern)
		return b, record
	}
	listing := func(b *bench, east Shard, west Shard) Listing {
		return Listing{Asked: b.now, Shards: []Shard{east, west}, Lead: Lead{Holder: "b", Version: 2},
			Layouts: []Layout{b.r.layouts["east"].rec, b.r.layouts["west"].rec}}
	}
	t.Run("nobody claimed the other name", func(t *testing.T) {
		b, record := claimed(t, twoNames)
		b.feed(listing(b, record, Shard{ID: west, Epoch: 1000, Floor: 1, Version: 70}))
		find[Activate](b)
	})
	t.Run("a replica did, and gives it back", func(t *testing.T) {
		b, record := claimed(t, twoNames)
		b.feed(listing(b, record, Shard{ID: west, Holder: "b", Epoch: 1001, Floor: 1, Version: 80}))
		b.pass(lease / 4)
		none[Activate](b)
		b.feed(ShardSeen{Shard{ID: west, Epoch: 1001, Floor: 1, Version: 90}})
		find[Activate](b)
	})
	t.Run("a replica did, and the layout that shows the other name is deleted", func(t *testing.T) {
		b, record := claimed(t, cluster("east", 0, "u1"))
		b.feed(listing(b, record, Shard{ID: west, Holder: "b", Epoch: 1001, Floor: 1, Version: 80}))
		none[Activate](b)
		b.feed(LayoutGone{"west"})
		b.pass(lease / 4)
		none[Activate](b)
		b.feed(ShardSeen{Shard{ID: west, Epoch: 1001, Floor: 1, Version: 90}})
		find[Activate](b)
	})
	t.Run("a replica did, at a higher epoch, and gave it back", func(t *testing.T) {
		b, record := claimed(t, twoNames)
		b.feed(listing(b, record, Shard{ID: west, Epoch: record.Epoch, Floor: 1, Version: 80}))
		none[Activate](b)
		b.commit(find[WriteShard](b).Seq)
		if again := find[WriteShard](b).Shard; again.Holder != "a" || again.Epoch != record.Epoch+1 {
			t.Errorf("it writes %+v", again)
		}
	})
	t.Run("a replica did, at a higher epoch, and another cluster has the name by now", func(t *testing.T) {
		exchanged := Clusters{Bits: twoNames.Bits, UIDs: map[keyspace.ClusterName]string{"east": "u1", "west": "u2"}}
		b, record := claimed(t, exchanged)
		shown := listing(b, record, Shard{ID: west, Epoch: 2500, Floor: 1, Version: 80, Retired: true})
		shown.Layouts[1].Generation, shown.Layouts[1].UID, shown.Layouts[1].Version = 2, "u2", 90
		b.feed(shown)
		none[Activate](b)
		b.commit(find[WriteShard](b).Seq)
		if again := find[WriteShard](b).Shard; again.Holder != "a" || again.Epoch != 2501 {
			t.Errorf("it writes %+v", again)
		}
	})
	t.Run("it is to go before it is opened", func(t *testing.T) {
		b, record := claimed(t, twoNames)
		record.Assignee, record.Warm, record.Version = "b", "b", b.next()
		b.feed(ShardSeen{record})
		b.writes(Release, "east/", "") // not to b, which couldn't tell that the epoch may be too low
	})
	t.Run("a list was under way", func(t *testing.T) {
		b, record := claimed(t, twoNames)
		under := listing(b, record, Shard{ID: west, Epoch: 1000, Floor: 1, Version: 70})
		under.Asked = b.now.Add(-lease / 100)
		b.feed(under)
		find[ListRecords](b)
		none[Activate](b)
	})
	t.Run("the list is lost", func(t *testing.T) {
		b, _ := claimed(t, twoNames)
		b.pass(b.r.cfg.WatchTimeout / 8)
		find[ListRecords](b)
		none[Activate](b)
	})
}

// Who knows only west serves it while nobody serves east, and gives it back as soon as somebody does.
func TestWhoSeesThatAnotherNameIsServedStopsAtOnce(t *testing.T) {
	b := newBench(t)
	b.layTwoNamesOut(0, 0)
	b.feed(LeaseSeen{Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Version: 60, Sealed: true}})
	b.feed(cluster("west", 0, "u1"))
	b.feed(ShardSeen{Shard{ID: eastern, Holder: "c", Epoch: 900, Floor: 1, Version: 70}})
	b.feed(ShardSeen{Shard{ID: west, Assignee: b.r.cfg.ID, Epoch: 800, Floor: 1, Version: 71}})
	b.commit(find[WriteShard](b).Seq)
	b.feed(Warmed{west})
	find[Activate](b)
	b.feed(ShardSeen{Shard{ID: eastern, Holder: "b", Epoch: 901, Floor: 1, Version: 80}})
	find[Drain](b)
}

// A cluster that was served under another name is claimed above the epochs that it had there: objects show them.
func TestAClaimIsAboveTheEpochsUnderOtherNames(t *testing.T) {
	const first = 1000
	elsewhere := LayoutSeen{of("u2", divided(2, 90))}
	for _, c := range []struct {
		name          string
		before, after Input
		epoch, want   Epoch
	}{
		{"the other name is its own", Tick{}, Tick{}, first + 12, first + 13},
		{"the other name leads to another cluster by now", Tick{}, elsewhere, first + 12, first + 13},
		{"it did when this replica began", elsewhere, Tick{}, first + 12, first + 13},
		{"somebody mistyped that epoch", elsewhere, Tick{}, MaxFloor + 9, MaxFloor + 1},
		{"somebody mistyped it, and the other name is its own", Tick{}, Tick{}, MaxFloor + 9, MaxFloor + 1},
	} {
		b := newBench(t)
		b.layTwoNamesOut(0, 1)
		b.feed(cluster("east", 0, "u1"))
		b.feed(c.before)
		west := func(p keyspace.Prefix, epoch Epoch) ShardSeen {
			return ShardSeen{Shard{ID: keyspace.ShardID{Cluster: "west", Prefix: p}, Epoch: epoch, Floor: 1, Version: 70}}
		}
		halves := keyspace.Partition(1)
		b.feed(west(halves[0], c.epoch))
		b.feed(west(halves[1], first+9))
		b.feed(c.after)
		b.feed(ShardSeen{Shard{ID: eastern, Assignee: b.r.cfg.ID, Epoch: first, Floor: 1, Version: 71}})
		if got := find[WriteShard](b).Shard; got.ID.Cluster != "east" || got.Epoch != c.want {
			t.Errorf("%s: %v is claimed at epoch %d, want east at %d", c.name, got.ID, got.Epoch, c.want)
		}
	}
}

// Its claimant may never have seen the records of the old name.
func TestTheFirstRecordUnderANewNameIsAboveTheEpochsUnderTheOldOneThoughItsRecordsAreDeleted(t *testing.T) {
	b := newBench(t)
	b.layTwoNamesOut(0, 0)
	b.feed(cluster("east", 0, "u1"))
	b.feed(ShardSeen{Shard{ID: west, Epoch: 1<<40 + 7, Floor: 1 << 40, Version: 70}})
	b.feed(ShardGone{ID: west, Asked: b.now.Add(1)})
	b.coordinates()
	if got := find[CreateShard](b); got.ID != eastern || got.Floor < 1<<40+7+2*epochBand {
		t.Errorf("%v begins at %d", got.ID, got.Floor)
	}
}

// The records that its cluster had under another name may be deleted, and that name's layout be about another cluster.
func TestOnlyARecordOfTheFirstGenerationIsTheFirstForItsSlots(t *testing.T) {
	for generation, want := range map[uint32]Epoch{1: 1<<40 + 1, 2: 1<<40 + 1 + 2*epochBand} {
		b := newBench(t)
		b.laid(divided(generation, 50))
		b.coordinates()
		if got := find[CreateShard](b); got.Floor < want || generation == 1 && got.Floor > want {
			t.Errorf("in generation %d, %v begins at %d, want %d", generation, got.ID, got.Floor, want)
		}
	}
}

// Otherwise dividing a cluster anew would call off planned moves of all others.
func TestAHandoffIsNotCalledOffForTheEpochsOfExcludedRecords(t *testing.T) {
	b := newBench(t)
	b.laid(divided(2, 50))
	b.shows("west/0", Shard{Epoch: 2500, Retired: true})
	b.shows("west/0@2", Shard{Assignee: "a", Holder: "a", Epoch: 2000})
	b.feed(Warmed{id(t, "west/0@2")})
	find[Activate](b)
}

// Its epoch was right when it was opened. It might not be claimed again: perhaps nobody is fit.
func TestAShardThatStaysAfterAllIsNotReleasedForTheEpochsOfExcludedRecords(t *testing.T) {
	b := newBench(t)
	b.laid(divided(2, 50))
	half := id(t, "west/0@2")
	b.shows("west/0@2", Shard{Assignee: "a", Epoch: 2000})
	claim := b.writes(ClaimFree, "west/0@2", "a")
	b.commit(claim.Seq)
	b.feed(Warmed{half})
	find[Activate](b)
	b.shows("west/0@2", Shard{Assignee: "b", Holder: "a", Epoch: claim.Shard.Epoch, Warm: "b"})
	find[Drain](b)
	b.shows("west/0", Shard{Epoch: claim.Shard.Epoch + 500, Retired: true})
	b.shows("west/0@2", Shard{Assignee: "a", Holder: "a", Epoch: claim.Shard.Epoch})
	b.feed(Drained{half})
	find[Activate](b)
}

// Its name leads to another cluster since its layout was deleted.
func TestTheRecordsOfADeletedLayoutAreOfTheClusterThatItWasMadeFor(t *testing.T) {
	b := newBench(t)
	b.laid(divided(1, 50))
	b.shows("west/0", Shard{Epoch: 3})
	b.feed(LayoutGone{Cluster: "west"})
	b.feed(cluster("west", 1, "u2"))
	b.coordinates()
	if got := find[WriteLayout](b).Layout; got.UID != "u1" || b.r.ownNames["west"] {
		t.Errorf("west is served: %v, and it writes %+v", b.r.ownNames["west"], got)
	}
}

func TestPrefixesDivideWhatTheyCoverOnce(t *testing.T) {
	for _, c := range []struct {
		prefixes []keyspace.Prefix
		want     bool
	}{
		{nil, false}, {keyspace.Partition(0), true}, {keyspace.Partition(8), true}, {keyspace.Partition(1)[:1], false},
		{append(keyspace.Partition(0), keyspace.Partition(1)...), false}, {keyspace.Partition(1)[1:], false},
	} {
		if got := Divides(c.prefixes); got != c.want {
			t.Errorf("%v: %v, want %v", c.prefixes, got, c.want)
		}
	}
}

func TestANewClusterGetsAsManyShardsAsItsObjectsNeed(t *testing.T) {
	for _, c := range []struct {
		objects int64
		bits    int
	}{
		{-1, 3}, {0, 0}, {1, 0}, {100, 0}, {101, 1}, {200, 1}, {201, 2}, {400, 2}, {401, 3}, {1 << 62, 3},
	} {
		t.Run(fmt.Sprint(c.objects), func(t *testing.T) {
			b := newSizing(t)
			b.coordinates()
			none[WriteLayout](b)
			asked := find[Count](b)
			if asked.Cluster != "west" || asked.UID != "u1" {
				t.Errorf("it asks for %+v", asked)
			}
			b.pass(b.r.cfg.PlanEvery)
			none[Count](b) // the answer comes
			b.feed(Counted{Cluster: "west", UID: "u1", Objects: c.objects})
			b.pass(b.r.cfg.PlanEvery)
			if got := find[WriteLayout](b).Layout; len(got.Prefixes) != 1<<c.bits || !Divides(got.Prefixes) {
				t.Errorf("it gets %v, want %d shards", got.Prefixes, 1<<c.bits)
			}
		})
	}
}

// newSizing is the machine in a fleet in which a shard has 100 objects, and a cluster up to 8 shards.
func newSizing(t *testing.T) *bench {
	b := newBench(t)
	b.r.cfg.ObjectsPerShard = 100
	b.feed(LayoutGone{Cluster: "west"})
	b.feed(cluster("west", 3, "u1"))
	return b
}

func TestObjectsAreCountedWhereNothingSaysHowAClusterIsDivided(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(b *bench)
		shards int // of the layout that is written without counting; 0 for none
		counts bool
	}{
		{"a new one", func(b *bench) {}, 0, true},
		{"one that has a layout", func(b *bench) { b.laid(divided(1, 50)) }, 0, false},
		{"one whose layout was deleted", func(b *bench) { b.shows("west/0", Shard{Holder: "b", Epoch: 3}) }, 5, false},
		{"one that was made anew", func(b *bench) { b.laid(of("u0", divided(1, 50))) }, 0, true},
		{"one that version 1 may still serve", func(b *bench) {
			b.feed(LeaseSeen{Lease{ID: "old", Replica: "old", Duration: lease, Version: 1}})
		}, 0, false},
		{"where all get all shards", func(b *bench) { b.r.cfg.ObjectsPerShard = 0 }, 8, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newSizing(t)
			c.before(b)
			b.coordinates()
			if got := len(all[Count](b)) > 0; got != c.counts {
				t.Errorf("it counts: %v", got)
			}
			shards := 0
			for _, w := range all[WriteLayout](b) {
				shards = len(w.Layout.Prefixes)
			}
			if shards != c.shards {
				t.Errorf("%d shards, want %d", shards, c.shards)
			}
		})
	}
}

func TestWhatWasCountedOfAnotherClusterOfThatNameCountsForNothing(t *testing.T) {
	b := newSizing(t)
	b.coordinates()
	find[Count](b)
	b.feed(cluster("west", 3, "u2"))
	b.feed(Counted{Cluster: "west", UID: "u1", Objects: 1})
	b.pass(b.r.cfg.PlanEvery)
	none[WriteLayout](b)
	if asked := find[Count](b); asked.UID != "u2" {
		t.Errorf("it asks for %+v", asked)
	}
	b.feed(Counted{Cluster: "west", UID: "u1", Objects: 1}) // late
	b.pass(b.r.cfg.PlanEvery)
	none[WriteLayout](b)
	b.feed(Counted{Cluster: "west", UID: "u2", Objects: 700})
	b.pass(b.r.cfg.PlanEvery)
	if got := find[WriteLayout](b).Layout; len(got.Prefixes) != 8 || got.UID != "u2" {
		t.Errorf("it gets %+v", got)
	}
}

// This replica doesn't coordinate, and knows the cluster only under its old name.
func TestAClusterIsServedUnderItsOldNameOnceNobodyServesItUnderTheNewOne(t *testing.T) {
	b := newBench(t)
	of := func(c keyspace.ClusterName) Layout {
		return Layout{Cluster: c, Generation: 1, Prefixes: keyspace.Partition(0), UID: "u1", Version: b.next()}
	}
	b.feed(LayoutSeen{of(east)})
	b.held("east/", "b", "b")
	b.laid(of("west"))
	b.seen(Shard{Assignee: "c", Epoch: 5}) // since it was renamed
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"west": 0}, UIDs: map[keyspace.ClusterName]string{"west": "u1"}})
	b.live(lease, "west")
	none[WriteShard](b)
	b.held("east/", "", "b")
	b.live(lease, "west,east")
	b.writes(ClaimFree, "west/", "a")
}
