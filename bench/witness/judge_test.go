package witness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/bench/audit"
)

// broken is what a report found, kinds with a count of zero left out.
func broken(r *Report) map[Kind]int {
	found := make(map[Kind]int)
	for k, n := range r.Counts {
		if n > 0 {
			found[k] = n
		}
	}
	return found
}

// few waives all evidence: a log of a few lines can't have it.
var few = func() Rules {
	r := Rules{Waived: map[Kind]string{}}
	for _, k := range kinds {
		if k.invariant == Evidence {
			r.Waived[k.kind] = "the log has a few lines"
		}
	}
	return r
}()

func judged(m *model) *Report { return Judge(slices.Values(m.events), Facts{}, few) }

// mutations each plant one bug's trace in a clean log. They return false where the log offers no place for it.
var mutations = []struct {
	name string
	kind Kind
	do   func(m *model) bool
}{
	{"an object is written by an earlier epoch after a later one", FallingEpoch, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsAt() }, -1, func(e *Event) {})
	}},
	{"a Pod's At is written by an earlier epoch", InterleavedKey, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsPod() && e.Verb == "create" }, -1, func(e *Event) {
			e.Verb, e.Group, e.Resource, e.Subresource = "patch", audit.AtGroup, "ats", "status"
			e.Name = strings.TrimSuffix(e.Name, "-0123456789")
		})
	}},
	{"a shard's other object is written by an earlier epoch", InterleavedShard, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsAt() }, -1, func(e *Event) {
			e.Group, e.Resource, e.Subresource, e.Name = "apps", "deployments", "", "web"
		})
	}},
	{"a holder writes on after its shard was handed over", WriteAfterHandover, func(m *model) bool {
		return m.late(func(e *Event) {})
	}},
	{"a holder writes before the record says that it is one", WriteBeforeTenure, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsAt() && audit.ParseAgent(e.UserAgent).Epoch > 1 }, 0, func(e *Event) {
			e.Resource, e.Group, e.Subresource, e.Body = "deployments", "apps", "", nil
			e.Received, e.Completed = modelStart-100, modelStart-50
		})
	}},
	{"two incarnations write under one epoch", TwoHolders, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsAt() }, 0, func(e *Event) {
			e.UserAgent = strings.Replace(e.UserAgent, "replica=", "replica=twin-", 1)
		})
	}},
	{"a replica writes to an At of another shard", WrongShard, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsAt() && e.Body != nil }, 0, func(e *Event) {
			e.Body = &Body{UID: e.Body.UID}
			shard := "west/1"
			if (Shard{Cluster: "west", Prefix: "1"}).Holds(e.Body.UID) {
				shard = "west/0"
			}
			e.UserAgent = "tenure/v1 (shard=" + shard + "; epoch=1; replica=x)"
		})
	}},
	{"a record's epoch falls", RecordEpochFell, func(m *model) bool {
		s := m.shards[2]
		s.Epoch, s.Holder = s.Epoch-1, ""
		m.record(s, "update", "boss")
		return true
	}},
	{"a record gives one epoch twice", TwoHolders, func(m *model) bool {
		s := m.shards[2]
		s.Holder = "thief-1"
		m.record(s, "update", "boss")
		return true
	}},
	{"an At gets two Pods at a time", DuplicatePod, func(m *model) bool {
		for _, at := range m.ats {
			for _, e := range m.events {
				if e.IsPod() && e.Name == at.pod && e.Verb == "create" && at.step == 4 {
					e.Name = at.name + "-second"
					e.Received, e.Completed = e.Completed+1, e.Completed+2
					m.events = append(m.events, e)
					return m.deletedAfter(at.pod, e.Completed)
				}
			}
		}
		return false
	}},
	{"a Pod is made after DONE", PodAfterDone, func(m *model) bool {
		for _, at := range m.ats {
			if at.step == 4 {
				at.step = 0
				m.serve(slices.Index(m.ats, at))
				return true
			}
		}
		return false
	}},
	{"a Pod is made too early", EarlyPod, func(m *model) bool {
		for i, e := range m.events {
			if e.IsAt() && e.Verb == "create" {
				at := m.ats[slices.IndexFunc(m.ats, func(a *modelAt) bool { return a.name == e.Name })]
				if at.step == 0 {
					continue
				}
				at.due = m.now + 60e6
				for j := range m.events {
					if b := m.events[j].Body; m.events[j].Name == at.name && m.events[j].IsAt() && b != nil {
						b.Schedule = instant(at.due).Format(time.RFC3339)
					}
				}
				return m.events[i].Body != nil
			}
		}
		return false
	}},
	{"an At is forgotten", LostAt, func(m *model) bool {
		m.newAt()
		m.now += 5_000_000
		m.newAt() // only so that the log goes on for long enough
		m.events[len(m.events)-1].Body.Schedule = "2099-01-01T00:00:00Z"
		return true
	}},
	{"a move takes five writes", CostlyMove, func(m *model) bool {
		s := m.shards[2]
		s.Assignee = "w"
		for i := range 4 {
			s.Warm = fmt.Sprintf("w%d", i)
			m.record(s, "update", "boss")
		}
		m.grant(s, "crash")
		return true
	}},
	{"an epoch is used that the record never gave", WriteWithoutGrant, func(m *model) bool {
		return m.echo(func(e *Event) bool { return e.IsAt() }, 90, func(e *Event) {})
	}},
	{"a dead incarnation writes on", WriteAfterSeal, func(m *model) bool {
		s := m.shards[2]
		m.lease(s.Holder, "patch", "boss", "boss")
		e := Event{Cluster: s.Cluster, Verb: "create", Group: "apps", Resource: "deployments", Namespace: "ns",
			Name: "new", UserAgent: m.agent(s)}
		m.emit(e, m.now+1)
		return true
	}},
	{"a dead incarnation writes to its record", WriteAfterSeal, func(m *model) bool {
		s := m.shards[2]
		m.lease(s.Holder, "patch", "boss", "boss")
		m.record(s, "update", s.Holder)
		return true
	}},
	{"a shard is claimed from a holder whose Lease lives", ClaimBeforeSeal, func(m *model) bool {
		s := m.shards[2]
		s.Holder, s.Epoch, s.Move = "thief-1", s.Epoch+1, "crash"
		m.record(s, "update", "thief-1")
		return true
	}},
	{"a shard is claimed just before the Lease is sealed", ClaimBeforeSeal, func(m *model) bool {
		s := m.shards[2]
		from := s.Holder
		s.Holder, s.Epoch, s.Move = "thief-1", s.Epoch+1, "crash"
		m.record(s, "update", "thief-1")
		m.lease(from, "patch", "boss", "boss")
		return true
	}},
	{"two records have the same slots", OverlappingRecords, func(m *model) bool {
		child := m.newShard(Shard{Cluster: "east", Prefix: "000"}, 90)
		m.grant(child, "join")
		return true
	}},
	{"a slot's epoch falls in another record", RecordEpochFell, func(m *model) bool {
		s := m.shards[2]
		s.Epoch, s.Holder = s.Epoch+1, ""
		m.record(s, "update", "boss")
		m.grant(m.newShard(Shard{Cluster: "east", Prefix: "0"}, 0), "join")
		return true
	}},
	{"more writes in flight than any fleet has workers", ManyInFlight, func(m *model) bool {
		s := m.shards[2]
		for i := range 17 {
			e := m.emit(Event{
				Cluster: "east", Verb: "patch", Group: "apps", Resource: "deployments", Name: fmt.Sprint(i), UserAgent: m.agent(s),
			}, 0)
			e.Completed = e.Received + 60e6
		}
		m.grant(s, "planned")
		return true
	}},
}

