package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/text"
)

var (
	// errStale: the source has changed since the cache showed it. The event of that change is on its way.
	errStale = errors.New("the source has changed")
	// errHome: the source can't be read. This shows nothing about any target.
	errHome = errors.New("the cluster of the source doesn't answer")
)

// actor is one reconcile of one source.
type actor struct {
	r    *Reconciler
	home cluster.Cluster
	// request is the cluster or shard that the request names; name is the source's real cluster.
	request, name multicluster.ClusterName
	// uid distinguishes the source's cluster from others of its name.
	uid    types.UID
	key    types.NamespacedName
	source *appsv1.Deployment
	// targets are the clusters that should have a copy.
	targets []multicluster.ClusterName
	// aliases are the other names of clusters, as in Targets.Aliases.
	aliases map[multicluster.ClusterName]multicluster.ClusterName

	// confirm returns errStale if the source isn't as the cache shows it. It reads the source from the API server once
	// in a reconcile that writes to a target, unless a compare-and-swap on the source has just proved it: a new
	// holder's cache may be older than the last holder's last write. Safe for concurrent use.
	confirm func() error
}

func (a *actor) reconcile(ctx context.Context) (ctrl.Result, error) {
	a.confirm = sync.OnceValue(func() error { return a.readAgain(ctx) })
	wanted := a.source.Labels[LabelReplicate] == "true" && a.source.DeletionTimestamp == nil
	if !wanted && !recordOf(a.source).Finalizer {
		return ctrl.Result{}, nil
	}
	result, err := a.replicate(ctx, wanted)
	if errors.Is(err, errStale) || isOvertaken(err) {
		return ctrl.Result{RequeueAfter: cacheGrace}, nil
	}
	return result, err
}

func (a *actor) replicate(ctx context.Context, wanted bool) (ctrl.Result, error) {
	aliases, names := a.r.config.Targets.Aliases(), a.r.config.Targets.Names()
	a.aliases = aliases
	record := recordOf(a.source).renamed(aliases, a.name)
	known, keepers := rename(names, aliases), rename(a.r.keepers(names, record.Copies), aliases)
	var wish wish
	var targets []multicluster.ClusterName
	var after time.Duration
	if !record.Known && (record.Finalizer || mayHaveCopies(a.source)) { // somebody removed the list
		all, wait := a.guessed()
		if wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		record = all.renamed(aliases, a.name)
		if err := a.remember(ctx, record); err != nil {
			return ctrl.Result{}, err
		}
	}
	if wanted {
		if forbids(a.r.config.ForbiddenNamespaces, a.key.Namespace) {
			// Copies from before the namespace was forbidden stay as they are, until they aren't wanted any more.
			return a.report(ctx, forbidden(a.key.Namespace, record), 0)
		}
		var err error
		if wish, err = parseWish(a.source, a.name); err != nil {
			return a.report(ctx, invalid(err, record), 0)
		}
		if err := wish.astray(a.source, aliases); err != nil {
			if left := a.r.connecting(); left > 0 { // it may be another name of a target
				return ctrl.Result{RequeueAfter: left}, nil
			}
			return a.report(ctx, invalid(err, record), 0)
		}
		wish = wish.renamed(aliases)
		targets = wish.targets(keepers, a.name)
		weighed := wish.weighed(targets, record.Copies, a.name)
		health := map[multicluster.ClusterName]targetHealth{}
		for _, name := range weighed {
			if health[name] = a.r.health(name); !slices.Contains(targets, name) { // it was one
				health[name] = targetHealth{Since: a.r.connections.since(connection{a.request, name}, a.r.now())}
			}
		}
		next, look := record.before(wish, weighed, known, health, a.r.now(), a.r.config.Grace)
		after = look
		if err := a.remember(ctx, next); err != nil {
			return ctrl.Result{}, err
		}
		record = next
	}
	outcomes, err := a.fanOut(ctx, wish, known, keepers, targets, record)
	if err != nil {
		return ctrl.Result{}, err
	}
	gone, left, look := sumUp(outcomes)
	all := union(record.Copies, left)
	unlisted := len(all) > len(record.Copies) // a stray is left: it must still be one later
	record.Copies, record.Guessed = all, (record.Guessed || unlisted) && len(left) > 0
	return a.conclude(ctx, record.after(gone, wanted), outcomes, wanted, sooner(after, look))
}

