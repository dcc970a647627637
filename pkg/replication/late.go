package replication

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// sweepLate deletes copies of a source that this process released, if they came into being afterwards, by a request
// that an earlier holder had in flight when it stopped. Copies of any other missing source are left alone: a home
// cluster that lost its objects must not empty the others. A cluster that counts as away may be back: nothing enqueues
// a source that is gone once that is known.
func (a *actor) sweepLate(ctx context.Context) (ctrl.Result, error) {
	if !a.r.notes.releasedOne(a.key) {
		return ctrl.Result{}, nil
	}
	// Bounds the waits for all caches together: some may never be filled.
	looking, cancel := context.WithTimeout(ctx, a.r.config.TargetTimeout)
	defer cancel()
	var failures []error
	for _, name := range a.r.config.Targets.Names() {
		cl, err := a.r.config.Clusters.GetCluster(ctx, name)
		if name == a.name || err != nil { // one that isn't connected can't have shown a copy
			continue
		}
		d, err := a.glance(looking, cl)
		if d == nil || err != nil {
			continue // a cache that isn't filled, perhaps never, can't have shown a copy either
		}
		failures = append(failures, a.sweepOne(ctx, cl, name, d))
	}
	return ctrl.Result{}, errors.Join(failures...)
}

func (a *actor) sweepOne(ctx context.Context, cl cluster.Cluster, name multicluster.ClusterName,
	d *appsv1.Deployment) error {
	uid := d.Annotations[AnnotationOwnerUID]
	if d.Annotations[AnnotationSource] != sourceKey(a.name, a.key) || !a.r.notes.finished(uid) {
		return nil
	}
	reading, cancel := context.WithTimeout(ctx, a.r.config.TargetTimeout)
	defer cancel()
	live := &appsv1.Deployment{}
	err := a.home.GetAPIReader().Get(reading, a.key, live)
	if err == nil && IsSource(live) {
		return nil // it is a source again, and has an event of its own
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Deployment %s from the API server: %w", a.key, err)
	}
	writing, end := context.WithTimeout(ctx, slowTimeout) // this is rare, so it isn't tried in less time first
	defer end()
	err = deleteCopy(writing, cl, d)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the late copy of Deployment %s in %s: %w", a.key, name, err)
	}
	return nil
}

func deleteCopy(ctx context.Context, cl cluster.Cluster, d *appsv1.Deployment) error {
	return cl.GetClient().Delete(ctx, d,
		client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
}