// echo repeats a fenced write a second after the end of the log, changed, with its epoch shifted.
func (m *model) echo(which func(*Event) bool, shift int64, change func(*Event)) bool {
	for _, e := range m.events {
		a := audit.ParseAgent(e.UserAgent)
		if !a.Fenced || e.Code == 409 || a.Epoch < 2 || !which(&e) {
			continue
		}
		e.UserAgent = fmt.Sprintf("tenure/v1 (shard=%s; epoch=%d; replica=%s)", a.Shard, int64(a.Epoch)+shift, a.Replica)
		e.Received, e.Completed = m.now+1_000_000, m.now+1_000_100
		change(&e)
		m.events = append(m.events, e)
		return true
	}
	return false
}

// late lets the last holder but one of a shard write once more, to an object that nobody else has written.
func (m *model) late(change func(*Event)) bool {
	s := m.shards[2]
	old := m.agent(s)
	m.grant(s, "planned")
	e := Event{Cluster: s.Cluster, Verb: "create", Group: "apps", Resource: "deployments", Namespace: "ns",
		Name: "new", UserAgent: old}
	change(&e)
	m.emit(e, m.now+1)
	return true
}

func (m *model) deletedAfter(pod string, us int64) bool {
	return slices.ContainsFunc(m.events, func(e Event) bool {
		return e.IsPod() && e.Verb == "delete" && e.Name == pod && e.Received > us
	})
}

func TestACorrectModelHasNoViolation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.Uint64().Draw(t, "seed"))
		m.run(rapid.IntRange(40, 400).Draw(t, "steps"))
		r := Judge(slices.Values(m.events), Facts{}, Rules{Users: []string{"fleet"}})
		if diff := cmp.Diff(map[Kind]int{}, broken(r)); diff != "" {
			t.Fatalf("violations in a correct log (-want +got):\n%s\n%+v", diff, r.Violations)
		}
	})
}

func TestTheOrderOfLinesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(rapid.Uint64().Draw(t, "seed"))
		m.run(200)
		i := rapid.IntRange(0, len(mutations)-1).Draw(t, "mutation")
		mutations[i].do(m)
		want := judged(m)
		m.rng.Shuffle(len(m.events), func(i, j int) { m.events[i], m.events[j] = m.events[j], m.events[i] })
		got := judged(m)
		if diff := cmp.Diff(want.Counts, got.Counts); diff != "" {
			t.Fatalf("shuffling the log changed the counts (-want +got):\n%s", diff)
		}
	})
}

func TestEachPlantedBugIsCaught(t *testing.T) {
	for _, mut := range mutations {
		t.Run(mut.name, func(t *testing.T) {
			planted := 0
			rapid.Check(t, func(t *rapid.T) {
				m := newModel(rapid.Uint64().Draw(t, "seed"))
				m.run(300)
				if !mut.do(m) {
					t.Skip("this log has no place for the bug")
				}
				planted++
				r := judged(m)
				if r.OK || r.Counts[mut.kind] == 0 {
					t.Fatalf("not caught: want %s, got %v", mut.kind, broken(r))
				}
				if len(r.Violations) == 0 {
					t.Fatalf("counted, and nothing is listed: %v", broken(r))
				}
				for _, v := range r.Violations {
					if v.Invariant == "" || v.Detail == "" {
						t.Fatalf("a violation doesn't say what it is: %+v", v)
					}
				}
			})
			if planted < 20 {
				t.Errorf("the bug was planted in %d logs only", planted)
			}
		})
	}
}
