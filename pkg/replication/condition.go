package replication

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/text"
)

// ConditionReplicated is the condition of a source: True when every target has the source's current generation,
// available.
const ConditionReplicated = appsv1.DeploymentConditionType("Replicated")

// Reasons of the condition and of events.
const (
	ReasonReplicated        = "Replicated"
	ReasonProgressing       = "Progressing"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonNoTargets         = "NoTargets"
	ReasonForeign           = "ForeignDeployment"
	ReasonContested         = "Contested"
	ReasonRefused           = "CopyRefused"
	ReasonNotTarget         = "NamespaceNotTarget"
	ReasonNotAllowed        = "PodsNotAllowed"
	ReasonForbidden         = "NamespaceForbidden"
	ReasonAway              = "ClusterAway"
	ReasonStalled           = "RolloutStalled"
	ReasonCleaningUp        = "CleaningUp"
	ReasonRepaired          = "DriftRepaired"
	ReasonRecordRefused     = "RecordRefused"
)

// copyState is the state of a copy.
type copyState int

// States, the worst last.
const (
	// stateGone: there is no copy, and none is wanted.
	stateGone copyState = iota
	// stateAvailable: as wanted, and rolled out.
	stateAvailable
	// stateProgressing: as wanted, and not rolled out yet; or it couldn't be looked at, for a reason that isn't the
	// cluster's.
	stateProgressing
	// stateLeaving: being deleted.
	stateLeaving
	// stateStalled: as wanted, and its rollout hasn't got on within its progressDeadlineSeconds.
	stateStalled
	// stateAway: the cluster doesn't answer, or isn't known (yet).
	stateAway
	// stateNotTarget: the namespace is missing there, or isn't open to copies.
	stateNotTarget
	// stateNotAllowed: its Pods need more than the namespace there allows to copies.
	stateNotAllowed
	// stateRefused: the API server there refused it, or failed to carry it out.
	stateRefused
	// stateContested: somebody changes it back after each repair.
	stateContested
	// stateForeign: another Deployment has its name.
	stateForeign
)

var reasons = map[copyState]string{
	stateGone: ReasonCleaningUp, stateAvailable: ReasonReplicated, stateProgressing: ReasonProgressing,
	stateLeaving: ReasonProgressing, stateStalled: ReasonStalled, stateAway: ReasonAway, stateNotTarget: ReasonNotTarget,
	stateNotAllowed: ReasonNotAllowed, stateRefused: ReasonRefused, stateContested: ReasonContested,
	stateForeign: ReasonForeign,
}

// outcome is the state of one copy at the end of a reconcile.
type outcome struct {
	Cluster multicluster.ClusterName
	// Wanted reports whether there should be a copy. Left says that one that isn't wanted is left as it is.
	Wanted, Left   bool
	State          copyState
	Ready, Desired int32
	// Text is one line of at most maxText bytes.
	Text string
	// Pending reports whether the cluster isn't connected yet and may be soon, so its state isn't shown.
	Pending bool
	// After is when to look at the copy again if no event comes first; 0: not needed.
	After time.Duration
}

func (o outcome) String() string {
	name := string(o.Cluster)
	if !o.Wanted && !o.Left {
		name += " (to be removed)"
	}
	switch {
	case o.Text != "":
		return name + ": " + o.Text
	case o.State == stateAvailable, o.State == stateProgressing:
		return fmt.Sprintf("%s %d/%d", name, o.Ready, o.Desired)
	case o.State == stateAway:
		return name + ": away"
	default:
		return name + ": being deleted"
	}
}

const (
	// maxNamed bounds the number of clusters in a message.
	maxNamed = 40
	// maxText bounds the text about one cluster, in bytes.
	maxText = 300
	// maxNames bounds the text about all clusters, in bytes. The rest of the message needs some room.
	maxNames = text.Note - 100
)

// summarize returns the condition that follows from all outcomes.
func summarize(outcomes []outcome, generation int64) appsv1.DeploymentCondition {
	var wanted, ready int
	worst := stateAvailable
	for _, o := range outcomes {
		if !o.Wanted {
			continue
		}
		wanted++
		worst = max(worst, o.State)
		if o.State == stateAvailable {
			ready++
		}
	}
	condition := appsv1.DeploymentCondition{Type: ConditionReplicated, Status: corev1.ConditionFalse,
		Reason: reasons[worst]}
	switch {
	case wanted == 0:
		condition.Reason = ReasonNoTargets
	case ready == wanted:
		condition.Status = corev1.ConditionTrue
	}
	condition.Message = fmt.Sprintf("generation %d: %d of %d clusters available", generation, ready, wanted)
	if named := nameOutcomes(outcomes); named != "" {
		condition.Message = text.Line(condition.Message+"; "+named, text.Note)
	}
	return condition
}

