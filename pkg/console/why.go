package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// overdueAfter is how late an At may be before that needs a reason.
const overdueAfter = 5 * time.Second

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
			w.progress(q.At, q.Pod)
			w.pod(q.Pod)
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

// progress says how far the object is.
func (w *why) progress(obj *cnatv1alpha1.At, pod *corev1.Pod) {
	st := obj.Status
	l := w.link("phase", "%s", cmp.Or(st.Phase, cnatv1alpha1.AtPending))
	if st.Restarts > 0 {
		l.Value += fmt.Sprintf(", made again %s", count(int(st.Restarts), "time"))
	}
	due, err := at.ParseSchedule(obj.Spec.Schedule)
	blocked := meta.FindStatusCondition(st.Conditions, cnatv1alpha1.ConditionBlocked)
	if blocked != nil && obj.Spec.Suspend && blocked.ObservedGeneration < obj.Generation {
		blocked = nil // from before it was suspended: it stays while it matters for the deadline
	}
	switch {
	case st.Phase == cnatv1alpha1.AtDone:
		w.done(obj)
	case obj.DeletionTimestamp != nil && st.Phase != cnatv1alpha1.AtRunning:
		w.waits = "it is being deleted, so it starts nothing"
		w.link("deleted", "%s ago, held by its finalizers: %s", age(sinceTime(w.now, obj.DeletionTimestamp.Time)),
			strings.Join(obj.Finalizers, ", "))
	case blocked != nil:
		w.link("blocked", "%s for %s", blocked.Reason,
			age(sinceTime(w.now, blocked.LastTransitionTime.Time))).wrong(blocked.Message, "the Events of the At tell more")
	case err != nil:
		w.link("due", "never").wrong(err.Error(), "correct spec.schedule")
	case st.Phase == cnatv1alpha1.AtRunning:
		w.rights("nothing records how it ends")
		ended := endOf(pod)
		switch {
		case pod != nil && pod.Status.Phase == corev1.PodRunning:
			w.waits = "its Pod runs"
		case !ended.IsZero() && sinceTime(w.now, ended) > seconds(overdueAfter):
			w.waits = "its Pod has ended"
			w.link("ended", "%s ago", age(sinceTime(w.now, ended))).wrong("its status doesn't say so",
				"if the links above are whole, its cluster refuses what the holder writes: the holder's log says why")
		case pod != nil:
			w.waits = "its Pod is there"
		case obj.Spec.Suspend:
			w.waits = "it has begun and is suspended; no Pod of it is to be seen"
		default:
			w.waits = "it has begun; no Pod of it is to be seen"
		}
		if st.StartTime != nil {
			w.link("started", "%s ago, %s after it was due", age(sinceTime(w.now, st.StartTime.Time)),
				age(sinceTime(st.StartTime.Time, due)))
		}
	case obj.Spec.Suspend:
		w.waits = "it is suspended"
		w.link("due", "%s, but spec.suspend is set", due.Format(time.RFC3339))
	default:
		w.pending(due)
	}
}

// pod describes the Pod.
func (w *why) pod(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	l := w.link("pod", "%s: %s", pod.Name, pod.Status.Phase)
	if pod.Spec.NodeName != "" {
		l.Value += " on " + pod.Spec.NodeName
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			l.wrong("it isn't scheduled: "+c.Message, "that is between its cluster's scheduler and nodes")
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if s := pod.Status.ContainerStatuses[i].State.Waiting; s != nil && !slices.Contains(onTheWay, s.Reason) {
			l.wrong("its container doesn't start: "+s.Reason+": "+s.Message,
				"an At that has begun can't be changed: make it anew with what is missing")
		}
	}
}

// onTheWay are the reasons for waiting of a container that is about to start.
var onTheWay = []string{"", "ContainerCreating", "PodInitializing"}

// trace names the trace to look at.
func (w *why) trace(obj *cnatv1alpha1.At) {
	if w.TraceID = obj.Status.TraceID; w.TraceID != "" {
		w.link("trace", "%s (of the last traced reconcile that wrote the status)", w.TraceID)
	}
}

func (w *why) pending(due time.Time) {
	if at := showable(due); !at.IsZero() {
		w.Due = &at
	}
	w.rights("it never starts")
	late := sinceTime(w.now, due)
	if late < 0 {
		w.waits = "its time comes in " + age(-late)
		w.link("due", "%s, in %s", due.Format(time.RFC3339), age(-late))
		return
	}
	w.waits = "it is due now"
	l := w.link("due", "%s, %s ago", due.Format(time.RFC3339), age(late))
	if late > seconds(overdueAfter) {
		l.wrong("it is overdue", "if the links above are whole, its key waits in the holder's queue, or its cluster "+
			"refuses what the holder writes (the holder's log says so): see "+AlertWaiting+" in the runbook")
	}
}

// rights adds a link if the fleet may not run Ats in the namespace.
func (w *why) rights(consequence string) {
	if !w.barred {
		return
	}
	do := fmt.Sprintf("tenure cluster add %s with a --role that includes ats, and --namespaces that include it", w.Cluster)
	if w.Cluster == kubeconfig.HomeName {
		do = "make the At in another cluster: from home, replicas only copy Deployments"
	}
	w.link("rights", "none in namespace %s", w.Namespace).wrong("the fleet may not run Ats there, so "+consequence, do)
}

// endOf returns when the last container of a Pod that has ended did; zero if it hasn't, or doesn't say.
func endOf(pod *corev1.Pod) (last time.Time) {
	if pod == nil || pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return last
	}
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	return last
}

func (w *why) done(obj *cnatv1alpha1.At) {
	st := obj.Status
	w.waits = "it is done"
	l := w.link("result", "%s", st.Result)
	for _, kind := range []string{cnatv1alpha1.ConditionComplete, cnatv1alpha1.ConditionFailed} {
		if c := meta.FindStatusCondition(st.Conditions, kind); c != nil {
			l.Value += ": " + c.Message
		}
	}
	if st.FinishTime != nil {
		w.link("finished", "%s ago", age(sinceTime(w.now, st.FinishTime.Time)))
	}
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
