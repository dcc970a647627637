package witness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is milliseconds after the start of a small log.
func ms(n int64) int64 { return modelStart + n*1000 }

// by signs an event as a tenure's, with its times.
func (e Event) by(shard string, epoch int, replica string, from, to int64) Event {
	e.UserAgent = fmt.Sprintf("tenure/v1 (shard=%s; epoch=%d; replica=%s)", shard, epoch, replica)
	return e.during(from, to)
}

func (e Event) during(from, to int64) Event {
	e.Received, e.Completed = ms(from), ms(to)
	if e.Code == 0 {
		e.Code = 200
	}
	e.Cluster, e.File, e.Namespace = "west", "west/audit.log", "ns"
	return e
}

func (e Event) code(c int) Event { e.Code = c; return e }

func (e Event) version(rv uint64) Event { e.Body = &Body{ResourceVersion: rv}; return e }

var (
	status    = Event{Verb: "update", Group: atGroup, Resource: "ats", Subresource: "status", Name: "a"}
	createPod = Event{Verb: "create", Resource: "pods", Name: "a-pod"}
	deletePod = Event{Verb: "delete", Resource: "pods", Name: "a-pod"}
	patchWeb  = Event{Verb: "patch", Group: "apps", Resource: "deployments", Name: "web"}
	patchDB   = Event{Verb: "patch", Group: "apps", Resource: "deployments", Name: "db"}
	nameless  = Event{Verb: "create", Resource: "pods"}
	secondPod = Event{Verb: "create", Resource: "pods", Name: "a-other"}
)

func newAt(due int64) Event {
	return Event{Verb: "create", Group: atGroup, Resource: "ats", Name: "a", Code: 201,
		Body: &Body{Schedule: stamp(ms(due))}}
}

