package replication

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tenure-dev/tenure/pkg/text"
)

const (
	// cacheGrace is how long the cache may take to show what we wrote.
	cacheGrace = 2 * time.Second
	// hiddenPause is the time between two tries to bring a copy into a cache that doesn't show it: lists or watches may
	// fail there, of which an apply changes nothing. It is also the time between two looks at one that is being deleted.
	hiddenPause = time.Minute
	// someFields is how many fields a message names.
	someFields = 3
)

// copyView is everything that the decision about one copy depends on.
type copyView struct {
	// Source is the value of AnnotationSource on copies of this source, SourceCluster that of AnnotationSourceCluster, and
	// SourceUID that of AnnotationOwnerUID.
	Source                   string
	SourceCluster, SourceUID types.UID
	// Want is the wanted configuration of the copy; nil: there should be no copy.
	Want *forms
	// Copy is the Deployment of the source's name in the target, whether or not it is ours; nil if there is none.
	Copy *appsv1.Deployment
	// Live reports whether Copy comes from the API server, with its managed fields.
	Live bool
	// Cached is the resourceVersion that the cache shows, "" for none. In a Live view it is the one shown before the
	// read.
	Cached string
	Note   copyNote
	// Scalers are the field managers whose spec.replicas is left alone.
	Scalers []string
	Now     time.Time
}

// act is what to do about a copy.
type act int

// Acts.
const (
	// actNone leaves it; step.Outcome says how it stands.
	actNone act = iota
	// actLook asks for a Live view and another decision.
	actLook
	// actCreate applies step.Config if there is no Deployment of that name.
	actCreate
	// actApply applies step.Config if the copy is still as seen.
	actApply
	// actDelete deletes the copy if it is still as seen.
	actDelete
)

// step is the next thing to do about a copy.
type step struct {
	Act    act
	Config *unstructured.Unstructured
	// Drift lists the fields that somebody else changed. It is empty if the source changed.
	Drift   []string
	Outcome outcome
}

// decideCopy returns what a copy needs next. It is pure.
func decideCopy(v copyView) (step, error) {
	ours, sure := v.ours()
	switch {
	case v.Copy != nil && !sure:
		return step{Act: actLook}, nil
	case v.Want == nil:
		return v.remove(ours), nil
	case v.Copy == nil:
		return v.create(), nil
	case !ours:
		return v.foreign(), nil
	case v.Copy.DeletionTimestamp != nil:
		return done(outcome{State: stateLeaving, Text: "the old copy is being deleted", After: hiddenPause}), nil
	case v.behind():
		// The cache doesn't show our last write yet. Its event will come.
		return done(v.progress(cacheGrace)), nil
	}
	return v.keep()
}

func done(o outcome) step { return step{Outcome: o} }

// ours reports whether the Deployment is a copy of the source, and whether that is certain. The name alone proves
// nothing.
func (v copyView) ours() (ours, sure bool) {
	if v.Copy == nil {
		return false, true
	}
	owner, marked := v.Copy.Annotations[AnnotationSource]
	switch {
	case owner == v.Source && !v.fromElsewhere():
		return true, true
	case v.Live && v.madeForSource():
		return true, true
	case marked, v.fromElsewhere():
		return false, v.Live || v.held(v.foreignKey())
	case v.Live:
		// Somebody removed the annotation. The managed fields still show it.
		return appliedByUs(v.Copy.ManagedFields), true
	default:
		return false, v.held(v.foreignKey())
	}
}

// madeForSource reports whether we made the Deployment for this very source, whatever AnnotationSource says: the
// source's cluster may have had another name, or somebody has changed the annotation. The UIDs alone prove nothing,
// since they are copied with the rest when somebody makes a Deployment of a copy's file.
func (v copyView) madeForSource() bool {
	from, owner := v.Copy.Annotations[AnnotationSourceCluster], v.Copy.Annotations[AnnotationOwnerUID]
	return from != "" && from == string(v.SourceCluster) && owner == string(v.SourceUID) &&
		appliedByUs(v.Copy.ManagedFields)
}

// fromElsewhere reports whether the Deployment is a copy from another cluster than the source's, whatever its name.
func (v copyView) fromElsewhere() bool {
	from := v.Copy.Annotations[AnnotationSourceCluster]
	return from != "" && from != string(v.SourceCluster)
}

