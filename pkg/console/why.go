package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Why is the chain from an object to the replica that works on it. It is the answer of `tenure why`.
type Why struct {
	Object    string               `json:"object"`
	Namespace string               `json:"namespace"`
	Cluster   keyspace.ClusterName `json:"cluster"`
	// Verdict is the answer in a sentence.
	Verdict string `json:"verdict"`
	Healthy bool   `json:"healthy"`
	Links   []Link `json:"links"`
	// Due is when it is next due, where that is known; TraceID that of the last traced
	// reconcile that wrote its status.
	Due     *time.Time `json:"due,omitempty"`
	TraceID string     `json:"traceID,omitempty"`
	// Unread is what couldn't be read, and so isn't judged.
	Unread []string `json:"unread,omitempty"`
}

// Link is one step of the chain.
type Link struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Trouble says what is wrong with it, and Do what can be done; both "" if nothing is.
	Trouble string `json:"trouble,omitempty"`
	Do      string `json:"do,omitempty"`
}

// Explain follows the chain: object, hash, slot, shard, record, holder, Lease; and says what the object waits for. It
// is pure.
func Explain(q Question) Why {
	w := &why{Why: Why{Object: q.Object.String(), Namespace: q.Object.Namespace, Cluster: q.Object.Cluster},
		now: cmp.Or(q.Read, q.Snapshot.Now), barred: q.Barred}
	v := surveyOf(q.Snapshot)
	w.Unread = slices.Concat(q.Snapshot.Unread, v.members.unread)
	w.cluster(v)
	if obj := w.object(q); obj != nil && !w.copied(q.Deployment) {
		e := w.shard(v, obj)
		if e != nil {
			w.holder(v, e)
		}
		if q.At != nil {
			w.epoch(q.At, e)
			w.progress(q)
			w.pod(q)
			w.trace(q.At)
		} else {
			w.replicated(q.Deployment)
		}
	}
	w.judge()
	return w.Why
}

// why is an explanation under way.
type why struct {
	Why
	now    time.Time
	holds  string // the replica, for the verdict
	waits  string // what the object waits for, for the verdict
	absent bool
	barred bool // as in Question
}

func (w *why) link(name, format string, args ...any) *Link {
	w.Links = append(w.Links, Link{Name: name, Value: fmt.Sprintf(format, args...)})
	return &w.Links[len(w.Links)-1]
}

func (l *Link) wrong(trouble, do string) { l.Trouble, l.Do = trouble, do }

func (w *why) cluster(v *survey) {
	for _, c := range v.clusters {
		if c.Name != w.Cluster {
			continue
		}
		l := w.link("cluster", "%s", c.Name)
		switch c.Reason {
		case "":
		case clusterhealth.ReasonUsable:
			l.Value += ", which answers"
		case ReasonNotFromHere:
			l.Value += ", which can't be reached from here; replicas serve all of it"
		default:
			l.wrong(c.Reason+": "+c.Note, "see "+c.entry()+" in the runbook")
		}
		if c.Removed {
			l.wrong("it isn't registered any more, so nobody works on its objects", "register it again if that wasn't meant")
		}
	}
}

// object adds a link about the object, and returns the object; nil if there is nothing to follow.
func (w *why) object(q Question) client.Object {
	var obj client.Object
	switch {
	case q.Unreadable != "":
		l := w.link("object", "unknown")
		l.wrong("it can't be read: "+q.Unreadable, "see whether the cluster answers, and whether you may read there")
		return nil
	case q.At != nil:
		obj = q.At
	case q.Deployment != nil:
		obj = q.Deployment
	default:
		l := w.link("object", "there is none")
		l.wrong("no such object", "see -n and --cluster")
		w.absent = true
		return nil
	}
	w.link("object", "uid %s, made %s ago", obj.GetUID(), age(sinceTime(w.now, obj.GetCreationTimestamp().Time)))
	return obj
}

// shard finds the record of the object's shard.
func (w *why) shard(v *survey, obj client.Object) *entry {
	hash := keyspace.Hash(string(obj.GetUID()))
	slot := keyspace.SlotOf(string(obj.GetUID()))
	w.link("hash", "FNV-1a-64(uid) = %016x, so slot %s", hash, slot)
	covers := v.bySlot[w.Cluster]
	if covers == nil || len(covers[slot]) == 0 {
		l := w.link("shard", "none")
		l.wrong(fmt.Sprintf("no record covers slot %s of cluster %s", slot, w.Cluster),
			"the coordinator makes what is missing: see tenure status")
		return nil
	}
	e := covers[slot][0]
	first, last := e.ID.Prefix.Slots()
	l := w.link("shard", "%s, slots %s to %s, %s", e.ID, first, last, count(int(e.Objects), "object"))
	if len(covers[slot]) > 1 {
		l.wrong("records overlap: "+covers[slot][1].ID.String()+" covers the slot too",
			"delete the one that was made by hand, at once")
	}
	l = w.link("record", "%s/%s: %s, epoch %d", v.Namespace, e.raw.Name, e.raw.Status.Phase, e.Epoch)
	if e.moving() {
		m := v.move(e)
		l.Value += fmt.Sprintf(", on its way to %s (%s)", m.To, m.Stage)
		if m.AskedAgo.Duration() > stuckAfter {
			l.wrong("asked for "+age(m.AskedAgo)+" ago", "see "+AlertStuck+" in the runbook")
		}
	}
	return e
}

