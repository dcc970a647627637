package shardtest

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// request is a write or a read on its way.
type request struct {
	at       int32 // its index in the arena
	node     int
	life     uint32
	id       ownership.Incarnation
	number   uint64 // the driver's number for the answer; 0 if it wants none
	effect   ownership.Effect
	of       driver.Subject
	sentAt   time.Duration
	patience time.Duration // how long its process waits for an answer
	answer   driver.Written
	read     bool // it is a read
	refuse   bool // it is refused whatever the record says
	silent   bool // its answer is lost
	given    bool // the event by which its process learns that no answer comes is queued
	found    ownership.Input
	fault    *Fault // the one that strikes it
}

// send puts a request on the wire.
func (w *world) send(n *node, r request) {
	r.node, r.life, r.id, r.sentAt = n.index, n.life, n.id, w.now
	req := w.newRequest(r)
	if r.of.All && w.now < n.listlessTill {
		w.felt(n.listlessFault)
		w.giveUp(req)
		return
	}
	if r.read && n.deaf != nil && n.deaf.of == r.of {
		w.felt(n.deaf.fault)
		n.deaf = nil
		w.giveUp(req)
		return
	}
	n.sent++
	at := w.now + w.leg()
	if w.now < w.slowTill && at < w.schedule.Faulty && !w.undying(req) {
		w.felt(w.slowFault)
		at = min(at+w.slowBy, w.schedule.Faulty)
	}
	if f := n.struckBy(req); f != nil && (f.Kind != Late && f.Kind != Repeat || !w.undying(req)) {
		req.fault = f
		if w.out != nil {
			w.say(n, "! %v", f.Kind)
		}
		switch f.Kind {
		case LoseRequest:
			if there, _, _ := w.reaches(n); there {
				w.felt(f)
			}
			w.giveUp(req)
			return
		case LoseReply:
			req.silent = true
		case Late:
			req.silent = true
			at = min(w.now+req.patience+f.For, max(w.schedule.Faulty, at))
		case Repeat:
			w.push(event{at: min(at+f.For, max(w.schedule.Faulty, at)), kind: evArrive, node: -1, req: req.at, n: 1})
		case Refuse:
			req.refuse = true
		case ReadFails:
			req.refuse, n.deaf = true, req
		}
	}
	if at-req.sentAt >= req.patience {
		w.giveUp(req)
	}
	w.push(event{at: at, kind: evArrive, node: -1, req: req.at})
}

// refusal is how a store refuses writes.
type refusal int

const (
	overloaded refusal = iota // half of them, with a Retry-After of a second
	forbidden                 // all
	failing                   // half of them fail
)

// carryOut lets the store carry a write out, or refuse it.
func (w *world) carryOut(req *request) (answer driver.Written) {
	refused := !req.refuse && w.refusing()
	switch {
	case req.refuse, refused && w.refuses == forbidden:
		return driver.Written{Outcome: ownership.Rejected, Cause: ownership.Refused}
	case !refused:
	case w.refuses == overloaded:
		return driver.Written{Outcome: ownership.Unknown, Cause: ownership.Overloaded, After: time.Second}
	default:
		return driver.Written{Outcome: ownership.Unknown, Cause: ownership.Failed}
	}
	answer.Outcome, answer.Version = w.apply(req)
	if answer.Outcome == ownership.Rejected {
		answer.Cause = ownership.Conflict
		if e, ok := req.effect.(ownership.WriteShard); ok {
			if old := w.store.shard(e.Shard.ID); old != nil && old.Version == e.Shard.Version {
				answer.Cause = ownership.Refused // it is retired
			}
		}
	}
	return answer
}

// refusing reports whether the store refuses the present write. It refuses half of them, or all if it forbids them; in
// a story, all.
func (w *world) refusing() bool {
	if w.now >= w.refusesTill || w.refuses != forbidden && w.upTo(2) == 0 {
		return false
	}
	w.felt(w.refusesFault)
	return true
}

// undying reports whether the request creates a record in a schedule in which records are deleted. If it arrived
// late or twice, it could create the record again after the deletion. The protocol promises nothing then: the store
// can't tell such a request from a new one.
func (w *world) undying(req *request) bool {
	_, creation := req.effect.(ownership.CreateShard)
	return creation && w.schedule.meddled()
}

