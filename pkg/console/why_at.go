package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// overdueAfter is how late an At may be before that needs a reason.
const overdueAfter = 5 * time.Second

// progress says how far the At is.
func (w *why) progress(q Question) {
	obj := q.At
	if isStrangers(q) {
		q.Pod = nil
	}
	st := obj.Status
	l := w.link("phase", "%s", cmp.Or(st.Phase, cnatv1alpha1.AtPending))
	if st.Restarts > 0 {
		l.Value += fmt.Sprintf(", claimed again %s", count(int(st.Restarts), "time"))
	}
	due, err := at.ParseSchedule(obj.Spec.Schedule)
	blocked := meta.FindStatusCondition(st.Conditions, cnatv1alpha1.ConditionBlocked)
	if blocked != nil && obj.Spec.Suspend && blocked.ObservedGeneration < obj.Generation {
		blocked = nil // from before it was suspended: it stays while it matters for the deadline
	}
	if obj.DeletionTimestamp != nil {
		w.deleted(obj)
	}
	switch {
	case st.Phase == cnatv1alpha1.AtDone:
		w.done(obj)
	case obj.DeletionTimestamp != nil && (st.Phase != cnatv1alpha1.AtRunning || q.Pod == nil):
		w.waits = "it is being deleted, so it starts nothing"
	case blocked != nil:
		w.link("blocked", "%s for %s", blocked.Reason,
			age(sinceTime(w.now, blocked.LastTransitionTime.Time))).wrong(blocked.Message,
			cmp.Or(unblocks[blocked.Reason], "the Events of the At tell more"))
	case err != nil:
		w.link("due", "never").wrong(err.Error(), unblocks[at.ReasonInvalidSchedule])
	case st.Phase == cnatv1alpha1.AtRunning:
		w.rights("nothing records how it ends")
		if st.StartTime != nil {
			w.link("started", "%s ago, %s after it was due", age(sinceTime(w.now, st.StartTime.Time)),
				age(sinceTime(st.StartTime.Time, due)))
		}
		w.running(q)
	case obj.Spec.Suspend:
		w.waits = "it is suspended"
		w.link("due", "%s, but spec.suspend is set", due.Format(time.RFC3339))
	default:
		w.pending(due)
	}
}

// unblocks is the way out by the reason of the condition Blocked.
var unblocks = map[string]string{
	at.ReasonInvalidSchedule: "correct spec.schedule",
	at.ReasonPodRefused: "have the namespace's owner allow the Pod, or make the At anew: one that has begun can't be " +
		"changed",
	at.ReasonForeignPod: "delete that Pod, or make the At anew",
	at.ReasonPodTerminating: "bring its node back, or delete the Node object; a finalizer of the Pod is for what set it " +
		"to take off",
}

// deleted says how long an At has been on its way out, and what holds it.
func (w *why) deleted(obj *cnatv1alpha1.At) {
	since := sinceTime(w.now, obj.DeletionTimestamp.Time)
	held := strings.Join(obj.Finalizers, ", ")
	l := w.link("deleted", "%s ago, held by its finalizers: %s", age(since), held)
	if since > seconds(stuckAfter) {
		l.wrong("it stays until its finalizers are taken off: "+held, "see to what set them")
	}
}

// running says how far an At is that has begun.
func (w *why) running(q Question) {
	suspended, st := q.At.Spec.Suspend, q.At.Status
	ended := endOf(q.Pod)
	switch {
	case q.Pod == nil && suspended:
		w.waits = "it has begun and is suspended; no Pod of it is to be seen"
	case q.Pod == nil:
		w.waits = "it has begun; no Pod of it is to be seen"
		if q.PodMissing && st.StartTime != nil && sinceTime(w.now, st.StartTime.Time) > seconds(overdueAfter) {
			w.link("pod", "none").wrong("the At has begun, and its Pod isn't there", "if the links above are whole, its "+
				"cluster refuses the Pod, or its key waits in the holder's queue: the holder's log says why")
		}
	case !ended.IsZero() && sinceTime(w.now, ended) > seconds(overdueAfter):
		w.waits = "its Pod has ended"
		w.link("ended", "%s ago", age(sinceTime(w.now, ended))).wrong("its status doesn't say so",
			"if the links above are whole, its cluster refuses what the holder writes: the holder's log says why")
	case q.Pod.DeletionTimestamp != nil && !at.Ended(q.Pod):
		w.waits = "its Pod is being deleted"
		if !suspended && q.At.DeletionTimestamp == nil {
			w.waits += "; another is made when it is gone"
		}
	case q.Pod.Status.Phase == corev1.PodRunning:
		w.waits = "its Pod runs"
	default:
		w.waits = "its Pod is there"
	}
}

// isStrangers reports whether the Pod that has the name of the At's isn't the At's.
func isStrangers(q Question) bool { return q.Pod != nil && !metav1.IsControlledBy(q.Pod, q.At) }

// pod describes the Pod.
func (w *why) pod(q Question) {
	pod := q.Pod
	if pod == nil {
		return
	}
	if isStrangers(q) {
		w.link("pod", "%s: another's", pod.Name)
		return
	}
	l := w.link("pod", "%s: %s", pod.Name, pod.Status.Phase)
	if pod.Spec.NodeName != "" {
		l.Value += " on " + pod.Spec.NodeName
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && pod.DeletionTimestamp == nil {
			l.wrong("it isn't scheduled: "+c.Message, "that is between its cluster's scheduler and nodes")
		}
	}
	w.containers(l, pod)
}

// containers says which container keeps a Pod from its end.
func (w *why) containers(l *Link, pod *corev1.Pod) {
	var others []string // that run on after the command
	over := false
	// Of a Pod that runs, only native sidecars are started again, and they don't keep it from its end.
	pending := pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil
	for i, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		own, waiting, end := s.Name == at.ContainerName, s.State.Waiting, s.State.Terminated
		switch {
		case pending && waiting != nil && !slices.Contains(onTheWay, waiting.Reason) && own:
			l.wrong("its container doesn't start: "+waiting.Reason+": "+waiting.Message,
				"an At that has begun can't be changed: make it anew with what is missing")
		case pending && waiting != nil && !slices.Contains(onTheWay, waiting.Reason):
			l.wrong("container "+s.Name+" doesn't start: "+waiting.Reason+": "+waiting.Message,
				"a webhook has added it: correct that, and delete the Pod, which is made again")
		case own && end != nil:
			over = sinceTime(w.now, end.FinishedAt.Time) > seconds(stuckAfter)
		case i >= len(pod.Status.InitContainerStatuses) && end == nil:
			others = append(others, s.Name)
		}
	}
	if over && len(others) > 0 && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
		l.wrong("its command has ended, and the Pod doesn't end: it has "+strings.Join(others, ", ")+" too",
			"a webhook has added that: keep it off these Pods, have it add a native sidecar, or set activeDeadlineSeconds")
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

// endOf returns when the last container of a Pod ended, if that end is the At's; zero if it isn't, or the Pod doesn't
// say.
func endOf(pod *corev1.Pod) (last time.Time) {
	if pod == nil || !at.Ended(pod) {
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
