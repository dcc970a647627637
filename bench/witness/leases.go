package witness

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/bench/audit"
)

// leaseLife is what the log shows about one incarnation's Lease.
type leaseLife struct {
	bodied bool // some write of it is logged with its body
	// since is when the first request for it arrived, and made says that it was the one that creates it. Otherwise the
	// log begins later.
	since   int64
	made    bool
	leaving bool
	unfit   []unfitness
	// over is the request that ended the incarnation: the seal, or its own deletion of the Lease.
	over  *span
	ended leaseWrite // the same request
	// seals are the requests that may have sealed the Lease, whatever their outcome.
	seals []leaseWrite
	// renewed is the last change that the incarnation made to its Lease itself, and unsealed the last after which the
	// Lease wasn't sealed.
	renewed, unsealed leaseWrite
}

// leaseWrite is a write to a Lease.
type leaseWrite struct {
	start int64
	rv    uint64 // the version that it made, or at least one below; 0 if no line shows either
	era   int
	place place
	verb  string
}

// before reports whether the write may have been there before a write to a record. A restore of home undoes what isn't
// in the backup. That has no version above those after the restore.
func (s leaseWrite) before(w recordWrite, skew int64) bool {
	return s.start <= w.start+skew && (s.era == w.era || w.rv == 0 || s.rv < w.rv)
}

// unfitness is a renewal that says of which clusters the incarnation takes no shard, in the form of the annotation.
type unfitness struct {
	said     int64
	clusters string
}

// of reports whether it says so of a cluster.
func (u unfitness) of(cluster string) bool {
	list, butThese := strings.CutPrefix(u.clusters, "!")
	for text := range strings.SplitSeq(list, ",") {
		encoded, keeps := strings.CutSuffix(text, "+")
		if name, err := url.PathUnescape(encoded); err == nil && name == cluster {
			return keeps || !butThese
		}
	}
	return butThese
}

// coordWrite is one committed coordination write of a replica.
type coordWrite struct {
	replica string
	at      int64
	// stir marks writes that end the steady state around them: a moving shard, a replica that joins or leaves.
	stir bool
}

func (l *ledger) addLease(e *Event, a agent) {
	out := e.Outcome()
	if out == audit.Rejected || !a.Tenure && (e.Body == nil || e.Body.SealedBy == "") {
		return
	}
	life := l.leases[e.Name]
	if life == nil {
		life = &leaseLife{since: never}
		l.leases[e.Name] = life
	}
	if e.Received < life.since {
		life.since, life.made = e.Received, e.Verb == "create"
	}
	who := a.Incarnation
	if who == "" {
		who = e.Name
	}
	seals, told := false, false
	w := leaseWrite{e.Received, 0, l.era(e.Cluster, e.Received), l.place(e), e.Verb}
	if b := e.Body; b != nil {
		w.rv = b.ResourceVersion
		told = !b.Requested
		life.bodied = life.bodied || told
		life.leaving = life.leaving || b.Leaving
		seals = b.SealedBy != ""
		if b.Unfit != "" {
			life.unfit = append(life.unfit, unfitness{e.Received, b.Unfit})
		}
	}
	if seals {
		life.seals = append(life.seals, w)
	}
	if out == audit.Committed && (e.Verb == "update" || e.Verb == "patch") && a.Incarnation == e.Name {
		if w.start > life.renewed.start {
			life.renewed = w
		}
		if told && !seals && w.start > life.unsealed.start {
			life.unsealed = w
		}
	}
	dropped := e.Verb == "delete" && who == e.Name
	if out == audit.Committed && (seals || dropped) && (life.over == nil || e.Received < life.over.start) {
		life.over, life.ended = &span{e.Received, e.Completed}, w
	}
	if out == audit.Committed && a.Tenure {
		l.coords = append(l.coords, coordWrite{replica: who, at: e.Completed, stir: e.Verb == "create" || e.Verb == "delete"})
	}
}

