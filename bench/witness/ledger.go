package witness

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/tenure-dev/tenure/bench/audit"
)

// Event, Body, Shard and ShardState are what a log contains; see package audit.
type (
	Event      = audit.Event
	Body       = audit.Body
	Shard      = audit.Shard
	ShardState = audit.ShardState
)

// Judge reads events, in any order, and reports which invariants they break. It is pure: the same events, facts and
// rules give the same report.
func Judge(events iter.Seq[Event], facts Facts, rules Rules) *Report {
	l := newLedger(facts, rules)
	for e := range events {
		l.add(&e)
	}
	return l.judge()
}

// ledger keeps a small record for each write, so that the order within the logs doesn't matter: an audit log is in the
// order in which answers were written, not in that of the commits.
type ledger struct {
	facts Facts
	rules Rules
	found findings

	files    table[string]
	objects  table[objectID]
	shards   table[Shard]
	replicas table[string]
	agents   map[string]agent

	writes   []write
	atFacts  []atFact
	podFacts []podFact
	// swept are deletions of whole collections, of Pods or of Ats. The log doesn't show which objects they deleted.
	swept   map[sweptKey][]span
	records map[Shard][]recordWrite
	// recordUnknown has, by the record's name, the writes whose outcome isn't in the log.
	recordUnknown map[string][]recordWrite
	leases        map[string]*leaseLife
	coords        []coordWrite
	// changes are other clients' changes to Deployments that ask for copies; copyWrites are our writes of their copies;
	// by UID.
	changes    []change
	copyWrites map[string][]int64
	// keys are all that lines show of Ats, Pods and Deployments, each with when the first such line was answered; unsure
	// are objects that may have others; keyless are our writes to such objects whose lines show none.
	keys    map[shownKey]int64
	unsure  map[int32]bool
	keyless []write

	links          []link
	clusters       map[string]*clusterLog
	heard          map[string]map[int64]bool // by folder of an API server's logs, starts of buckets with anything in them
	suspects       map[string]*suspect
	users          map[string]bool // who sent anything; true: with the User-Agent of our program
	stats          WriteStats
	fenced         Fenced
	refusedRecords int // writes to records that were refused
	from, to       int64
	reads          int64 // when the logs were read
}

// objectID identifies an object across all clusters. After a restore of its cluster the same name is another object.
type objectID struct {
	cluster, group, resource, namespace, name string

	era int
}

// anyEra names the object in all eras.
func (o objectID) anyEra() objectID {
	o.era = 0
	return o
}

func (o objectID) String() string {
	return o.cluster + " " + o.resource + " " + o.namespace + "/" + o.name
}

type sweptKey struct {
	cluster, resource, namespace string

	era int
}

// span is the time from a request's arrival to its answer. Its commit lies within.
type span struct{ start, end int64 }

type place struct{ file, line int32 }

// write is one committed request that carried a shard and an epoch.
type write struct {
	span
	epoch   uint64
	rv      uint64
	place   place
	shard   int32
	replica int32
	object  int32
	verb    string
}

// agent is an Agent whose parts are numbered.
type agent struct {
	audit.Agent
	shard, replica int32
	under          string // the shard's name, "" without one
}

// change is another client's write to a Deployment whose copies have to follow.
type change struct {
	cluster, uid string
	at           int64
}

// table numbers values.
type table[T comparable] struct {
	ids  map[T]int32
	list []T
}

func (t *table[T]) id(v T) int32 {
	if id, ok := t.ids[v]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = make(map[T]int32)
	}
	id := int32(len(t.list))
	t.ids[v] = id
	t.list = append(t.list, v)
	return id
}

// runs cuts a list into its longest runs of neighbours that belong together.
func runs[T any](list []T, together func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for from, to := 0, 0; from < len(list); from = to {
			for to = from + 1; to < len(list) && together(list[from], list[to]); {
				to++
			}
			if !yield(list[from:to]) {
				return
			}
		}
	}
}

func newLedger(facts Facts, rules Rules) *ledger {
	rules.MaxListed = cmp.Or(rules.MaxListed, 20)
	rules.InFlight = cmp.Or(rules.InFlight, 16)
	return &ledger{
		facts: facts, rules: rules,
		found:   findings{rules: rules, counts: make(map[Kind]int), waived: make(map[Kind]int)},
		agents:  make(map[string]agent),
		swept:   make(map[sweptKey][]span),
		unsure:  make(map[int32]bool),
		records: make(map[Shard][]recordWrite), recordUnknown: make(map[string][]recordWrite),
		leases: make(map[string]*leaseLife), copyWrites: make(map[string][]int64), keys: make(map[shownKey]int64),
		clusters: make(map[string]*clusterLog), heard: make(map[string]map[int64]bool), suspects: make(map[string]*suspect),
		users: make(map[string]bool), reads: math.MaxInt64,
	}
}

func (l *ledger) agent(e *Event) agent {
	if !e.Ours() {
		return agent{}
	}
	if a, ok := l.agents[e.UserAgent]; ok {
		return a
	}
	a := agent{Agent: audit.ParseAgent(e.UserAgent)}
	if a.Fenced {
		a.shard, a.replica, a.under = l.shards.id(a.Shard), l.replicas.id(a.Incarnation), a.Shard.String()
	}
	l.agents[e.UserAgent] = a
	return a
}

