package witness

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// model is a correct Tenure, as seen by its API servers: it writes the log of a run that keeps every invariant.
type model struct {
	rng    *rand.Rand
	now    int64
	rv     uint64
	events []Event
	shards []*modelShard
	ats    []*modelAt
	names  int
}

type modelShard struct {
	ShardState
	rv   uint64
	busy int64 // until when a write may be in flight
}

type modelAt struct {
	cluster, name, uid, pod string
	due                     int64
	step                    int
	busy                    int64
	rv                      uint64
}

const modelStart = int64(1_790_000_000_000_000)

func newModel(seed uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), now: modelStart}
	for _, s := range []Shard{{Cluster: "west", Prefix: "0"}, {Cluster: "west", Prefix: "1"}, {Cluster: "east"}} {
		m.shards = append(m.shards, m.newShard(s, 0))
		m.grant(m.shards[len(m.shards)-1], protocol.Join)
	}
	return m
}

// run takes random steps, then lets everything that is due finish.
func (m *model) run(steps int) {
	for range steps {
		switch m.rng.IntN(10) {
		case 0:
			s := m.live()[m.rng.IntN(len(m.live()))]
			m.grant(s, []protocol.MoveKind{protocol.Planned, protocol.Crash, protocol.Exit}[m.rng.IntN(3)])
		case 1:
			m.refused()
		case 2, 3:
			m.newAt()
		case 4:
			if m.rng.IntN(8) == 0 {
				m.split()
			}
		default:
			m.serve(m.rng.IntN(len(m.ats) + 1))
		}
		m.now += int64(m.rng.IntN(20_000))
	}
	m.now += 10_000_000
	for range 4 {
		for i := range m.ats {
			m.serve(i)
		}
		m.now += 100_000
	}
}

func (m *model) live() []*modelShard {
	return slices.DeleteFunc(slices.Clone(m.shards), func(s *modelShard) bool { return s.Phase == "Retired" })
}

func (m *model) agent(s *modelShard) string {
	return fmt.Sprintf("tenure/v1 (shard=%s/%s; epoch=%d; incarnation=%s)", s.Cluster, s.Prefix, s.Epoch, s.Holder)
}

// emit logs a request that starts no sooner than asked.
func (m *model) emit(e Event, start int64) *Event {
	e.Received = max(m.now, start)
	e.Completed = e.Received + 200 + int64(m.rng.IntN(4000))
	if e.Code == 0 {
		e.Code = 200
	}
	e.File, e.Line, e.Stage = e.Cluster+"/audit.log", len(m.events)+1, "ResponseComplete"
	m.events = append(m.events, e)
	return &m.events[len(m.events)-1]
}

// record writes a shard's record and waits for the answer.
func (m *model) record(s *modelShard, verb, writer string) {
	m.rv++
	state := s.ShardState
	e := m.emit(Event{
		Cluster: "home", Verb: verb, Group: audit.ShardGroup, Resource: "shards", Subresource: "status", Namespace: "tenure",
		Name: s.Cluster + "-" + s.Prefix, UserAgent: coordinating(writer), Base: s.rv,
		Body: &Body{ResourceVersion: m.rv, Shard: &state},
	}, s.busy+1)
	s.rv, m.now = m.rv, e.Completed+1
}

func coordinating(replica string) string {
	return "tenure/v1 (coordination; incarnation=" + replica + ")"
}

// lease writes an incarnation's Lease.
func (m *model) lease(name, verb, writer, sealedBy string) {
	m.rv++
	e := m.emit(Event{
		Cluster: "home", Verb: verb, Group: audit.LeaseGroup, Resource: "leases", Namespace: "tenure", Name: name,
		UserAgent: coordinating(writer), Body: &Body{ResourceVersion: m.rv, SealedBy: sealedBy},
	}, 0)
	m.now = e.Completed + 1
}

func (m *model) newShard(id Shard, epoch uint64) *modelShard {
	s := &modelShard{ShardState: ShardState{Cluster: id.Cluster, Prefix: id.Prefix, Epoch: epoch, Phase: "Pending"}}
	m.record(s, "create", "boss")
	return s
}