// judgeSeals checks all writes of an incarnation, also those to its Lease, against the end of its Lease.
func (l *ledger) judgeSeals() {
	skew := l.rules.Skew.Microseconds()
	late := func(replica string, start int64) *leaseLife {
		if life := l.leases[replica]; life != nil && life.over != nil && start > life.over.end+skew {
			return life
		}
		return nil
	}
	report := func(life *leaseLife, replica, object, shard string, second *Line) {
		l.found.add(Violation{
			Kind: WriteAfterSeal, Object: object, Shard: shard, Detail: replica + " wrote after its Lease had ended",
			First: l.lineAt(life.ended.place, life.ended.start, life.ended.verb), Second: second,
		})
	}
	for _, w := range l.writes {
		if life := late(l.replicas.list[w.replica], w.start); life != nil {
			report(life, l.replicas.list[w.replica], l.objects.list[w.object].String(), l.shards.list[w.shard].String(),
				l.line(w))
		}
	}
	for replica, life := range l.leases {
		if w := life.renewed; late(replica, w.start) != nil {
			report(life, replica, "lease "+replica, "", l.lineAt(w.place, w.start, w.verb))
		}
	}
	for shard, ws := range l.records {
		for _, w := range ws {
			if life := late(w.writer, w.start); life != nil {
				report(life, w.writer, "record "+w.name, shard.String(), l.recordLine(w))
			}
		}
	}
}

// givesUp reports whether, before a write was answered, an incarnation's Lease may have ended, or it may have said,
// since a time, that it can't serve a cluster.
func (l *ledger) givesUp(incarnation, cluster string, since int64, w recordWrite) bool {
	life := l.leases[incarnation]
	return life != nil && (life.over != nil && life.over.start < w.end ||
		slices.ContainsFunc(life.unfit, func(u unfitness) bool {
			return u.said >= since && u.said < w.end && u.of(cluster)
		}))
}

// sealedBefore reports whether an incarnation's Lease may have been sealed before a write. A seal whose answer was lost
// may be the one that was committed.
func (l *ledger) sealedBefore(incarnation string, w recordWrite) bool {
	life := l.leases[incarnation]
	return life != nil && slices.ContainsFunc(life.seals, func(s leaseWrite) bool {
		return s.before(w, l.rules.Skew.Microseconds())
	})
}

// judgeTaken checks that a holder had been sealed before another replica replaced it, or cleared it from the record.
func (l *ledger) judgeTaken(shard Shard, from string, held, w recordWrite) {
	life := l.leases[from]
	if life == nil || !life.bodied {
		return // its Lease ended before the log began, or isn't logged: see NoLeases and HolderWithoutLease
	}
	skew, alive := l.rules.Skew.Microseconds(), life.unsealed
	sealed := life.over != nil && life.ended.before(w, skew)
	// A restore of home undoes a seal.
	renewed := !sealed && alive.start > w.end+skew && alive.era == w.era
	if l.sealedBefore(from, w) && !renewed {
		return
	}
	detail, second := "no seal of its Lease is in the logs", l.recordLine(held)
	switch {
	case renewed: // so a seal without an answer, if there was one, wasn't committed
		detail, second = from+" renewed its Lease afterwards", l.lineAt(alive.place, alive.start, alive.verb)
	case life.over != nil:
		detail, second = "its Lease was not sealed then", l.lineAt(life.ended.place, life.ended.start, life.ended.verb)
	}
	l.found.add(Violation{
		Kind: ClaimBeforeSeal, Shard: shard.String(), First: l.recordLine(w), Second: second,
		Detail: fmt.Sprintf("%s took the shard from %s at epoch %d, and %s", w.writer, from, w.state.Epoch, detail),
	})
}

// judgeJoined checks that every holder had a Lease when it was given a shard: without one nobody could tell that it has
// ended. One that a record names when the log begins may have had its Lease before.
func (l *ledger) judgeJoined(m *moves) {
	if len(l.leases) == 0 {
		return // see NoLeases
	}
	for _, g := range m.grants {
		life, detail := l.leases[g.state.Holder], "no line shows a Lease of it"
		switch {
		case m.before[g.state.Holder], life != nil && (!life.made || life.since <= g.end+l.rules.Skew.Microseconds()):
			continue
		case life != nil:
			detail = "its Lease was created at " + stamp(life.since)
		}
		l.found.add(Violation{
			Kind: HolderWithoutLease, Shard: g.shard.String(), First: l.recordLine(g.recordWrite),
			Detail: fmt.Sprintf("%s got the shard at epoch %d, and %s", g.state.Holder, g.state.Epoch, detail),
		})
	}
}