// struckBy returns the fault that strikes the request that is being sent; nil if there is none.
func (n *node) struckBy(req *request) *Fault {
	if n.w.script {
		return n.struck(req)
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

// reaches reports whether messages now pass from a process to the store (there), and from the store to it (back), and
// which fault stops them.
func (w *world) reaches(n *node) (there, back bool, by *Fault) {
	if w.now < w.awayTill {
		return false, false, w.awayFault
	}
	if w.now < n.cutTill {
		return n.cutKind == 2, n.cutKind == 1, n.cutFault
	}
	return true, true, nil
}

// shows reports whether the fault that strikes a request has an effect when the request reaches the store, and its
// answer would pass (back) or not. Faults that stop it earlier, or strike the read after it, are counted there.
func (req *request) shows(again, back bool) bool {
	switch req.fault.Kind {
	case LoseReply:
		return back && !req.given && req.number != 0
	case Late:
		return req.given && !req.read
	case Repeat:
		return again
	case Refuse:
		return !req.read
	}
	return false
}

// arrive lets a request reach the store.
func (w *world) arrive(req *request, again bool) {
	n := &w.nodes[req.node]
	if again && req.read {
		return // a repeated read changes nothing, and the first has been answered or given up
	}
	there, back, by := w.reaches(n)
	if !there {
		w.felt(by)
	}
	if !there || req.sentAt < w.restoredAt {
		if !again {
			w.giveUp(req)
		}
		return
	}
	if req.fault != nil && req.shows(again, back) {
		w.felt(req.fault)
	}
	if req.read {
		req.found = w.snapshot(req.of)
	} else {
		answer := w.carryOut(req)
		if answer.Outcome == ownership.Committed {
			w.Writes++
			w.pumpAll()
		}
		if w.out != nil {
			w.narrateArrival(req, answer.Outcome, again)
		}
		if again {
			return
		}
		req.answer = answer
	}
	if req.silent || req.given || !back {
		if !req.silent && !req.given && req.number != 0 {
			w.felt(by)
		}
		w.giveUp(req)
		return
	}
	w.push(event{at: w.now + w.leg(), kind: evReply, node: int8(req.node), life: req.life, req: req.at})
}

// giveUp queues the event by which the process learns, at the end of its patience, that no answer comes.
func (w *world) giveUp(req *request) {
	if req.given {
		return
	}
	req.given = true
	w.push(event{at: req.sentAt + req.patience, kind: evTimeout, node: int8(req.node), life: req.life, req: req.at})
}

// answered gives the driver the answer to a request or, if late, reports that none came in time.
func (n *node) answered(req *request, late bool) {
	switch {
	case req.number == 0: // the driver wants no answer
	case req.read && late:
		n.handle(driver.Found{Number: req.number})
	case req.read:
		n.handle(driver.Found{Number: req.number, What: req.found})
	case late:
		n.handle(driver.Written{Number: req.number, Outcome: ownership.Unknown})
	default:
		answer := req.answer
		answer.Number = req.number
		if _, renewal := req.effect.(ownership.WriteLease); renewal &&
			answer.Outcome == ownership.Committed && req.id == n.id {
			n.renewed, n.joined = answer.Version, true
		}
		n.handle(answer)
	}
}

func (w *world) pumpAll() {
	for i := range w.nodes {
		for s := range streams {
			w.nodes[i].pump(s)
		}
	}
}

// String names the record and what is done to it.
func (req *request) String() string {
	what := "removal of its lease"
	switch e := req.effect.(type) {
	case nil:
		what = "reading of "
		if req.of.Layout != "" {
			what = "reading of layout "
		}
	case ownership.WriteLease:
		what = "lease "
	case ownership.SealLease:
		what = "seal of "
	case ownership.ForgetLease:
		what = "removal of lease "
	case ownership.WriteLead:
		what = "coordinator"
	case ownership.WriteLayout:
		what = "layout of "
	case ownership.CreateShard:
		what = "new record "
	case ownership.WriteAssignee:
		what = "plan of "
	case ownership.WriteShard:
		what = e.Kind.String() + " of "
	}
	if req.of.All {
		return what + "all records"
	}
	if req.of.Layout != "" {
		return what + string(req.of.Layout)
	}
	if req.of.Lease != "" {
		return what + string(req.of.Lease)
	}
	if req.of.Shard != (keyspace.ShardID{}) {
		return what + req.of.Shard.String()
	}
	return what
}