// grant moves a shard: assignee and warm only in a planned move, then the handoff.
func (m *model) grant(s *modelShard, kind protocol.MoveKind) {
	from := s.Holder
	m.names++
	to := fmt.Sprintf("r%d-%04x", m.rng.IntN(3), m.names)
	m.lease(to, "create", to, "")
	if kind == protocol.Crash && from != "" {
		m.now = max(m.now, s.busy)
		m.lease(from, "patch", "boss", "boss")
	}
	if kind != protocol.Crash {
		s.Assignee = to
		m.record(s, "update", "boss")
		s.Warm = to
		m.record(s, "update", to)
	}
	writer := from
	if kind == protocol.Crash || kind == protocol.Join {
		writer = "boss"
	}
	s.Holder, s.Warm, s.Phase, s.Assignee, s.Move = to, "", "Held", to, string(kind)
	s.Epoch++
	m.record(s, "update", writer)
}

func (m *model) split() {
	for _, s := range m.live() {
		if s.Prefix == "1" {
			if from := s.Holder; from != "" {
				s.Holder, s.Assignee = "", ""
				m.record(s, "update", from)
			}
			s.Phase = "Retired"
			m.record(s, "update", "boss")
			for _, bit := range []string{"0", "1"} {
				child := m.newShard(Shard{Cluster: s.Cluster, Prefix: s.Prefix + bit}, s.Epoch)
				m.shards = append(m.shards, child)
				m.grant(child, protocol.Join)
			}
			return
		}
	}
}

func (m *model) newAt() {
	m.names++
	at := &modelAt{
		cluster: []string{"west", "east"}[m.rng.IntN(2)], name: fmt.Sprintf("at-%d", m.names),
		uid: fmt.Sprintf("%016x", m.rng.Uint64()), due: m.now/1e6*1e6 + int64(m.rng.IntN(3))*1e6,
	}
	at.pod = at.name + "-0123456789"
	m.ats = append(m.ats, at)
	e := m.emit(m.atEvent(at, "create", "", "load", ""), 0)
	e.Code = 201
	at.busy = e.Completed
}

func (m *model) atEvent(at *modelAt, verb, sub, agent, phase string) Event {
	m.rv++
	base := at.rv
	at.rv = m.rv
	return Event{
		Cluster: at.cluster, Verb: verb, Group: audit.AtGroup, Resource: "ats", Subresource: sub, Namespace: "ns",
		Name:      at.name,
		UserAgent: agent, Base: base, Body: &Body{UID: at.uid, ResourceVersion: m.rv,
			Schedule: instant(at.due).Format("2006-01-02T15:04:05Z"), Phase: phase},
	}
}

func (m *model) podEvent(at *modelAt, verb, agent string) Event {
	code := 200
	if verb == "create" {
		code = 201
	}
	return Event{
		Cluster: at.cluster, Verb: verb, Resource: "pods", Namespace: "ns", Name: at.pod, UserAgent: agent, Code: code,
		Body: &Body{},
	}
}

// serve takes one At one step further, if it is due. Steps of different Ats overlap in time.
func (m *model) serve(i int) {
	if i >= len(m.ats) || m.ats[i].due > m.now || m.ats[i].step > 3 {
		return
	}
	at := m.ats[i]
	var holder *modelShard
	for _, s := range m.live() {
		if (Shard{Cluster: s.Cluster, Prefix: s.Prefix}).Holds(at.uid) && s.Cluster == at.cluster {
			holder = s
		}
	}
	var e Event
	switch at.step {
	case 0:
		e = m.podEvent(at, "create", m.agent(holder))
	case 1:
		e = m.atEvent(at, "update", "status", m.agent(holder), "RUNNING")
	case 2:
		e = m.atEvent(at, "update", "status", m.agent(holder), "DONE")
	case 3:
		e = m.podEvent(at, "delete", "gc")
	}
	at.step++
	at.busy = m.emit(e, at.busy+1).Completed
	holder.busy = max(holder.busy, at.busy)
}

// refused is the late write of an earlier tenure, stopped by the server.
func (m *model) refused() {
	if len(m.ats) == 0 {
		return
	}
	at := m.ats[m.rng.IntN(len(m.ats))]
	rv := at.rv
	e := m.atEvent(at, "update", "status", "tenure/v1 (shard="+at.cluster+"/; epoch=1; incarnation=old-1)", "")
	at.rv = rv
	e.Code, e.Body = 409, nil
	m.emit(e, 0)
}
