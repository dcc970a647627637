package ownership

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// largeFleet is the first replica of a fleet whose clusters have eight records each, spread over all replicas.
type largeFleet struct {
	ids     []Incarnation
	given   Clusters
	r       *Replica
	now     Instant
	v       Version
	records []Shard
}

func clusterNamed(i int) keyspace.ClusterName {
	return keyspace.ClusterName(fmt.Sprintf("cluster-%04d", i))
}

func newLargeFleet(replicas, clusters, lead int, held bool) *largeFleet {
	f := &largeFleet{ids: make([]Incarnation, replicas), now: Instant{Mono: time.Hour, Wall: time.Hour},
		given: Clusters{Bits: map[keyspace.ClusterName]int{}}}
	for i := range f.ids {
		f.ids[i] = Incarnation(fmt.Sprintf("replica-%04d-abcdef", i))
	}
	f.r = New(DefaultConfig(f.ids[0], "a", lease), nil)
	for _, id := range f.ids[1:] {
		f.renewed(Lease{ID: id})
	}
	f.v++
	f.step(LeadSeen{Lead{Holder: f.ids[lead], Floor: 1 << 40, Version: f.v}})
	for i := range clusters {
		c := clusterNamed(i)
		f.given.Bits[c] = 3
		f.v++
		f.step(LayoutSeen{Layout{Cluster: c, Generation: 1, Prefixes: keyspace.Partition(3), Version: f.v}})
		for j, p := range keyspace.Partition(3) {
			s := Shard{ID: keyspace.ShardID{Cluster: c, Prefix: p}, Assignee: f.ids[(8*i+j)%replicas], Floor: 1}
			if held {
				s.Holder, s.Epoch = s.Assignee, 1<<40
			}
			f.records = append(f.records, s)
		}
	}
	f.step(f.given)
	for i := range f.records {
		f.changed(i)
	}
	f.step(Synced{})
	return f
}

// step lets the machine take a step, a little later. Its own renewals are committed.
func (f *largeFleet) step(in Input) {
	f.now = f.now.Add(time.Microsecond)
	for _, e := range f.r.Step(f.now, in) {
		if w, renewal := e.(WriteLease); renewal {
			f.v++
			f.r.Step(f.now, Written{Seq: w.Seq, Outcome: Committed, Version: f.v})
		}
	}
}

func (f *largeFleet) renewed(l Lease) {
	f.v++
	l.Replica, l.Duration, l.Protocol, l.Version = string(l.ID), lease, withLayouts, f.v
	f.step(LeaseSeen{l})
}

func (f *largeFleet) changed(i int) {
	f.v++
	f.records[i].Version = f.v
	f.records[i].Objects++
	f.step(ShardSeen{f.records[i]})
}

// plan lets the machine plan, and now and then lets its peers renew.
func (f *largeFleet) plan(b *testing.B, turn int) {
	b.Helper()
	f.now = f.now.Add(f.r.planEvery())
	f.step(Tick{})
	if turn%20 == 0 {
		for _, id := range f.ids[1:] {
			f.renewed(Lease{ID: id})
		}
	}
	f.r.noteCaughtUp(LeaseWatch, f.now)
	f.r.noteCaughtUp(ShardWatch, f.now)
	if f.r.over {
		b.Fatal("it has lapsed")
	}
}

// BenchmarkMachine is what events cost the coordinator of a large fleet.
func BenchmarkMachine(b *testing.B) {
	for _, records := range []int{1000, 8000} {
		fleet := func(held bool) *largeFleet { return newLargeFleet(4, records/8, 0, held) }
		b.Run(fmt.Sprintf("a peer claims, then plan/records=%d", records), func(b *testing.B) {
			var f *largeFleet
			i := records // of an earlier fleet's
			for b.Loop() {
				if i++; i >= records {
					b.StopTimer()
					f, i = fleet(false), 0
					for j := range f.records {
						f.records[j].Assignee = "z"
						f.changed(j)
					}
					b.StartTimer()
				}
				if s := &f.records[i]; i%4 > 0 {
					s.Holder, s.Assignee, s.Epoch = f.ids[1], f.ids[1], 1<<40
				}
				f.changed(i)
				f.plan(b, i)
			}
		})
		b.Run(fmt.Sprintf("death/records=%d", records), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := fleet(true)
				b.StartTimer()
				f.renewed(Lease{ID: f.ids[3], Sealed: true})
				f.now = f.now.Add(f.r.cfg.PlanEvery)
				f.step(Tick{})
			}
		})
	}
}

