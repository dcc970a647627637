package onboard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

const (
	// renewTimeout bounds one request to a workload cluster.
	renewTimeout = 10 * time.Second
	// lookAgain is the time between two checks whether a token is due and this replica renews. They cost no request.
	lookAgain = 5 * time.Second
	// lookRarely is the same where a token isn't due: its kubeconfig has to be parsed for that. lookOthers is that of
	// replicas that leave a token to another one first.
	lookRarely = time.Minute
	lookOthers = 10 * time.Minute
	// ownersTime is how long others leave a token that is due to the owner, which may be unable to reach the cluster; but
	// no longer than a twentieth of the token's life. In as long again, each of them tries at a time of its own.
	ownersTime = 5 * time.Minute
	// renewalReporter is the reporting controller of the events. It isn't that of package clusterhealth: a token that
	// isn't renewed is still good.
	renewalReporter = "tenure-renewal"
)

// Reasons of events.
const (
	ReasonRenewed    = "TokenRenewed"
	reasonNotRenewed = "TokenNotRenewed"
)

var renewed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "tenure_cluster_token_renewed",
	Help: "Whether the fleet renews the token of a cluster by itself: 1 while it does, 0 at replicas that tried and " +
		"couldn't. Only for tokens that tenure cluster add or rotate requested.",
}, []string{"cluster"})

func init() { metrics.Registry.MustRegister(renewed) }

// RenewerConfig of a [Renewer].
type RenewerConfig struct {
	// Namespace of the clusters' Secrets.
	Namespace string
	// Replica is the name of this replica, for events.
	Replica string
	// Policy says what kubeconfigs may do.
	Policy kubeconfig.Policy
	// Owner reports whether this replica is to renew first. The others renew what stays due for minutes. If two replicas
	// renew at a time, no harm is done: the second write is a conflict. Nil means that the manager's leader election
	// decides.
	Owner func() bool
	// Now is the clock; nil means the system's.
	Now func() time.Time
}

// Renewer renews tokens of workload clusters before they expire. With the present credentials it requests another
// token of the replicas' service account, and puts it into the cluster's Secret. It changes only a kubeconfig that
// a command of this package or the Renewer itself wrote; see [SumAnnotation].
type Renewer struct {
	cfg      RenewerConfig
	home     client.Client
	log      logr.Logger
	patience float64 // from 0 to 1, so that those that aren't the owner don't all try at once

	mu    sync.Mutex // guards tries
	tries map[string]*try
}

// try is the state of the tries to renew one cluster's token.
type try struct {
	failures int
	next     time.Time // no try before that
	// about are the sums of the kubeconfigs to which the state belongs: the one to be replaced, and its replacement.
	// The cache may show either for a while. If it shows a third one, somebody else wrote that, and the state starts
	// anew.
	about []string
}

// NewRenewer returns a Renewer; see SetupWithManager.
func NewRenewer(cfg RenewerConfig) *Renewer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Renewer{cfg: cfg, patience: rand.Float64(), tries: map[string]*try{}}
}

// SetupWithManager adds the Renewer to the home cluster's manager.
func (r *Renewer) SetupWithManager(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	r.home, r.log = local.GetClient(), local.GetLogger().WithName("renewal")
	elected := r.cfg.Owner == nil
	return ctrl.NewControllerManagedBy(local).Named("renewal").
		For(&corev1.Secret{}, builder.WithPredicates(kubeconfig.Secrets(r.cfg.Namespace))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, NeedLeaderElection: &elected}).
		Complete(r)
}

// Reconcile renews the token of one cluster if it is time, and asks for the next look.
func (r *Renewer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := r.home.Get(ctx, req.NamespacedName, secret); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Secret %s: %w", req.NamespacedName, err)
	} else if err != nil || !secret.DeletionTimestamp.IsZero() {
		r.forget(req.Name)
		return ctrl.Result{}, nil
	}
	if !requested(secret) { // until the Secret changes
		r.forget(req.Name)
		return ctrl.Result{}, nil
	}
	held := hold(secret, r.cfg.Policy)
	if !held.Renewed {
		r.forget(req.Name)
		return ctrl.Result{}, nil
	}
	now := r.cfg.Now()
	t := r.try(req.Name)
	if len(t.about) > 0 && !slices.Contains(t.about, secret.Annotations[SumAnnotation]) {
		*t = try{}
	}
	due, rarely := renewAt(secret, held.issued, held.Expires), lookRarely
	if r.cfg.Owner != nil && !r.cfg.Owner() {
		rarely = lookOthers
		if !now.Before(due) {
			wait := min(held.Expires.Sub(held.issued)/20, ownersTime)
			due = due.Add(wait + time.Duration(r.patience*float64(wait)))
		}
	}
	again := lookAgain
	if now.Before(due) {
		t.failures = 0 // somebody else has renewed it, or is to
		again = max(lookAgain, min(due.Sub(now), rarely))
	} else if !now.Before(t.next) {
		r.renew(ctx, secret, held, t)
	}
	gauge := 0.0
	if t.failures == 0 {
		gauge = 1
	}
	renewed.WithLabelValues(req.Name).Set(gauge)
	return ctrl.Result{RequeueAfter: again}, nil
}

