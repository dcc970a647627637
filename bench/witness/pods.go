package witness

import (
	"cmp"
	"slices"

	"github.com/tenure-dev/tenure/bench/audit"
)

// podFact is one request to create or delete a Pod.
type podFact struct {
	span
	object   int32
	place    place
	rv       uint64
	ownerAt  string
	ownerUID string
	created  bool
	deleted  bool
	// maybe says that the outcome isn't known.
	maybe bool
	ours  bool
	under string // the shard that it was sent under
}

// podLife is one Pod from its creation to the first request that deleted it.
type podLife struct {
	podFact
	gone int64 // when that request arrived, never if there was none
}

func (l *ledger) addPod(e *Event, a agent, at place) {
	out := e.Outcome()
	if out == audit.Rejected {
		return
	}
	f := podFact{span: span{e.Received, e.Completed}, place: at, maybe: out == audit.Unknown, ours: a.Tenure,
		under: a.under}
	switch {
	case e.Verb == "deletecollection":
		key := sweptKey{e.Cluster, "pods", e.Namespace, l.era(e.Cluster, e.Received)}
		l.swept[key] = append(l.swept[key], f.span)
		return
	case e.Verb == "delete" && e.Subresource == "", e.Verb == "create" && e.Subresource == "eviction":
		f.deleted = true
	case e.Verb == "create" && e.Subresource == "":
		f.created = true
	default:
		return
	}
	if e.Body != nil {
		f.ownerAt, f.ownerUID, f.rv = e.Body.OwnerAt, e.Body.OwnerUID, e.Body.ResourceVersion
	}
	// Pods of other controllers may be named like ours: only a body proves that they belong to an At.
	if f.created && !a.Tenure && f.ownerAt == "" {
		return
	}
	name := l.objectOf(e)
	name.group = ""
	f.object = l.objects.id(name)
	l.podFacts = append(l.podFacts, f)
}

// settlePods gives each Pod to its At's life.
func (l *ledger) settlePods(all map[int32][]*atLife, keyOf []int32) {
	slices.SortStableFunc(l.podFacts, func(a, b podFact) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.start, b.start))
	})
	for facts := range runs(l.podFacts, func(a, b podFact) bool { return a.object == b.object }) {
		l.settlePod(all[keyOf[facts[0].object]], facts)
	}
}

func (l *ledger) settlePod(lives []*atLife, facts []podFact) {
	o := l.objects.list[facts[0].object]
	for _, f := range facts {
		if !f.created {
			continue
		}
		life := lifeAt(lives, f.start, f.ownerUID)
		if life == nil {
			continue
		}
		if f.maybe {
			life.maybePod = true
			continue
		}
		pod := podLife{podFact: f, gone: never}
		for _, d := range facts {
			// One that overlaps the create may have met an earlier Pod of the same name; in doubt it met this one,
			// so that no alarm rests on it.
			if d.deleted && d.end > f.start {
				pod.gone = min(pod.gone, d.start)
			}
		}
		for _, s := range l.swept[sweptKey{o.cluster, "pods", o.namespace, o.era}] {
			if s.end > f.start {
				pod.gone = min(pod.gone, s.start)
			}
		}
		life.pods = append(life.pods, pod)
	}
}

// judgePods checks I7 on one At.
func (l *ledger) judgePods(life *atLife, st *AtStats) {
	slices.SortStableFunc(life.pods, func(a, b podLife) int { return cmp.Compare(a.end, b.end) })
	at := l.objects.list[life.object].String()
	lasting := -1
	for i, p := range life.pods {
		due := life.first
		if !l.unsure[life.object] { // otherwise a write of unknown outcome may have changed it
			due = life.earliest(p.start)
		}
		if lasting >= 0 && life.pods[lasting].gone > p.end && p.gone > p.end {
			l.found.add(Violation{
				Kind: DuplicatePod, Object: at,
				Detail: l.podName(p) + " was made while " + l.podName(life.pods[lasting]) + " had not been deleted",
				First:  l.podLine(life.pods[lasting]), Second: l.podLine(p),
			})
		}
		if lasting < 0 || p.gone > life.pods[lasting].gone {
			lasting = i
		}
		l.judgeDone(life, p, st)
		switch {
		case !life.known || life.edited:
			l.found.add(Violation{
				Kind: UnknownAt, Object: at, Detail: l.podName(p) +
					" may be early: when its At was due isn't in the logs: have Ats logged at level RequestResponse",
				Second: l.podLine(p),
			})
		case p.start+l.rules.Skew.Microseconds() < due:
			l.found.add(Violation{
				Kind: EarlyPod, Object: at, Detail: l.podName(p) + " was asked for before the At was due at " + stamp(due),
				Second: l.podLine(p),
			})
		}
	}
}

func (l *ledger) judgeDone(life *atLife, p podLife, st *AtStats) {
	d := life.done
	if d == nil || p.end < d.start {
		return
	}
	// Both versions come from one store, so they order the commits even where the requests overlap.
	versioned := p.rv != 0 && d.rv != 0
	switch {
	case p.start > d.end || (versioned && p.rv > d.rv):
		l.found.add(Violation{
			Kind: PodAfterDone, Object: l.objects.list[life.object].String(),
			Detail: l.podName(p) + " was made after the At was DONE",
			First:  l.lineAt(d.place, d.start, "DONE"), Second: l.podLine(p),
		})
	case !versioned:
		st.DoneConcurrent++
	}
}

func (l *ledger) podName(p podLife) string { return "Pod " + l.objects.list[p.object].name }

func (l *ledger) podLine(p podLife) *Line { return l.lineAt(p.place, p.start, "create") }