func TestWhatIsProofAndWhatIsNot(t *testing.T) {
	done := status
	done.Body = &Body{Phase: "DONE"}
	tests := []struct {
		name   string
		events []Event
		want   map[Kind]int
	}{
		{"a lower epoch that arrives after a higher one was answered falls",
			[]Event{status.by("west/", 2, "b", 10, 20), status.by("west/", 1, "a", 21, 30)},
			map[Kind]int{FallingEpoch: 1, InterleavedKey: 1, InterleavedShard: 1}},
		{"in flight together proves nothing",
			[]Event{status.by("west/", 2, "b", 10, 20), status.by("west/", 1, "a", 20, 30)}, nil},
		{"in flight together, but the versions tell",
			[]Event{status.by("west/", 2, "b", 10, 20).version(7), status.by("west/", 1, "a", 15, 18).version(8)},
			map[Kind]int{FallingEpoch: 1}},
		{"in flight together, and the versions rise",
			[]Event{status.by("west/", 2, "b", 10, 20).version(8), status.by("west/", 1, "a", 15, 18).version(7)}, nil},
		{"an At and its Pod are one key",
			[]Event{status.by("west/", 2, "b", 10, 20), createPod.by("west/", 1, "a", 21, 30)},
			map[Kind]int{InterleavedKey: 1, InterleavedShard: 1}},
		{"two objects of one shard are two keys",
			[]Event{patchWeb.by("west/", 2, "b", 10, 20), patchDB.by("west/", 1, "a", 21, 30)},
			map[Kind]int{InterleavedShard: 1}},
		{"a parent that writes after its child shares slots with it",
			[]Event{patchWeb.by("west/01", 2, "b", 10, 20), patchDB.by("west/", 1, "a", 21, 30)},
			map[Kind]int{InterleavedShard: 1}},
		{"epochs of two shards can't be compared",
			[]Event{patchWeb.by("west/0", 9, "b", 10, 20), patchWeb.by("west/1", 1, "a", 21, 30)}, nil},
		{"a refused write breaks nothing",
			[]Event{status.by("west/", 2, "b", 10, 20), status.code(409).by("west/", 1, "a", 21, 30)}, nil},
		{"a write with an unknown outcome breaks nothing",
			[]Event{status.by("west/", 2, "b", 10, 20), status.code(504).by("west/", 1, "a", 21, 30)}, nil},
		{"two incarnations with one epoch",
			[]Event{patchWeb.by("west/", 2, "b", 10, 20), patchDB.by("west/", 2, "a", 21, 30)},
			map[Kind]int{TwoHolders: 1}},
		{"two incarnations with one epoch in a parent and its child",
			[]Event{patchWeb.by("west/", 2, "b", 10, 20), patchDB.by("west/1", 2, "a", 21, 30)},
			map[Kind]int{TwoHolders: 1}},
		{"a Pod that was deleted may be made again",
			[]Event{newAt(0).during(0, 1), createPod.by("west/", 1, "a", 2, 3), deletePod.during(4, 5), createPod.by("west/", 1, "a", 6, 7)}, nil},
		{"a Pod made again without a deletion",
			[]Event{newAt(0).during(0, 1), createPod.by("west/", 1, "a", 2, 3), createPod.by("west/", 1, "a", 6, 7)},
			map[Kind]int{DuplicatePod: 1}},
		{"a second Pod of another name while the first lives",
			[]Event{newAt(0).during(0, 1), createPod.by("west/", 1, "a", 2, 3), secondPod.by("west/", 1, "a", 4, 5), deletePod.during(6, 7)},
			map[Kind]int{DuplicatePod: 1}},
		{"a second Pod of another name whose create overlaps the first one's deletion",
			[]Event{newAt(0).during(0, 1), createPod.by("west/", 1, "a", 2, 3), secondPod.by("west/", 1, "a", 4, 7), deletePod.during(6, 8)}, nil},
		{"Pods whose names the server generates",
			[]Event{nameless.by("west/", 1, "a", 2, 3), nameless.during(4, 5)},
			map[Kind]int{UnnamedPod: 1}},
		{"a Pod after DONE, deleted in between",
			[]Event{newAt(0).during(0, 1), createPod.by("west/", 1, "a", 2, 3), done.by("west/", 1, "a", 4, 5),
				deletePod.during(6, 7), createPod.by("west/", 1, "a", 8, 9)},
			map[Kind]int{PodAfterDone: 1}},
		{"a Pod one millisecond before its time",
			[]Event{newAt(5).during(0, 1), createPod.by("west/", 1, "a", 4, 9)}, map[Kind]int{EarlyPod: 1}},
		{"a Pod in its millisecond",
			[]Event{newAt(5).during(0, 1), createPod.by("west/", 1, "a", 5, 9)}, nil},
		{"an At that is due and has nothing",
			[]Event{newAt(5).during(0, 1), patchWeb.by("west/", 1, "a", 5, 9)}, map[Kind]int{LostAt: 1}},
		{"an At that is deleted long after it was due",
			[]Event{newAt(5).during(0, 1), {Verb: "delete", Group: atGroup, Resource: "ats", Name: "a", Received: ms(50), Completed: ms(51), Cluster: "west", Namespace: "ns", Code: 200}},
			map[Kind]int{LostAt: 1}},
		{"an At that is not due yet",
			[]Event{newAt(50).during(0, 1), patchWeb.by("west/", 1, "a", 5, 9)}, nil},
		{"an At that is made again under its name has a Pod of its own",
			[]Event{newAt(0).during(0, 1), createPod.by("west/", 1, "a", 2, 3), done.by("west/", 1, "a", 4, 5),
				{Verb: "delete", Group: atGroup, Resource: "ats", Name: "a", Received: ms(6), Completed: ms(7), Cluster: "west", Namespace: "ns", Code: 200},
				deletePod.during(8, 9), newAt(0).during(10, 11), createPod.by("west/", 1, "a", 12, 13)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == nil {
				tt.want = map[Kind]int{}
			}
			for name, events := range map[string][]Event{"in order": tt.events, "backwards": backwards(tt.events)} {
				r := Judge(slices.Values(events), Facts{}, Rules{})
				if diff := cmp.Diff(tt.want, broken(r)); diff != "" {
					t.Errorf("%s: (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

func backwards(events []Event) []Event {
	events = slices.Clone(events)
	slices.Reverse(events)
	return events
}

func TestConcurrentAndFencedWritesAreCounted(t *testing.T) {
	refused := status.code(422).by("west/", 1, "a", 40, 41)
	refused.Message = "status.epoch: epoch never falls"
	r := Judge(slices.Values([]Event{
		status.by("west/", 2, "b", 10, 20), status.by("west/", 1, "a", 15, 30), refused,
		status.code(409).by("west/", 1, "a", 5, 6), createPod.code(409).by("west/", 2, "b", 50, 51),
	}), Facts{}, Rules{})
	if diff := cmp.Diff(Fenced{Conflict: 1, AlreadyExists: 1, EpochRule: 1, Stale: 1}, r.Fenced); diff != "" {
		t.Errorf("fenced (-want +got):\n%s", diff)
	}
	if r.Writes.ConcurrentKeys != 1 || r.Writes.ConcurrentShards != 1 || !r.OK {
		t.Errorf("want one concurrent write and no violation, got %+v, %v", r.Writes, broken(r))
	}
}

func TestWhatTheLogDoesNotTellIsUnknownNotZero(t *testing.T) {
	bare := newAt(0)
	bare.Body = nil
	events := []Event{bare.during(0, 1), patchWeb.by("west/", 1, "a", 5, 9)}
	r := Judge(slices.Values(events), Facts{}, Rules{})
	if r.Ats.LostUnknown != 1 || r.Counts[LostAt] != 0 || len(r.Notices) == 0 {
		t.Errorf("want one unknown, got %+v, notices %q", r.Ats, r.Notices)
	}
	known := Facts{Ats: []At{{Cluster: "west", Namespace: "ns", Name: "a", Schedule: stamp(ms(4))}}}
	if r = Judge(slices.Values(events), known, Rules{}); r.Counts[LostAt] != 1 || r.Ats.LostUnknown != 0 {
		t.Errorf("with a list of Ats: want one lost, got %v %+v", broken(r), r.Ats)
	}
	if r = Judge(slices.Values(events), known, Rules{Settle: time.Second}); !r.OK || r.Ats.Settling != 1 {
		t.Errorf("within the time to settle: want one settling, got %v %+v", broken(r), r.Ats)
	}
}

func TestMovesAreNamedAndCounted(t *testing.T) {
	m := newModel(1)
	east := m.shards[2]
	for _, kind := range []string{"planned", "crash", "exit"} {
		m.grant(east, kind)
	}
	r := judged(m)
	want := MoveStats{Planned: 1, Crash: 1, Exit: 1, Claim: 3, Writes: 7, PerMove: 7.0 / 3, MaxWrites: 3, Gaps: map[string]Spread{}}
	if diff := cmp.Diff(want, r.Moves); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
	last := r.Handoffs[len(r.Handoffs)-1]
	if last.Shard != "east/" || last.Kind != "exit" || last.To != east.Holder || last.Epoch != 4 {
		t.Errorf("last handoff: %+v", last)
	}
}

func TestSteadyStateLeavesOutMovesAndArrivals(t *testing.T) {
	renew := Event{Verb: "update", Group: leaseGroup, Resource: "leases", Name: "r-1", UserAgent: "tenure/v1 (replica=r-1)"}
	join := renew
	join.Verb = "create"
	events := []Event{join.during(0, 1)}
	for s := int64(1); s <= 60; s++ {
		if s%2 == 0 || s <= 2 {
			events = append(events, renew.during(s*1000, s*1000+1))
		}
	}
	c := Judge(slices.Values(events), Facts{}, Rules{}).Coordination
	if c.PerSecond == nil || *c.PerSecond < 0.45 || *c.PerSecond > 0.55 || c.Replicas != 1 {
		t.Errorf("want about 0.5 writes a second by one replica, got %+v", c)
	}
}

func TestATenureMayHaveBegunWithARecordWriteThatTimedOut(t *testing.T) {
	record := func(holder string, epoch uint64, rv uint64) Event {
		return Event{Verb: "patch", Group: shardGroup, Resource: "shards", Subresource: "status", Name: "west.p", UserAgent: "tenure/v1 (replica=x)",
			Body: &Body{ResourceVersion: rv, Shard: &ShardState{Cluster: "west", Holder: holder, Epoch: epoch, Phase: "Held"}}}
	}
	tests := []struct {
		name    string
		claimed int64 // when the claim that timed out arrived
		want    map[Kind]int
	}{
		{"a write after the claim arrived is its tenure's", 3, map[Kind]int{}},
		{"a write that was answered before the claim arrived is nobody's", 9, map[Kind]int{WriteBeforeTenure: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim := record("b", 2, 0).code(504)
			claim.Body = nil
			events := []Event{
				record("a", 1, 10).during(0, 1), claim.during(tt.claimed, tt.claimed+1),
				patchWeb.by("west/", 2, "b", 5, 6), record("b", 2, 12).during(20, 21),
			}
			if diff := cmp.Diff(tt.want, broken(Judge(slices.Values(events), Facts{}, Rules{}))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