// sumUp returns the clusters that have no copy any more, those with one that isn't wanted, and when to look again.
func sumUp(outcomes []outcome) (gone, left []multicluster.ClusterName, after time.Duration) {
	for _, o := range outcomes {
		after = sooner(after, o.After)
		switch {
		case o.State == stateGone:
			gone = append(gone, o.Cluster)
		case !o.Wanted:
			left = append(left, o.Cluster)
		}
	}
	return gone, left, after
}

// conclude writes the record and the condition that follow from the outcomes.
func (a *actor) conclude(ctx context.Context, record record, outcomes []outcome, wanted bool,
	after time.Duration) (ctrl.Result, error) {
	if record.Finalizer {
		if err := a.remember(ctx, record); err != nil {
			return ctrl.Result{}, err
		}
		pending := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Pending })
		if pending {
			// After a start or a handoff, the old condition, or none, is better than one that only describes our own
			// start.
			return ctrl.Result{RequeueAfter: after}, nil
		}
		if wanted {
			return a.report(ctx, summarize(outcomes, a.source.Generation), after)
		}
		return a.report(ctx, cleaning(outcomes), after)
	}
	if a.source.DeletionTimestamp == nil && Condition(a.source) != nil {
		if err := a.writeConditions(ctx, nil); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, a.remember(ctx, record)
}

// mayHaveCopies reports whether a source that has no list of copies once had one. A replaced object keeps its status,
// and loses the annotations and finalizers that its file doesn't have.
func mayHaveCopies(source *appsv1.Deployment) bool {
	c := Condition(source)
	return c != nil && (c.Reason != ReasonInvalidAnnotation && c.Reason != ReasonForbidden ||
		strings.HasSuffix(c.Message, copiesStay))
}

// guessed returns a record for a source that has lost its own: every cluster that keeps copies may have one. wait is
// for how long it may not be known yet which these are.
func (a *actor) guessed() (_ record, wait time.Duration) {
	record, names := recordOf(a.source), a.r.config.Targets.Names()
	record.Finalizer, record.Known, record.Guessed = true, true, true
	record.Copies = union(record.Copies, others(a.r.keepers(names, nil), a.name))
	return record, max(a.r.connecting(), a.r.unlooked(others(names, a.name)))
}

// released takes the condition off a Deployment that isn't a source any more. Copies that it had are deleted by
// now, unless the record was lost. In that case the source gets a record again, and copies are looked for
// everywhere.
func (a *actor) released(ctx context.Context) (ctrl.Result, error) {
	if a.source.DeletionTimestamp == nil && Condition(a.source) != nil {
		var err error
		if mayHaveCopies(a.source) && !a.r.notes.finished(string(a.source.UID)) {
			record, wait := a.guessed()
			if wait > 0 {
				return ctrl.Result{RequeueAfter: wait}, nil
			}
			err = a.remember(ctx, record)
		} else {
			err = a.writeConditions(ctx, nil)
		}
		switch {
		case isOvertaken(err):
			return ctrl.Result{RequeueAfter: cacheGrace}, nil
		case err != nil:
			return ctrl.Result{}, err
		}
	}
	return a.sweepLate(ctx)
}

// isOvertaken reports whether the source was written or deleted by others first.
func isOvertaken(err error) bool {
	return (apierrors.IsConflict(err) || apierrors.IsNotFound(err)) && !apierror.IsDenial(err)
}

// remember writes the record on the source, if it isn't there yet and the source is unchanged since it was read.
func (a *actor) remember(ctx context.Context, record record) error {
	if record = record.spelled(a.source, a.aliases); recordOf(a.source).equal(record) {
		return nil
	}
	next := a.source.DeepCopy()
	record.put(next)
	patch := client.MergeFromWithOptions(a.source.DeepCopy(), client.MergeFromWithOptimisticLock{})
	err := a.home.GetClient().Patch(ctx, next, patch, client.FieldOwner(FieldManager))
	if err != nil {
		// While a webhook is down, each request that it should see is answered 500. Other 500s pass, or concern all requests.
		refused := isRefusal(err) || strings.Contains(err.Error(), "failed calling webhook")
		if refused && !isOvertaken(err) {
			a.sendEvent(nil, corev1.EventTypeWarning, ReasonRecordRefused, fmt.Sprintf("nothing is copied or deleted, since "+
				"its cluster doesn't let its list of copies be written: %v", err))
		}
		return fmt.Errorf("writing the list of copies of Deployment %s: %w", a.key, err)
	}
	a.r.notes.replaced(a.source, !record.Finalizer, a.r.now())
	a.source = next
	a.confirm = func() error { return nil }
	return nil
}

