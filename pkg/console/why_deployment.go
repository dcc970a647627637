package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/pkg/replication"
)

// copied reports whether a Deployment is itself a copy, and says so: the holder of its source works on it.
func (w *why) copied(d *appsv1.Deployment) bool {
	if d == nil || replication.IsSource(d) { // somebody may have made a source from a copy's file
		return false
	}
	source := d.Annotations[replication.AnnotationSource]
	if source == "" {
		return false
	}
	w.link("copy", "of %s (CLUSTER/NAMESPACE/NAME)", source)
	w.waits = "it is the copy of " + source + ": ask about that one"
	return true
}

// replicated says how the copies of a Deployment are.
func (w *why) replicated(source *appsv1.Deployment) {
	switch {
	case source.Labels[replication.LabelReplicate] == "true":
		w.link("copies", "in %s", cmp.Or(source.Annotations[replication.AnnotationClusters],
			"no cluster: it has no annotation "+replication.AnnotationClusters))
	case slices.Contains(source.Finalizers, replication.Finalizer):
		w.link("copies", "not asked for any more")
	default:
		l := w.link("copies", "not asked for")
		l.wrong("it has no label "+replication.LabelReplicate+": \"true\", so it isn't copied anywhere",
			"label it if it should be")
		return
	}
	if w.barred {
		w.link("rights", "none in namespace %s", w.Namespace).wrong(
			"the fleet may not write to Deployments there, so nothing new is copied or deleted",
			fmt.Sprintf("if replicas run with --deployment-source=%s: tenure cluster add %[1]s with a --role that includes "+
				"deployment-source, and --namespaces that include it", w.Cluster))
	}
	c := replication.Condition(source)
	if c == nil {
		if !w.barred && sinceTime(w.now, source.CreationTimestamp.Time) > seconds(time.Minute) {
			w.link("condition", "none").wrong("no replica has looked at it, or may write to it",
				"unless it was labelled just now: replicas copy from the cluster of --deployment-source alone. If its Events "+
					"say "+replication.ReasonRecordRefused+", see that in the runbook")
			return
		}
		w.waits = "nobody has looked at it yet"
		return
	}
	l := w.link("condition", "%s for %s: %s", c.Reason, age(sinceTime(w.now, c.LastTransitionTime.Time)), c.Message)
	switch {
	case c.Status == corev1.ConditionTrue:
		w.waits = "all its copies are as they should be"
	case c.Reason == replication.ReasonProgressing:
		w.waits = "its copies are under way"
	case c.Reason == replication.ReasonCleaningUp:
		w.waits = "its copies are being deleted"
		since := c.LastUpdateTime.Time // the condition is written only when it changes
		if since.Before(c.LastTransitionTime.Time) {
			since = c.LastTransitionTime.Time
		}
		if sinceTime(w.now, since) > seconds(stuckAfter) {
			l.wrong("copies aren't deleted, and it stays until they are",
				`see CleaningUp under "A Deployment isn't copied" in the runbook`)
		}
	case c.Reason == replication.ReasonStalled && source.Spec.Paused:
		l.wrong(c.Reason+": it is paused", fmt.Sprintf("kubectl rollout resume deployment/%s -n %s, if that wasn't meant",
			source.Name, source.Namespace))
	case c.Reason == replication.ReasonStalled:
		l.wrong(c.Reason, "the Events of its Pods, in the clusters that the condition names, tell more")
	default:
		l.wrong(c.Reason, "the Events of the Deployment tell more")
	}
}
