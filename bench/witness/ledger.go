package witness

import (
	"fmt"
	"iter"
	"strings"
)

// Judge reads events, in any order, and says which invariants they break. It is pure: the same events, facts and
// rules give the same report.
func Judge(events iter.Seq[Event], facts Facts, rules Rules) *Report {
	l := newLedger(facts, rules)
	for e := range events {
		l.add(&e)
	}
	return l.judge()
}

// ledger keeps a small record per write, so that order within the logs doesn't matter: an audit log is ordered by
// when answers were written, not by when changes were committed.
type ledger struct {
	facts Facts
	rules Rules
	found findings

	files    table[string]
	objects  table[object0]
	shards   table[Shard]
	replicas table[string]
	agents   map[string]agent

	writes   []write
	refused  []write
	atFacts  []atFact
	podFacts []podFact
	// swept are deletions of whole collections, of Pods or of Ats: the log doesn't say which objects they met.
	swept   map[sweptKey][]span
	records map[Shard][]recordWrite
	// recordUnknown holds, by the record's name, when writes arrived whose outcome the log doesn't tell.
	recordUnknown map[string][]int64
	leases        map[string]leaseLife
	coords        []coordWrite

	stats  WriteStats
	fenced Fenced
	calls  map[string]int
	// atReads counts our reads of Ats and Pods.
	atReads        int
	recordRefused  int
	recordBodiless int
	from, to       int64
}

// object0 identifies an object within all clusters.
type object0 struct {
	cluster, group, resource, namespace, name string
}

func (o object0) String() string {
	return o.cluster + " " + o.resource + " " + o.namespace + "/" + o.name
}

type sweptKey struct{ cluster, resource, namespace string }

// span is a request's life; what it committed, it committed within.
type span struct{ start, end int64 }

type place struct{ file, line int32 }

// write is one committed, or refused, request that carried a shard and an epoch.
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

// agent is an Agent with its parts numbered.
type agent struct {
	Agent
	shard, replica int32
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

func newLedger(facts Facts, rules Rules) *ledger {
	if rules.MaxListed == 0 {
		rules.MaxListed = 20
	}
	return &ledger{
		facts: facts, rules: rules,
		found:   findings{max: rules.MaxListed, counts: make(map[Kind]int)},
		agents:  make(map[string]agent),
		swept:   make(map[sweptKey][]span),
		records: make(map[Shard][]recordWrite), recordUnknown: make(map[string][]int64),
		leases: make(map[string]leaseLife),
		calls:  make(map[string]int),
	}
}

func (l *ledger) agent(ua string) agent {
	if !strings.HasPrefix(ua, "tenure/") {
		return agent{}
	}
	if a, ok := l.agents[ua]; ok {
		return a
	}
	a := agent{Agent: ParseAgent(ua)}
	if a.Fenced {
		a.shard, a.replica = l.shards.id(a.Shard), l.replicas.id(a.Replica)
	}
	l.agents[ua] = a
	return a
}

func (l *ledger) add(e *Event) {
	if l.from == 0 || e.Received < l.from {
		l.from = e.Received
	}
	l.to = max(l.to, e.Completed)
	a := l.agent(e.UserAgent)
	if a.Tenure {
		l.count(e)
	}
	if !e.mutating() {
		return
	}
	switch {
	case e.isShardRecord():
		l.addRecord(e, a)
	case e.isLease():
		l.addLease(e, a)
	case e.Resource == "events":
		// Events are told, not owned: nothing rests on who wrote one.
	default:
		l.addObject(e, a)
	}
}

// addObject takes a request to an object of a workload cluster.
func (l *ledger) addObject(e *Event, a agent) {
	at := l.place(e)
	if e.Name == "" {
		// A generated name, which level Metadata doesn't tell, or a collection: an object of its own each time.
		e.Name = fmt.Sprintf("(unnamed, %s:%d)", e.File, e.Line)
		if e.isPod() && e.Verb == "create" && a.Fenced && e.outcome() == committed {
			l.found.add(Violation{
				Kind: UnnamedPod, Shard: a.Shard.String(), Detail: "a Pod was made with a generated name",
				First: l.lineAt(at, e.Received, e.Verb),
			})
		}
	}
	if e.isAt() && e.outcome() == committed {
		l.addAt(e, a, at)
	}
	if e.isPod() {
		l.addPod(e, a, at)
	}
	if !a.Tenure {
		return
	}
	if !a.Fenced {
		if e.outcome() == committed && owned(e) {
			l.stats.Unattributed++
		}
		return
	}
	w := write{
		span: span{e.Received, e.Completed}, epoch: a.Epoch, place: at,
		shard: a.shard, replica: a.replica, object: l.objects.id(objectOf(e)), verb: e.Verb,
	}
	switch e.outcome() {
	case committed:
		if e.Body != nil {
			w.rv = e.Body.ResourceVersion
		}
		l.writes = append(l.writes, w)
		l.checkShard(e, a, w)
	case rejected:
		l.refused = append(l.refused, w)
		l.fenced.add(e)
	case unknown:
		l.stats.Unknown++
	}
}

// owned says whether the object is of a kind that our controllers own shard by shard.
func owned(e *Event) bool {
	return e.isAt() || e.isPod() || e.Resource == "namespaces" || e.Resource == "deployments"
}

func objectOf(e *Event) object0 {
	return object0{e.Cluster, e.Group, e.Resource, e.Namespace, e.Name}
}

func (l *ledger) place(e *Event) place {
	return place{l.files.id(e.File), int32(e.Line)}
}

// checkShard judges a write to an At by the At's UID, where the log has it.
func (l *ledger) checkShard(e *Event, a agent, w write) {
	if !e.isAt() {
		return
	}
	uid := e.UID
	if e.Body != nil && e.Body.UID != "" {
		uid = e.Body.UID
	}
	if uid == "" || (a.Shard.Cluster == e.Cluster && a.Shard.Holds(uid)) {
		return
	}
	l.found.add(Violation{
		Kind: WrongShard, Object: objectOf(e).String(), Shard: a.Shard.String(),
		Detail: "the At's UID " + uid + " isn't in the writer's shard", First: l.line(w),
	})
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

// count keeps the tally of our requests that the server answered with success.
func (l *ledger) count(e *Event) {
	if e.outcome() != committed || e.DryRun || e.Resource == "" {
		return
	}
	what := e.Resource
	if e.Subresource != "" {
		what += "/" + e.Subresource
	}
	l.calls[e.Verb+" "+what]++
	if !e.mutating() && (e.isAt() || e.isPod()) {
		l.atReads++
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

// findings counts all violations and keeps the first of each kind.
type findings struct {
	max    int
	counts map[Kind]int
	listed []Violation
}

func (f *findings) add(v Violation) {
	f.counts[v.Kind]++
	if f.counts[v.Kind] > f.max {
		return
	}
	for _, k := range kinds {
		if k.kind == v.Kind {
			v.Invariant = k.invariant
		}
	}
	f.listed = append(f.listed, v)
}