// BenchmarkFollower is what a replica that doesn't coordinate pays in a fleet of 1,000 replicas, 10,000 clusters and
// 80,000 records, of which it holds 80: in a quarter of a second in which peers renew 100 times, as at the default
// lease duration, and report 25 times; when a peer's statement about a cluster changes; when a cluster is added or
// removed; and when each cluster answers that it can't be used, or that it can.
func BenchmarkFollower(b *testing.B) {
	const replicas, clusters = 1000, 10_000
	f := newLargeFleet(replicas, clusters, 1, true)
	words := make([]plan.UnfitFor, replicas)
	renewed := func(i int) { f.renewed(Lease{ID: f.ids[i], Unfit: words[i]}) }
	f.now = f.now.Add(lease / 4)
	f.step(Tick{})
	peer := 0
	turn := func(i int) {
		f.r.Wake()
		f.r.noteCaughtUp(LeaseWatch, f.now)
		f.r.noteCaughtUp(ShardWatch, f.now)
		if i%(replicas-1) == 0 {
			f.now = f.now.Add(f.r.cfg.RenewEvery)
			f.step(Tick{})
		}
	}
	b.Run("a quarter of a second", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			for range 100 {
				peer++
				renewed(1 + peer%(replicas-1))
				f.r.Wake()
				if peer%4 == 0 {
					f.changed((7919 * peer) % len(f.records))
				}
				turn(peer)
			}
		}
		b.ReportMetric(4*b.Elapsed().Seconds()/float64(b.N), "cores")
	})
	b.Run("a peer loses its way to a cluster, or finds it", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			p := 1 + i%(replicas-1)
			words[p] = plan.NewUnfitFor(map[keyspace.ClusterName]plan.Fitness{clusterNamed(i % clusters): plan.Unfit})
			renewed(p)
			turn(i)
		}
	})
	b.Run("a cluster comes or goes", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			f.given.Bits = maps.Clone(f.given.Bits)
			if c := clusterNamed(clusters + i/2); i%2 == 0 {
				f.given.Bits[c] = 3
			} else {
				delete(f.given.Bits, c)
			}
			f.step(f.given)
			renewed(1 + i%(replicas-1))
			turn(i)
		}
	})
	b.Run("it loses its way to all clusters, or finds it", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			for c := range clusters {
				f.step(Health{Cluster: clusterNamed(c), Usable: i%2 == 1})
			}
			turn(i)
		}
	})
	if f.r.over {
		b.Fatal("it has lapsed")
	}
}

// BenchmarkColdStart is what it costs a coordinator to make and claim all records of a new fleet in which it is alone.
func BenchmarkColdStart(b *testing.B) {
	for _, clusters := range []int{4, 32} {
		b.Run(fmt.Sprintf("records=%d", clusters<<keyspace.MaxBits), func(b *testing.B) {
			for b.Loop() {
				steps := coldStart(b, clusters)
				b.ReportMetric(float64(steps), "steps")
			}
		})
	}
}

func coldStart(b *testing.B, clusters int) (steps int) {
	b.Helper()
	r := New(DefaultConfig("a", "a", lease), nil)
	now, v := Instant{Mono: time.Hour, Wall: time.Hour}, Version(0)
	given := Clusters{Bits: map[keyspace.ClusterName]int{}}
	for i := range clusters {
		given.Bits[clusterNamed(i)] = keyspace.MaxBits
	}
	queue, records, held := []Input{given, Synced{}, Tick{}}, map[keyspace.ShardID]Shard{}, 0
	layouts := map[keyspace.ClusterName]Layout{}
	for ; held < clusters<<keyspace.MaxBits; steps++ {
		if len(queue) == 0 {
			wait := max(0, r.Wake()-now.Mono)
			now.Mono, now.Wall = now.Mono+wait, now.Wall+wait
			queue = append(queue, Tick{})
		}
		in := queue[0]
		queue = queue[1:]
		began := time.Now()
		effects := slices.Clone(r.Step(now, in))
		r.Wake()
		took := time.Since(began)
		now.Mono, now.Wall = now.Mono+took, now.Wall+took
		for _, e := range effects {
			v++
			switch e := e.(type) {
			case WriteLease:
				queue = append(queue, Written{Seq: e.Seq, Outcome: Committed, Version: v})
			case WriteLead:
				e.Lead.Version = v
				queue = append(queue, LeadSeen{e.Lead}, Written{Seq: e.Seq, Outcome: Committed, Version: v})
			case FindLead:
				queue = append(queue, LeadFound{r.lead.rec})
			case WriteLayout:
				e.Layout.Version = v
				layouts[e.Layout.Cluster] = e.Layout
				queue = append(queue, Written{Seq: e.Seq, Outcome: Committed, Version: v}, LayoutSeen{e.Layout})
			case FindLayout:
				queue = append(queue, LayoutRead{Cluster: e.Cluster, Ask: e.Ask, Layout: layouts[e.Cluster]})
			case CreateShard:
				s := Shard{ID: e.ID, Assignee: e.Assignee, Floor: e.Floor, UID: "u", Version: v}
				records[e.ID] = s
				queue = append(queue, Written{Seq: e.Seq, Outcome: Committed, Version: v}, ShardSeen{s})
			case WriteShard:
				s := e.Shard
				s.Version = v
				if s.Holder == "a" && records[s.ID].Holder != "a" {
					held++
				}
				records[s.ID] = s
				queue = append(queue, Written{Seq: e.Seq, Outcome: Committed, Version: v}, ShardSeen{s})
			case Warm:
				queue = append(queue, Warmed{e.ID})
			case Probe:
				queue = append(queue, Health{Cluster: e.Cluster, Usable: true})
			case Lapse:
				b.Fatalf("after %d steps and %v: %s", steps, now.Mono-time.Hour, e.Reason)
			}
		}
		r.noteCaughtUp(LeaseWatch, now)
		r.noteCaughtUp(ShardWatch, now)
	}
	return steps
}
