package at

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/clustername"
)

// Clusters finds the cluster of a request. A multicluster-runtime manager is one.
type Clusters = clustername.Clusters

// Config says what a Reconciler works with.
type Config struct {
	// Clusters finds the cluster of a request. Required.
	//
	// For each cluster the client (reads of Ats and Pods from its cache, all writes), the API reader and the event
	// recorder are used.
	Clusters Clusters
	// Clock is used to tell when an At is due. Required.
	Clock clock.PassiveClock
	// Pods has the defaults for what Ats leave open; nil: RestrictedPods.
	Pods *PodDefaults
	// Unread is an option for writes whose answer isn't looked at, such as shard.AnswerUnread; nil for none.
	Unread Unread
}

// Unread is an option for the two kinds of write.
type Unread interface {
	client.CreateOption
	client.SubResourceUpdateOption
}

// Validate reports every field that is missing or wrong.
func (c Config) Validate() error {
	var wrong []error
	if c.Clusters == nil {
		wrong = append(wrong, errors.New("at.Config: Clusters is required"))
	}
	if c.Clock == nil {
		wrong = append(wrong, errors.New("at.Config: Clock is required"))
	}
	if c.Pods != nil {
		if err := c.Pods.Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("at.Config: Pods: %w", err))
		}
	}
	return errors.Join(wrong...)
}

// Reconciler brings Ats from PENDING through RUNNING to DONE. It is safe for concurrent use.
type Reconciler struct {
	config Config
	notes  notes

	mu      sync.Mutex // guards budgets
	budgets map[string]*budgets
}

// budgets are those of one cluster's Ats.
type budgets struct{ events, refusals, causes *budget.Budget }

// mostBudgets is how many clusters' budgets are kept. Nearly all of them are small.
const mostBudgets = 4096

// budgetsOf returns the budgets of a cluster. They stay when the cluster goes, since it may come back, until there are
// too many: then others begin anew.
func (r *Reconciler) budgetsOf(cluster string) *budgets {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.budgets[cluster] == nil {
		r.budgets[cluster] = &budgets{events: budget.New(eventBudget), refusals: budget.New(refusalBudget),
			causes: budget.New(causeBudget)}
		bound(r.budgets, mostBudgets, cluster)
	}
	return r.budgets[cluster]
}

// NewReconciler makes a Reconciler.
func NewReconciler(config Config) (*Reconciler, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Pods == nil {
		config.Pods = new(RestrictedPods())
	}
	return &Reconciler{config: config, notes: notes{byUID: map[types.UID]note{}, begun: map[types.UID]time.Time{}},
		budgets: map[string]*budgets{}}, nil
}

// A try that is in vain is repeated after shortestBackoff, then after twice as long each time, up to longestBackoff.
const (
	shortestBackoff = time.Second
	longestBackoff  = 5 * time.Minute
)

// NewRateLimiter returns the backoff that the controller of a Reconciler should use: 1 s after the first failure,
// doubling up to 5 min. There is no limit common to all Ats, so one that fails doesn't slow down the others.
func NewRateLimiter() workqueue.TypedRateLimiter[mcreconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](shortestBackoff, longestBackoff)
}

// maxLooks bounds how often one reconcile reads a fresh view, so that an At that changes all the time doesn't hold a
// worker.
const maxLooks = 2

// retryLater asks for another try after a delay that grows each time, without an error in the log.
//
//nolint:staticcheck // Requeue is deprecated in favour of fixed delays; the growing one is what is wanted.
var retryLater = ctrl.Result{Requeue: true}

// Reconcile gathers the present state, decides, and acts.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	cl, err := r.config.Clusters.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("finding cluster %q: %w", req.ClusterName, err)
	}
	at, err := readAt(ctx, cl.GetClient(), req.NamespacedName)
	if err != nil || at == nil {
		return ctrl.Result{}, err
	}
	a := &actor{cluster: cl, notes: &r.notes, budgets: r.budgetsOf(string(clustername.Real(req.ClusterName))),
		clock: r.config.Clock, pods: *r.config.Pods, unread: r.config.Unread}
	return a.reconcile(ctx, at)
}

