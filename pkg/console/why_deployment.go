package console

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/pkg/replication"
)

// replicated says how the copies of a Deployment are.
func (w *why) replicated(source *appsv1.Deployment) {
	switch {
	case source.Labels[replication.LabelReplicate] == "true":
		w.link("copies", "in %s", orNowhere(source.Annotations[replication.AnnotationClusters]))
	case slices.Contains(source.Finalizers, replication.Finalizer):
		w.link("copies", "not asked for any more")
	default:
		l := w.link("copies", "not asked for")
		l.wrong("it has no label "+replication.LabelReplicate+": \"true\", so it isn't copied anywhere",
			"label it if it should be")
		return
	}
	i := slices.IndexFunc(source.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == replication.ConditionReplicated
	})
	if i < 0 {
		w.waits = "nobody has looked at it yet"
		return
	}
	c := source.Status.Conditions[i]
	l := w.link("condition", "%s for %s: %s", c.Reason, age(sinceTime(w.now, c.LastTransitionTime.Time)), c.Message)
	switch {
	case c.Status == corev1.ConditionTrue:
		w.waits = "all its copies are as they should be"
	case c.Reason == replication.ReasonProgressing || c.Reason == replication.ReasonCleaningUp:
		w.waits = "its copies are under way"
	case c.Reason == replication.ReasonStalled:
		l.wrong(c.Reason, "the Events of its Pods, in the clusters that the condition names, tell more")
	default:
		l.wrong(c.Reason, "the Events of the Deployment tell more")
	}
}

func orNowhere(clusters string) string {
	if clusters == "" {
		return "no cluster: it has no annotation " + replication.AnnotationClusters
	}
	return clusters
}