// try returns the state of a cluster. One cluster is reconciled by one worker at a time, so the result needs no
// lock.
func (r *Renewer) try(cluster string) *try {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tries[cluster] == nil {
		r.tries[cluster] = &try{}
	}
	return r.tries[cluster]
}

func (r *Renewer) forget(cluster string) {
	r.mu.Lock()
	delete(r.tries, cluster)
	r.mu.Unlock()
	renewed.DeleteLabelValues(cluster)
}

// renew tries once to renew a token, and reports the result.
func (r *Renewer) renew(ctx context.Context, secret *corev1.Secret, held Held, t *try) {
	t.about = []string{secret.Annotations[SumAnnotation]}
	made, err := r.replace(ctx, secret, held)
	now := r.cfg.Now()
	told := clusterhealth.Event{Reporter: renewalReporter, Replica: r.cfg.Replica, Action: "Renew"}
	switch {
	case errors.Is(err, errChanged): // the next look sees how
		t.next = now.Add(lookAgain)
		return
	case err != nil && ctx.Err() != nil: // this replica ends
		return
	case err != nil:
		t.failures++
		pause := retryAfter(t.failures, held.Expires.Sub(now), rand.Float64())
		t.next = now.Add(pause)
		note := text.Line(err.Error(), text.Note/2)
		r.log.Info("token of a cluster not renewed; trying again", "cluster", secret.Name, "expires", held.Expires,
			"in", pause.String(),
			"failures", t.failures, "error", note)
		told.Reason = reasonNotRenewed
		told.Note = fmt.Sprintf("its token expires %s and couldn't be renewed, which is tried again: %s. "+
			"By hand: tenure cluster rotate %s --kubeconfig FILE", stamp(held.Expires), note, secret.Name)
	default:
		// The API server may have granted less than was asked for. Both times are of its clock, which may not be ours.
		t.failures, t.next, t.about = 0, now.Add(settledFor(made.expires.Sub(made.issued))), append(t.about, made.sum)
		r.log.Info("token of a cluster renewed", "cluster", secret.Name, "expires", made.expires)
		told.Reason, told.Normal = ReasonRenewed, true
		told.Note = fmt.Sprintf("its token was renewed, and expires %s", stamp(made.expires))
	}
	_ = told.Tell(ctx, r.home, r.log, secret, now)
}

// replacement is a new token, and the sum of the kubeconfig that holds it.
type replacement struct {
	issued, expires time.Time
	sum             string
}

var errChanged = errors.New("the Secret was changed meanwhile")

// replace requests a token with the lifetime of the present one, checks that the cluster takes it, and puts it into
// the Secret. It returns errChanged if the Secret was changed meanwhile.
func (r *Renewer) replace(ctx context.Context, secret *corev1.Secret, held Held) (made replacement, err error) {
	config, err := kubeconfig.Connection(secret, r.cfg.Policy)
	if err != nil {
		return made, err
	}
	config.Timeout, config.QPS, config.UserAgent = renewTimeout, -1, "tenure (renewal)"
	kubeconfig.Bound(config)
	token, _, err := requestToken(ctx, config, max(held.Expires.Sub(held.issued), shortestLife))
	switch {
	case apierrors.IsForbidden(err):
		return made, fmt.Errorf("%w: tenure cluster add gives the right (config/workload/token_role.yaml)", err)
	case err != nil:
		return made, err
	}
	if made.issued, made.expires = kubeconfig.TokenLife(token); !made.expires.After(held.Expires) {
		return made, fmt.Errorf("the API server granted a token that expires %s, not later than the one before: "+
			"see --service-account-max-token-expiration there", stamp(made.expires))
	}
	body, err := held.target.kubeconfig(secret.Name, token)
	if err != nil {
		return made, fmt.Errorf("with the new token: %w", err)
	}
	next := secret.DeepCopy()
	fill(next, body, true)
	made.sum = next.Annotations[SumAnnotation]
	if reason, note := clusterhealth.Prove(ctx, next, r.cfg.Policy, renewTimeout); reason != clusterhealth.ReasonUsable {
		return made, fmt.Errorf("the new token can't be used, so the one before is kept: %s: %s", reason, note)
	}
	err = r.home.Patch(ctx, next, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return made, errChanged
	case err != nil:
		return made, fmt.Errorf("writing Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return made, nil
}