// actor is one reconcile of one At.
type actor struct {
	cluster cluster.Cluster
	notes   *notes
	*budgets
	clock  clock.PassiveClock
	pods   PodDefaults
	unread Unread
	taken  *claimID // under which the Pod was refused since its name is taken
}

func (a *actor) reconcile(ctx context.Context, at *cnatv1alpha1.At) (ctrl.Result, error) {
	if a.notes.behind(at, a.clock.Now()) {
		// The cache doesn't show our last write yet. Its event will come, unless it came since the cache was read.
		key := client.ObjectKeyFromObject(at)
		var err error
		if at, err = readAt(ctx, a.cluster.GetClient(), key); err != nil || at == nil {
			return ctrl.Result{}, err
		}
		if a.notes.behind(at, a.clock.Now()) {
			return ctrl.Result{RequeueAfter: cacheGrace}, nil
		}
	}
	pod, err := readPod(ctx, a.cluster.GetClient(), at)
	if err != nil {
		return ctrl.Result{}, err
	}
	if at.Status.Phase == cnatv1alpha1.AtDone {
		a.notes.forget(at.UID)
	}
	view := a.assemble(at, pod, false)
	if pod == nil && presentBlock(at, ReasonPodRefused) != nil &&
		!tooLate(view) && a.refusals.Spent(at.Namespace, view.Now) {
		pause := max(refusedPause, backoff(at.Status.Conditions, view.Now)/2)
		return ctrl.Result{RequeueAfter: orDeadline(view, wait.Jitter(pause, 1))}, nil
	}
	for looks := 0; ; looks++ {
		next := decide(view)
		if !next.Look {
			result, again, err := a.act(ctx, view.At, next)
			if err != nil || !again {
				return result, err
			}
		}
		if looks == maxLooks {
			return retryLater, nil
		}
		fresh, err := a.look(ctx, view.At)
		if err != nil || fresh == nil {
			return ctrl.Result{}, err
		}
		view = *fresh
	}
}

// assemble returns the view. If the Pod shows how the claim went, it also corrects or renews the note about the claim.
func (a *actor) assemble(at *cnatv1alpha1.At, pod *corev1.Pod, fresh bool) view {
	now := a.clock.Now()
	note := a.notes.recall(at, now)
	claim := claimOf(&at.Status)
	unused := note == noteUnused || a.taken != nil && a.taken.equal(claim)
	switch {
	case !fresh || pod == nil || !unused:
	case isOurs(pod, at):
		// A request from before our claim has made a Pod. If it goes, that may be after its end.
		a.notes.unsure(at.UID, now)
		note = noteUnsure
	default: // a stranger's, which may stay for longer than a note that isn't renewed
		a.notes.claims(at.UID, claim, noteUnused, now)
		note = noteUnused
	}
	return view{At: at, Pod: pod, Fresh: fresh, Note: note, Now: now}
}

// look reads a fresh view. It returns nil if the At is gone.
//
// The At is read first. Whatever is decided on it is compared with it once more, by the compare-and-swap of a write or
// by [actor.unchanged]. If that succeeds, the At hadn't changed when the Pod was read, so both are as good as read in
// one moment. In the other order, the Pod could be older than the At.
func (a *actor) look(ctx context.Context, seen *cnatv1alpha1.At) (*view, error) {
	reader := a.cluster.GetAPIReader()
	at, err := readAt(ctx, reader, client.ObjectKeyFromObject(seen))
	if err != nil || at == nil {
		return nil, err
	}
	if at.UID != seen.UID {
		// Another At of the same name; its own event brings it here.
		return nil, nil
	}
	pod, err := readPod(ctx, reader, at)
	if err != nil {
		return nil, err
	}
	view := a.assemble(at, pod, true)
	return &view, nil
}

// readAt returns nil if the At doesn't exist.
func readAt(ctx context.Context, reader client.Reader, key client.ObjectKey) (*cnatv1alpha1.At, error) {
	at := &cnatv1alpha1.At{}
	if err := reader.Get(ctx, key, at); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading At %s: %w", key, err)
	}
	return at, nil
}

func readPod(ctx context.Context, reader client.Reader, at *cnatv1alpha1.At) (*corev1.Pod, error) {
	key := client.ObjectKey{Namespace: at.Namespace, Name: PodName(at)}
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, key, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Pod %s: %w", key, err)
	}
	return pod, nil
}