func (v copyView) remove(ours bool) step {
	switch {
	case v.Copy == nil && !v.Live:
		// Only the API server can say that there is none.
		return step{Act: actLook}
	case v.Copy == nil:
		return done(outcome{State: stateGone})
	case !ours && !v.Live:
		return step{Act: actLook}
	case !ours:
		return done(outcome{State: stateGone, Text: "a Deployment of that name belongs to somebody else"})
	case v.Copy.DeletionTimestamp != nil:
		return done(outcome{State: stateLeaving, Text: "being deleted", After: hiddenPause})
	case v.held(v.refusedKey()):
		return v.onHold(stateRefused)
	}
	return step{Act: actDelete}
}

func (v copyView) create() step {
	switch {
	case v.held(v.foreignKey()):
		return v.onHold(stateForeign)
	case v.held(v.refusedKey()):
		return v.onHold(stateRefused)
	case !v.Live && v.behind():
		return done(outcome{State: stateProgressing, Desired: v.Want.replicas(), After: cacheGrace})
	}
	step := step{Act: actCreate, Config: v.Want.Full}
	if v.Want.is(v.Note.Applied) { // somebody deleted it
		step.Drift = []string{wholeCopy}
		if wait := v.Note.contested(step.Drift, v.Now); wait > 0 {
			return done(outcome{State: stateContested, After: wait, Text: "somebody deletes it each time it is made"})
		}
	}
	return step
}

// wholeCopy stands among the fields that drift for a copy that was deleted.
const wholeCopy = "the whole Deployment"

func (v copyView) foreign() step {
	if !v.Live && v.held(v.foreignKey()) {
		return v.onHold(stateForeign)
	}
	owner, from := v.Copy.Annotations[AnnotationSource], v.Copy.Annotations[AnnotationSourceCluster]
	why := "a Deployment of that name is there and isn't ours: it is left alone, until it is deleted"
	switch {
	case v.fromElsewhere():
		why = fmt.Sprintf("the Deployment of that name is the copy of %s in the cluster whose UID is %s: it is left alone, "+
			"until its annotation %s is removed", cmp.Or(owner, v.Source), from, AnnotationSourceCluster)
	case owner != "":
		why = "the Deployment of that name is the copy of " + owner + ": it is left alone, until it is deleted"
	}
	return done(outcome{State: stateForeign, Text: text.Line(why, maxText)})
}

// keep compares the copy with what is wanted.
func (v copyView) keep() (step, error) {
	full, err := differences(v.Want.Full, v.Copy)
	if err != nil {
		return step{}, err
	}
	if len(full) == 0 {
		return v.settled(), nil
	}
	taken, known := v.replicasTaken()
	if !known {
		// To apply spec.replicas now could take it away from an autoscaler.
		return step{Act: actLook}, nil
	}
	want, missing := v.Want.Full, full
	if taken {
		want = v.Want.Lean
		if missing, err = differences(want, v.Copy); err != nil {
			return step{}, err
		}
	}
	if len(missing) == 0 {
		return v.settled(), nil
	}
	if v.held(v.refusedKey()) {
		return v.onHold(stateRefused), nil
	}
	digest := want.GetAnnotations()[AnnotationApplied]
	if v.Copy.Annotations[AnnotationApplied] == digest || v.Note.Applied == digest {
		// The source hasn't changed since, whatever the copy's annotation says: somebody else may change that, too.
		return v.repair(want, missing), nil
	}
	return step{Act: actApply, Config: want}, nil
}

// repair applies what somebody else has changed, unless too many repairs were undone.
func (v copyView) repair(want *unstructured.Unstructured, drift []string) step {
	if wait := v.Note.contested(drift, v.Now); wait > 0 {
		return done(outcome{State: stateContested, After: wait,
			Text: "somebody changes " + text.Few(drift, someFields) + " back each time it is repaired"})
	}
	return step{Act: actApply, Config: want, Drift: drift}
}

// replicasTaken reports whether spec.replicas belongs to somebody else, if that is known.
func (v copyView) replicasTaken() (taken, known bool) {
	if v.Live || len(v.Copy.ManagedFields) > 0 {
		// Managed fields from a cache will do: the write that depends on them names their version.
		return replicasTaken(v.Copy.ManagedFields, v.Scalers), true
	}
	if v.Note.JudgedUID == v.Copy.UID && v.Note.JudgedGeneration == v.Copy.Generation && v.Copy.UID != "" {
		return v.Note.ReplicasTaken, true
	}
	return false, false
}