// holder adds links about the shard's holder and its Lease.
func (w *why) holder(v *survey, e *entry) {
	if e.holder == nil {
		l := w.link("holder", "nobody")
		l.wrong("nobody holds "+e.ID.String(), "a live replica takes it within the lease duration: see tenure status")
		return
	}
	l := w.link("holder", "%s", e.holder.Incarnation)
	if since := e.raw.Status.HeldSince; since != nil {
		l.Value += fmt.Sprintf(" for %s", age(sinceTime(w.now, since.Time)))
	}
	if m := e.raw.Status.LastMove; m != nil && m.From != "" {
		l.Value += fmt.Sprintf(" (%s, from %s)", m.Kind, m.From)
	}
	r := e.holder
	switch r.State {
	case Missing:
		w.link("lease", "none").wrong("the holder has no Lease: it is dead",
			"a live replica takes the shard within the lease duration: see tenure status")
	case Sealed:
		w.link("lease", "sealed").wrong("the holder was declared dead",
			"a live replica takes the shard at once: see tenure status")
	case Quiet:
		l := w.link("lease", "not renewed for %s of %s%s", age(r.RenewedAgo), age(r.LeaseDuration), byWhom(*r))
		l.wrong("the holder is dead, or can't write to the home cluster",
			"if it stays so, its peers take over; see tenure status")
	default:
		w.link("lease", "%s, renewed %s ago of %s%s", r.State, age(r.RenewedAgo), age(r.LeaseDuration), byWhom(*r))
		w.holds = r.Name
		w.waiting(v, r)
	}
}

// waiting adds links about how the cluster answers the holder, and about what the holder can't serve there or waits for
// it.
func (w *why) waiting(v *survey, r *Replica) {
	for _, said := range r.Clusters {
		if said.Cluster != w.Cluster {
			continue
		}
		if said.Stuck > 0 {
			held := 0
			for _, e := range v.entries {
				if e.Holder == r.Incarnation && e.ID.Cluster == w.Cluster {
					held++
				}
			}
			l := w.link("service", "%s can't serve or watch %d of the %s that it holds there, for %s", r.Name,
				min(held, said.Stuck), count(held, "shard"), age(Seconds(said.StuckSeconds)))
			if said.Stuck >= held { // which ones isn't said
				l.wrong("the holder can't list or watch some kinds, or can't use the cluster",
					"see "+AlertNotServed+" in the runbook")
			}
		}
		if inspect.Worse(said.State, protocol.ClusterClosed) < 0 {
			l := w.link("answers", "%s at %s: %s", said.State, r.Name, said.Cause)
			if said.State != protocol.ClusterLimited {
				l.wrong("the cluster serves nothing to the holder now, so keys are put off for seconds at a time",
					"see "+AlertLimited+" in the runbook")
			}
		}
		l := w.link("queue", "%d ready, %d with workers, longest %s", said.Ready, said.Running,
			age(Seconds(said.WaitSeconds)))
		if said.WaitingWrites > 0 {
			l.Value += fmt.Sprintf("; %s of the holder wait for their turn", count(said.WaitingWrites, "write"))
		}
		if detail := waitsOf(&said); detail != "" {
			l.Value += "; " + detail
		}
	}
}

// epoch adds a link if the object shows a later epoch than the record.
func (w *why) epoch(obj *cnatv1alpha1.At, e *entry) {
	if e == nil || obj.Status.Epoch <= int64(e.Epoch) {
		return
	}
	l := w.link("epoch", "%d on the object, %d on the record", obj.Status.Epoch, e.Epoch)
	l.wrong("the record is older than the object, so no replica makes any write of its status",
		`was a clock set, and home restored? See "`+EntryLaterEpoch+`" in the runbook`)
}

// judge sums the chain up.
func (w *why) judge() {
	var broken *Link
	for i := range w.Links {
		if w.Links[i].Trouble != "" && (broken == nil || broken.Name == "cluster") {
			broken = &w.Links[i] // a cluster that doesn't answer explains less than what comes after it
		}
	}
	who := ""
	if w.holds != "" {
		who = w.holds + " has it; "
	}
	switch {
	case broken == nil:
		w.Healthy = true
		w.Verdict = who + w.waits
	case w.absent:
		w.Verdict = "no such object"
	default:
		w.Verdict = who + broken.Name + ": " + broken.Trouble
	}
}
