package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/clustername"
)

// Clusters finds clusters: that of a request, and targets by their own names. A multicluster-runtime manager is one.
type Clusters = clustername.Clusters

// Targets are the clusters that a source may name.
type Targets interface {
	// Names returns the clusters that a source may name. The Reconciler leaves out the source's own.
	Names() []multicluster.ClusterName
	// KeepsCopies reports whether a cluster is there for copies, so that * stands for it, too. Without rights to
	// Deployments in a cluster nobody could say that it has no copy. known is false while that isn't known.
	KeepsCopies(name multicluster.ClusterName) (keeps, known bool)
	// Aliases returns, for clusters with several names, the one name that is used for each of the others. A cluster isn't
	// worked on under two names: under one of them its copy may not be wanted.
	Aliases() map[multicluster.ClusterName]multicluster.ClusterName
	// Usable reports whether a cluster answers, and if not, since when. The zero time means that it isn't known, or
	// wasn't probed yet. Such a cluster counts as away from the start of this process, and isn't shown as away at once.
	Usable(name multicluster.ClusterName) (ok bool, since time.Time)
	// PutOff returns for how long work on the copies of a namespace in a cluster is put off, since the cluster serves
	// nothing now; 0 if it isn't. On trial, the caller is the one that finds out whether it serves again.
	PutOff(name multicluster.ClusterName, namespace string) (wait time.Duration, trial bool)
	// RetryAfter returns for how long a cluster that serves others asked that the requests of this reconcile wait, 0 if it
	// didn't.
	RetryAfter(ctx context.Context, name multicluster.ClusterName) time.Duration
}

// Config says what a Reconciler works with.
type Config struct {
	// Clusters finds clusters. Required.
	//
	// Of the cluster of a request, the client (reads of Deployments from its cache, writes of metadata and status), the
	// API reader (Deployments and the namespace kube-system) and the event recorder are used. Of a target, the client
	// (reads of Deployments from its cache, server-side apply and deletes of Deployments) and the API reader (Deployments
	// and Namespaces) are used, and its configuration: the Transport there, or else the pointer, tells its connection
	// from a later one. With CreateNamespaces, the API reader of home reads other Namespaces too, and the client of a
	// target creates them.
	Clusters Clusters
	// Targets says which clusters there are and which can be used. Required.
	Targets Targets
	// Clock is the source of time. Required.
	Clock clock.PassiveClock
	// Grace is how long a target may be away before its share of a divided total moves. Default: 5 min.
	Grace time.Duration
	// TargetTimeout bounds what one reconcile does in one target, apart from writes that took longer than that before:
	// webhooks may take up to 30 s to admit one. Default: 5 s.
	TargetTimeout time.Duration
	// FanOut bounds the targets that one reconcile works on at a time. Default: 8.
	FanOut int
	// Scalers are the field managers whose spec.replicas is left alone. Default: DefaultScalers.
	Scalers []string
	// ForbiddenNamespaces are namespaces from and to which nothing is copied in any cluster, in addition to kube-*:
	// names, or prefixes followed by *. List those of this controller itself.
	ForbiddenNamespaces []string
	// CreateNamespaces creates a namespace that is missing in a target: open to copies, with the Pod Security labels
	// (pod-security.kubernetes.io/*) of the source's namespace. Without it, a copy waits until somebody creates the
	// namespace.
	CreateNamespaces bool
}

// Validate reports every field that is missing or wrong.
func (c Config) Validate() error {
	var wrong []error
	for _, field := range []struct {
		wrong bool
		says  string
	}{
		{c.Clusters == nil, "Clusters is required"},
		{c.Targets == nil, "Targets is required"},
		{c.Clock == nil, "Clock is required"},
		{c.Grace < 0, "Grace must not be negative"},
		{c.TargetTimeout < 0, "TargetTimeout must not be negative"},
		{c.FanOut < 0, "FanOut must not be negative"},
	} {
		if field.wrong {
			wrong = append(wrong, errors.New("replication.Config: "+field.says))
		}
	}
	if err := ValidateForbidden(c.ForbiddenNamespaces); err != nil {
		wrong = append(wrong, fmt.Errorf("replication.Config: ForbiddenNamespaces: %w", err))
	}
	return errors.Join(wrong...)
}