// settled handles a copy that is as wanted.
func (v copyView) settled() step {
	if v.Live && v.Cached == "" {
		// The copy exists and the cache doesn't show it. Either the cache lags, or somebody changed the label that the
		// cache selects by. In the second case an apply restores the label.
		if v.Note.Slot != "" && v.Copy.Labels[labelSlot] != v.Note.Slot {
			return v.repair(v.formApplied(), []string{"metadata.labels." + labelSlot})
		}
		o := v.progress(0)
		o.After = cacheGrace
		if hidden := v.Note.HiddenSince; !hidden.IsZero() && v.Now.Sub(hidden) >= cacheGrace {
			if v.Now.Sub(v.Note.Restored) >= hiddenPause {
				return step{Act: actApply, Config: v.formApplied()}
			}
			o.After = hiddenPause
		}
		return done(o)
	}
	return done(v.progress(0))
}

// formApplied returns the form of the configuration that the copy has now.
func (v copyView) formApplied() *unstructured.Unstructured {
	if v.Copy.Annotations[AnnotationApplied] == v.Want.Lean.GetAnnotations()[AnnotationApplied] {
		return v.Want.Lean
	}
	return v.Want.Full
}

// progress returns how far the copy's rollout is.
func (v copyView) progress(after time.Duration) outcome {
	spec, status := v.Copy.Spec, v.Copy.Status
	o := outcome{State: stateProgressing, Desired: ptr.Deref(spec.Replicas, 1), Ready: status.AvailableReplicas,
		After: after}
	current := v.Copy.Generation > 0 && status.ObservedGeneration >= v.Copy.Generation
	if !current {
		// The figures are older than the last change.
		o.Ready = min(o.Ready, status.UpdatedReplicas)
	}
	if current && after == 0 && status.UpdatedReplicas == o.Desired && status.AvailableReplicas == o.Desired &&
		status.Replicas == o.Desired {
		o.State = stateAvailable
	} else if current && after == 0 && stalled(status) {
		o.State = stateStalled
		o.Text = fmt.Sprintf("%d/%d, its rollout is stalled: %s", o.Ready, o.Desired, reasonStalled)
	} else if spec.Paused {
		who := "somebody has paused its rollouts there"
		if wanted, _, _ := unstructured.NestedBool(v.Want.Full.Object, "spec", "paused"); wanted {
			who = "the source is paused" // a copy that is made meanwhile has no Pods
		}
		o.State = stateStalled
		o.Text = fmt.Sprintf("%d/%d, %s (kubectl rollout resume)", o.Ready, o.Desired, who)
	}
	return o
}

// reasonStalled is the Deployment controller's for a rollout that has got on no further within its
// progressDeadlineSeconds.
const reasonStalled = "ProgressDeadlineExceeded"

func stalled(status appsv1.DeploymentStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && c.Reason == reasonStalled
	})
}

// behind reports whether the cache certainly shows the state before our last write. After cacheGrace it returns false:
// a write from the old resourceVersion would only conflict.
func (v copyView) behind() bool {
	if v.Live || v.Note.Written.IsZero() || v.Now.Sub(v.Note.Written) >= cacheGrace {
		return false
	}
	version := ""
	if v.Copy != nil {
		version = v.Copy.ResourceVersion
	}
	return v.Note.Replaced == version
}

func (v copyView) held(key string) bool {
	return v.Note.HoldKey == key && v.Now.Before(v.Note.HoldUntil)
}

// foreignKey identifies somebody else's Deployment, as far as the cache shows it.
func (v copyView) foreignKey() string { return "foreign " + v.Cached }

// refusedKey identifies a refused request: the same request would be refused again.
func (v copyView) refusedKey() string {
	key := "refused delete"
	if v.Want != nil {
		key = "refused " + v.Want.Full.GetAnnotations()[AnnotationApplied]
	}
	return key
}

func (v copyView) onHold(state copyState) step {
	return done(outcome{State: state, Text: v.Note.HoldText, After: v.Note.HoldUntil.Sub(v.Now)})
}