// report writes the condition, if it has changed, and sends an event about it.
func (a *actor) report(ctx context.Context, condition appsv1.DeploymentCondition,
	after time.Duration) (ctrl.Result, error) {
	old := Condition(a.source)
	write, wait := update(old, &condition, a.r.notes.pause(a.source, a.r.now()), a.r.now())
	if !write {
		return ctrl.Result{RequeueAfter: sooner(after, wait)}, nil
	}
	flipped := old == nil || flips(old, &condition)
	if err := a.writeConditions(ctx, &condition); err != nil {
		return ctrl.Result{}, err
	}
	if flipped {
		a.r.notes.flipped(a.source, a.r.now())
	}
	if flipped || condition.Reason == ReasonInvalidAnnotation {
		a.sendConditionEvent(condition)
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// writeConditions applies our part of the source's conditions: one, or none. Other conditions stay.
func (a *actor) writeConditions(ctx context.Context, condition *appsv1.DeploymentCondition) error {
	conditions := []any{}
	if condition != nil {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(condition)
		if err != nil {
			return fmt.Errorf("converting the condition of Deployment %s: %w", a.key, err)
		}
		conditions = append(conditions, fields)
	}
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"namespace": a.source.Namespace, "name": a.source.Name,
			// With the version that was read, so that a late write conflicts.
			"uid": string(a.source.UID), "resourceVersion": a.source.ResourceVersion,
		},
		"status": map[string]any{"conditions": conditions},
	}}
	err := a.home.GetClient().Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status),
		client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("writing the condition of Deployment %s: %w", a.key, err)
	}
	if status.GetResourceVersion() != a.source.ResourceVersion {
		a.r.notes.replaced(a.source, false, a.r.now())
	}
	a.source = a.source.DeepCopy()
	a.source.ResourceVersion = status.GetResourceVersion()
	return nil
}

// readAgain implements confirm.
func (a *actor) readAgain(ctx context.Context) error {
	live := &appsv1.Deployment{}
	if err := a.home.GetAPIReader().Get(ctx, a.key, live); err != nil {
		if apierrors.IsNotFound(err) {
			return errStale
		}
		return fmt.Errorf("%w: reading Deployment %s from the API server: %w", errHome, a.key, err)
	}
	if !sameSource(live, a.source) {
		return errStale
	}
	return nil
}

// sameSource reports whether two versions of a source ask for the same.
func sameSource(a, b *appsv1.Deployment) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// sendConditionEvent sends an event about a changed condition: one, however many clusters and successive replicas find
// the same.
func (a *actor) sendConditionEvent(condition appsv1.DeploymentCondition) {
	switch condition.Reason {
	case ReasonProgressing, ReasonCleaningUp:
		return // the condition suffices; an event is an API write too
	case ReasonReplicated:
		a.sendEvent(nil, corev1.EventTypeNormal, condition.Reason, condition.Message)
	default:
		a.sendEvent(nil, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}

// eventBudget bounds the events of one reason in one namespace. The condition of each source says the same.
var eventBudget = budget.Config{Burst: 10, Every: time.Minute, PerSecond: 5}

// sendEvent sends an event about the source and, unless it is nil, about a copy.
func (a *actor) sendEvent(about runtime.Object, kind, reason, message string) {
	left, ok := a.r.events.Take(a.key.Namespace+" "+reason, a.r.now())
	if !ok {
		return
	}
	also := ""
	if left > 0 {
		also = fmt.Sprintf(" (and %d more like this in the namespace: see the conditions of its Deployments)", left)
	}
	a.home.GetEventRecorder(FieldManager).Eventf(a.source, about, kind, reason, "Replicate", "%s",
		text.Line(message, text.Note-len(also))+also)
}