// failing returns the condition of a source whose copies aren't kept up.
func failing(reason, message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{Type: ConditionReplicated, Status: corev1.ConditionFalse, Reason: reason,
		Message: message}
}

// forbidden returns the condition of a source in a forbidden namespace.
func forbidden(namespace string, record record) appsv1.DeploymentCondition {
	return failing(ReasonForbidden, record.staying(fmt.Sprintf("nothing is copied from or to namespace %s in any "+
		"cluster: move the Deployment, or remove its label %s", namespace, LabelReplicate)))
}

// copiesStay ends the message of a condition under which nothing is done although there may be copies. If the list
// of copies is lost later, the message shows that there was one.
const copiesStay = "; the copies that there are stay as they are"

func (r record) staying(message string) string {
	if len(r.Copies) == 0 {
		return text.Line(message, text.Note)
	}
	return text.Line(message, text.Note-len(copiesStay)) + copiesStay
}

// cleaning returns the condition of a source whose copies are being deleted.
func cleaning(outcomes []outcome) appsv1.DeploymentCondition {
	return failing(ReasonCleaningUp, text.Line("deleting the copies; "+nameOutcomes(outcomes), text.Note))
}

// nameOutcomes names the clusters. If there are too many, it names those that need attention first.
func nameOutcomes(outcomes []outcome) string {
	shown := slices.DeleteFunc(slices.Clone(outcomes), func(o outcome) bool { return o.State == stateGone })
	slices.SortFunc(shown, func(a, b outcome) int { return cmp.Compare(a.Cluster, b.Cluster) })
	if all := joinOutcomes(shown); len(shown) <= maxNamed && len(all) <= maxNames {
		return all
	}
	slices.SortStableFunc(shown, func(a, b outcome) int { return cmp.Compare(b.State, a.State) })
	n, size := 0, 0
	for n < len(shown) && n < maxNamed {
		if size += len(shown[n].String()) + len(", "); n > 0 && size > maxNames {
			break
		}
		n++
	}
	return fmt.Sprintf("%s, and %d more", joinOutcomes(shown[:n]), len(shown)-n)
}

func joinOutcomes(outcomes []outcome) string {
	list := make([]string, len(outcomes))
	for i, o := range outcomes {
		list[i] = o.String()
	}
	return strings.Join(list, ", ")
}

// invalid returns the condition of a source with invalid annotations.
func invalid(err error, record record) appsv1.DeploymentCondition {
	return failing(ReasonInvalidAnnotation, record.staying(strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// statusEvery bounds how often mere figures are written, since they change all the time while Pods start.
const statusEvery = time.Second

// update sets the times of a condition that differs from the old one. It returns whether to write it now, or otherwise
// after which delay; (false, 0) means not at all. pause is for how long nothing is written because status and reason
// have changed often.
func update(old, next *appsv1.DeploymentCondition, pause time.Duration, now time.Time) (bool, time.Duration) {
	next.LastUpdateTime = metav1.NewTime(now)
	next.LastTransitionTime = next.LastUpdateTime
	if old == nil {
		return true, 0
	}
	if old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	switch {
	case !flips(old, next) && old.Message == next.Message:
		return false, 0
	case pause > 0:
		return false, pause
	case flips(old, next):
		return true, 0
	}
	// The API keeps whole seconds only, so this may wait a second longer than needed.
	if wait := old.LastUpdateTime.Add(statusEvery).Sub(now); wait > 0 && wait <= statusEvery {
		return false, wait
	}
	return true, 0
}

// flips reports whether a condition gets another status or reason.
func flips(old, next *appsv1.DeploymentCondition) bool {
	return old.Status != next.Status || old.Reason != next.Reason
}

// Condition returns the condition [ConditionReplicated] of a Deployment, nil if it has none.
func Condition(source *appsv1.Deployment) *appsv1.DeploymentCondition {
	for i := range source.Status.Conditions {
		if source.Status.Conditions[i].Type == ConditionReplicated {
			return &source.Status.Conditions[i]
		}
	}
	return nil
}