func (c Config) withDefaults() Config {
	c.Grace = cmp.Or(c.Grace, 5*time.Minute)
	c.TargetTimeout = cmp.Or(c.TargetTimeout, 5*time.Second)
	c.FanOut = cmp.Or(c.FanOut, 8)
	if c.Scalers == nil {
		c.Scalers = DefaultScalers
	}
	c.ForbiddenNamespaces = slices.Concat(alwaysForbidden, c.ForbiddenNamespaces)
	return c
}

// Reconciler keeps the copies of Deployments. It is safe for concurrent use.
type Reconciler struct {
	config      Config
	notes       notes
	connections connections
	spaces      spaces
	identities  identities
	slow        turns
	events      *budget.Budget // by namespace and reason
	began       time.Time
}

// NewReconciler makes a Reconciler.
func NewReconciler(config Config) (*Reconciler, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Reconciler{config: config.withDefaults(), began: config.Clock.Now(), events: budget.New(eventBudget)}, nil
}

// NewRateLimiter is the backoff that the controller of a Reconciler should use: a quarter of a second after the first
// failure, doubling up to 5 min, for each source on its own.
func NewRateLimiter() workqueue.TypedRateLimiter[mcreconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Second/4, 5*time.Minute)
}

// Reconcile gathers the present state, decides, and acts.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	home, err := r.config.Clusters.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("finding cluster %q: %w", req.ClusterName, err)
	}
	a := &actor{r: r, home: home, request: req.ClusterName, name: clustername.Real(req.ClusterName),
		key: req.NamespacedName, source: &appsv1.Deployment{}}
	err = home.GetClient().Get(ctx, req.NamespacedName, a.source)
	switch {
	case apierrors.IsNotFound(err):
		return a.sweepLate(ctx)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading Deployment %s: %w", req.NamespacedName, err)
	case !IsSource(a.source):
		return a.released(ctx)
	case r.notes.behind(a.source, r.now()):
		// The cache doesn't show our last write yet. Its event will come.
		return ctrl.Result{RequeueAfter: cacheGrace}, nil
	}
	return a.reconcile(ctx)
}

func (r *Reconciler) now() time.Time { return r.config.Clock.Now() }

// keepers returns those of the clusters that keep copies. While that isn't known of a cluster, it is one if a copy is
// recorded there.
func (r *Reconciler) keepers(names, recorded []multicluster.ClusterName) []multicluster.ClusterName {
	return slices.DeleteFunc(slices.Clone(names), func(name multicluster.ClusterName) bool {
		keeps, known := r.config.Targets.KeepsCopies(name)
		return !keeps && (known || !slices.Contains(recorded, name))
	})
}

// keepsNone reports whether a cluster is known to keep no copies.
func (r *Reconciler) keepsNone(name multicluster.ClusterName) bool {
	keeps, known := r.config.Targets.KeepsCopies(name)
	return known && !keeps
}

// connecting is for how long this process, which has just started, may not know all clusters yet.
func (r *Reconciler) connecting() time.Duration {
	return max(0, r.began.Add(connectGrace).Sub(r.now()))
}

// unlooked is for how long to wait until it is known of clusters whether they keep copies: for each no longer than for
// one that connects.
func (r *Reconciler) unlooked(names []multicluster.ClusterName) (left time.Duration) {
	for _, name := range names {
		of := connection{to: name}
		if _, known := r.config.Targets.KeepsCopies(name); known {
			r.connections.made(of)
		} else {
			left = max(left, r.connections.missing(of, r.now()))
		}
	}
	return left
}

// health is what is known about a target.
func (r *Reconciler) health(name multicluster.ClusterName) targetHealth {
	ok, since := r.config.Targets.Usable(name)
	if !ok && since.Before(r.began) {
		// Nothing is known about the time before this process. Each process gives a cluster its full grace.
		since = r.began
	}
	return targetHealth{Usable: ok, Since: since}
}
