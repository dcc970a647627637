package shardtest

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// request is a write on its way, or the fresh read that follows one that didn't commit.
type request struct {
	number  int32
	node    int
	life    uint32
	id      ownership.Incarnation
	effect  ownership.Effect
	seq     uint64
	sentAt  time.Duration
	outcome ownership.Outcome
	version ownership.Version
	read    bool              // it reads
	refuse  bool              // it is refused whatever the record says
	silent  bool              // its answer is lost
	deaf    bool              // the read that follows it fails
	given   bool              // its process will find out that no answer comes
	asked   ownership.Instant // when it was sent, if it reads
	found   ownership.Input
}

// answerTimeout is how long a process waits for an answer.
const answerTimeout = leaseDuration / 8

// send puts a write on the wire.
func (w *world) send(n *node, e ownership.Effect) {
	_, read := e.(ownership.FindLease)
	req := w.newRequest(request{
		node: n.index, life: n.life, id: n.id, effect: e, seq: about(e).seq, sentAt: w.now, read: read,
	})
	n.sent++
	at := w.now + w.leg()
	if f := n.struckBy(e); f != nil && !w.undying(e, f) {
		w.Faults[f.Kind]++
		if w.out != nil {
			w.say(n, "! %v", f.Kind)
		}
		switch f.Kind {
		case LoseRequest:
			w.giveUp(req)
			return
		case LoseReply:
			req.silent = true
		case Late:
			req.silent = true
			at = min(w.now+answerTimeout+f.For, max(w.schedule.Faulty, at))
			w.giveUp(req)
		case Repeat:
			w.push(event{at: min(at+f.For, max(w.schedule.Faulty, at)), kind: evArrive, node: -1, req: req.number, gen: 1})
		case Refuse:
			req.refuse = true
		case ReadFails:
			req.refuse, req.deaf = true, true
		}
	}
	w.push(event{at: at, kind: evArrive, node: -1, req: req.number})
}

// undying tells a creation that could land after a user deleted the record that it made. The protocol promises nothing
// then: the store can't tell such a request from a new one.
func (w *world) undying(e ownership.Effect, f *Fault) bool {
	_, creation := e.(ownership.CreateShard)
	return creation && w.schedule.meddled() && (f.Kind == Late || f.Kind == Repeat)
}

// struckBy returns the fault that is due for the request that is being sent, if there is one.
func (n *node) struckBy(e ownership.Effect) *Fault {
	if n.w.script {
		return n.struck(e)
	}
	if n.w.now >= n.w.schedule.Faulty {
		return nil
	}
	for _, f := range n.strikes {
		if f.N == n.sent {
			return f
		}
	}
	return nil
}

// reaches reports which way messages pass between a process and the store now.
func (w *world) reaches(n *node) (there, back bool) {
	if w.now < w.awayTill {
		return false, false
	}
	if w.now < n.cutTill {
		return n.cutKind == 2, n.cutKind == 1
	}
	return true, true
}

// arrive lets a request reach the store.
func (w *world) arrive(req *request, again bool) {
	n := &w.nodes[req.node]
	there, back := w.reaches(n)
	if !there {
		if !again {
			w.giveUp(req)
		}
		return
	}
	if req.read {
		req.found = w.snapshot(req)
	} else {
		outcome, version := ownership.Rejected, ownership.Version(0)
		if !req.refuse {
			outcome, version = w.apply(req)
		}
		if outcome == ownership.Committed {
			w.Writes++
			w.pumpAll()
		}
		if w.out != nil {
			w.narrateArrival(req, outcome, again)
		}
		if again {
			return
		}
		req.outcome, req.version = outcome, version
	}
	if req.silent || !back {
		w.giveUp(req)
		return
	}
	w.push(event{at: w.now + w.leg(), kind: evReply, node: int8(req.node), life: req.life, req: req.number})
}

// giveUp lets the process find out that no answer comes.
func (w *world) giveUp(req *request) {
	if req.given {
		return
	}
	req.given = true
	w.push(event{at: req.sentAt + answerTimeout, kind: evTimeout, node: int8(req.node), life: req.life, req: req.number})
}

// answered is the driver's handling of an answer: where the write didn't commit, it reads the record afresh if it can,
// and feeds that first.
func (n *node) answered(req *request) {
	w := n.w
	life := n.life
	if req.read {
		if req.found != nil {
			n.step(req.found)
		}
		if n.life == life && req.seq != 0 {
			n.feed(req)
		}
		return
	}
	if req.seq == 0 {
		return // nobody waits for it
	}
	if req.outcome == ownership.Committed {
		n.feed(req)
		return
	}
	read := w.newRequest(*req)
	read.read, read.silent, read.given, read.sentAt = true, false, false, w.now
	read.asked = n.clock.read(w.now)
	if req.deaf {
		w.giveUp(read)
		return
	}
	w.push(event{at: w.now + w.leg(), kind: evArrive, node: -1, req: read.number})
}

func (n *node) feed(req *request) {
	n.step(ownership.Written{Seq: req.seq, Outcome: req.outcome, Version: req.version})
}

func (w *world) pumpAll() {
	for i := range w.nodes {
		for s := range streams {
			w.nodes[i].pump(s)
		}
	}
}

// subject is what an effect is about.
type subject struct {
	seq   uint64 // the number under which it is to be answered, 0 for none
	lease ownership.Incarnation
	shard keyspace.ShardID
	what  string // in words
}

// about says what an effect that becomes a request is about: a lease, a shard's record or, if neither, the
// coordinator's.
func about(e ownership.Effect) subject {
	switch e := e.(type) {
	case ownership.WriteLease:
		return subject{seq: e.Seq, lease: e.Lease.ID, what: "lease "}
	case ownership.SealLease:
		return subject{seq: e.Seq, lease: e.ID, what: "seal of "}
	case ownership.FindLease:
		return subject{lease: e.ID, what: "reading of "}
	case ownership.ForgetLease:
		return subject{lease: e.ID, what: "removal of lease "}
	case ownership.WriteLead:
		return subject{seq: e.Seq, what: "coordinator"}
	case ownership.CreateShard:
		return subject{seq: e.Seq, shard: e.ID, what: "new record "}
	case ownership.WriteAssignee:
		return subject{seq: e.Seq, shard: e.ID, what: "plan of "}
	case ownership.WriteShard:
		return subject{seq: e.Seq, shard: e.Shard.ID, what: e.Kind.String() + " of "}
	}
	return subject{what: "removal of its lease"}
}

// String names the record and what is done to it.
func (s subject) String() string {
	if s.lease != "" {
		return s.what + string(s.lease)
	}
	if s.shard != (keyspace.ShardID{}) {
		return s.what + s.shard.String()
	}
	return s.what
}