// era returns the number of restores of a cluster up to that time.
func (l *ledger) era(cluster string, us int64) (n int) {
	for _, r := range l.facts.Restores {
		if r.Cluster == cluster && r.Time.UnixMicro() <= us {
			n++
		}
	}
	return n
}

// cluster returns the name of the log of the cluster that has a name.
func (l *ledger) cluster(name string) string { return cmp.Or(l.facts.Names[name], name) }

// overlap reports whether two shards share a slot, whatever the names of their cluster.
func (l *ledger) overlap(a, b Shard) bool {
	a.Cluster, b.Cluster = l.cluster(a.Cluster), l.cluster(b.Cluster)
	return a.Overlaps(b)
}

func (l *ledger) add(e *Event) {
	if l.from == 0 || e.Received < l.from {
		l.from = e.Received
	}
	l.to = max(l.to, e.Completed)
	l.hear(e)
	l.users[e.User] = l.users[e.User] || e.Ours()
	if !e.Ended() {
		return
	}
	if !e.Mutating() {
		return
	}
	a := l.agent(e)
	l.attribute(e, a)
	l.noteVersion(e, a)
	l.link(e, a)
	switch {
	case e.IsShardRecord():
		l.addRecord(e, a)
	case e.IsLease():
		l.addLease(e, a)
	case e.Resource == "events":
		// Events aren't judged: nothing depends on who wrote one.
	default:
		l.addObject(e, a)
	}
}

// addObject handles a request for an object of a workload cluster.
func (l *ledger) addObject(e *Event, a agent) {
	at := l.place(e)
	if e.Name == "" {
		// A generated name, which level Metadata doesn't show, or a collection: each counts as an object of its own.
		e.Name = fmt.Sprintf("(unnamed, %s:%d)", e.File, e.Line)
		if e.IsPod() && e.Verb == "create" && a.Fenced && e.Outcome() == audit.Committed {
			l.found.add(Violation{
				Kind: UnnamedPod, Shard: a.Shard.String(), Detail: "a Pod was made with a generated name",
				First: l.lineAt(at, e.Received, e.Verb),
			})
		}
	}
	switch {
	case e.IsAt() && e.Outcome() == audit.Committed:
		l.addAt(e, a, at)
	case e.IsPod():
		l.addPod(e, a, at)
	case e.IsDeployment() && e.Subresource == "" && e.Body != nil && e.Body.Replicated && !a.Tenure:
		l.changes = append(l.changes, change{e.Cluster, e.Body.UID, e.Completed})
	}
	l.learnKey(e)
	if !a.Fenced {
		return
	}
	w := write{
		span: span{e.Received, e.Completed}, epoch: a.Epoch, place: at,
		shard: a.shard, replica: a.replica, object: l.objects.id(l.objectOf(e)), verb: e.Verb,
	}
	switch e.Outcome() {
	case audit.Committed:
		if e.Body != nil {
			w.rv = e.Body.ResourceVersion
		}
		l.writes = append(l.writes, w)
		l.checkShard(e, a, w)
	case audit.Rejected:
		l.fenced.add(e)
	case audit.Unknown:
		l.stats.Unknown++
	}
}

func (l *ledger) objectOf(e *Event) objectID {
	return objectID{e.Cluster, e.Group, e.Resource, e.Namespace, e.Name, l.era(e.Cluster, e.Received)}
}

func (l *ledger) place(e *Event) place {
	return place{l.files.id(e.File), int32(e.Line)}
}

func (f *Fenced) add(e *Event) {
	switch {
	case e.Code == 409 && e.Verb == "create":
		f.AlreadyExists++
	case e.Code == 409:
		f.Conflict++
	case e.Code == 422 && strings.Contains(e.Message, "epoch"):
		f.EpochRule++
	case e.Code == 422:
		f.Invalid++
	default:
		f.Other++
	}
}

func (l *ledger) line(w write) *Line {
	return &Line{
		File: l.files.list[w.place.file], Line: int(w.place.line), Time: instant(w.start),
		Verb: w.verb, Epoch: w.epoch, Replica: l.replicas.list[w.replica],
	}
}

func (l *ledger) lineAt(p place, us int64, verb string) *Line {
	return &Line{File: l.files.list[p.file], Line: int(p.line), Time: instant(us), Verb: verb}
}

// findings counts all violations and keeps the first ones of each kind.
type findings struct {
	rules  Rules
	counts map[Kind]int
	waived map[Kind]int
	listed []Violation
}

func (f *findings) add(v Violation) {
	if _, ok := f.rules.waives(v.Kind); ok {
		f.waived[v.Kind]++
		return
	}
	f.counts[v.Kind]++
	if f.counts[v.Kind] <= f.rules.MaxListed {
		v.Invariant = invariantOf(v.Kind)
		f.listed = append(f.listed, v)
	}
}

// ordered sorts the listed violations by kind, in the order of kinds.
func (f *findings) ordered() []Violation {
	out := []Violation{}
	for _, k := range kinds {
		f.counts[k.kind] += 0 // a count of zero is reported, too
		for _, v := range f.listed {
			if v.Kind == k.kind {
				out = append(out, v)
			}
		}
	}
	return out
}
