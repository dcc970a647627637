package replication

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const (
	// identityLife bounds for how long it goes unnoticed that a source's cluster was rebuilt under its name, if it
	// answered all the time. identityAgain is the delay before a cluster that didn't answer is asked again.
	identityLife, identityAgain = time.Minute, 5 * time.Second
)

// identities caches the identities of the sources' clusters.
type identities struct {
	mu    sync.Mutex // guards all below
	known map[multicluster.ClusterName]identity
}

// identity is the UID of a cluster's namespace kube-system, and when that was asked for last.
type identity struct {
	uid   types.UID
	asked time.Time
}

func (i *identities) recall(name multicluster.ClusterName) (identity, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id, found := i.known[name]
	return id, found
}

func (i *identities) keep(name multicluster.ClusterName, id identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil {
		i.known = map[multicluster.ClusterName]identity{}
	}
	i.known[name] = id
}

// identify returns the UID of namespace kube-system in the source's cluster, "" if there is none. The name alone
// doesn't identify a cluster.
func (a *actor) identify(ctx context.Context) (types.UID, error) {
	now := a.r.now()
	known, found := a.r.identities.recall(a.name)
	if found && now.Sub(known.asked) < identityLife {
		return known.uid, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.r.config.TargetTimeout)
	defer cancel()
	system := &corev1.Namespace{}
	err := a.home.GetAPIReader().Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)
	switch {
	case err == nil,
		// An ingress that reloads says 404 of everything, but not as an API server does.
		apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		known = identity{system.UID, now}
	case !found:
		return "", fmt.Errorf("%w: reading namespace %s of cluster %s, by whose UID its copies are known: %w", errHome,
			metav1.NamespaceSystem, a.name, err)
	default:
		// A cluster that doesn't answer isn't asked each time. Once it answers it may be another cluster, so it is
		// asked again soon.
		known.asked = now.Add(identityAgain - identityLife)
	}
	a.r.identities.keep(a.name, known)
	return known.uid, nil
}
