package clusterhealth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// Config of [Health]; zero values mean the defaults.
type Config struct {
	Namespace string        // of the kubeconfig Secrets
	Replica   string        // who reports; default "tenure"
	Every     time.Duration // between two questions to a cluster; default 10 s
	Timeout   time.Duration // for one answer; default 5 s
	// Policy says what kubeconfigs may do.
	Policy kubeconfig.Policy
}

var usable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "tenure_cluster_usable",
	Help: "Whether a workload cluster can be used: 1 while its kubeconfig is sound and its API server answers. The reason says what is wrong.",
}, []string{"cluster", "reason"})

func init() { metrics.Registry.MustRegister(usable) }

// Reasons, as they appear in events, metrics and [Look].
const (
	ReasonUsable      = "Usable"
	ReasonBadConfig   = "BadKubeconfig"
	ReasonUnreachable = "Unreachable"
	ReasonRefused     = "AccessRefused"
)

// Health watches over the workload clusters.
type Health struct {
	cfg    Config
	client client.Client
	log    logr.Logger

	changed chan struct{} // holds a token after a change that nobody took notice of yet

	mu     sync.Mutex // guards states
	states map[string]state
}

// state is what was found of one cluster.
type state struct {
	reason string
	// cause is what makes one trouble another than the last with the same reason. What is wrong with a kubeconfig is the same
	// each time; how a connection fails isn't.
	cause string
	since time.Time
	told  time.Time // by an event
}

// New returns a Health; see SetupWithManager.
func New(cfg Config) *Health {
	if cfg.Every == 0 {
		cfg.Every = 10 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Replica == "" {
		cfg.Replica = "tenure"
	}
	return &Health{cfg: cfg, changed: make(chan struct{}, 1), states: map[string]state{}}
}

// SetupWithManager adds it to the home cluster's manager.
func (h *Health) SetupWithManager(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	h.client, h.log = local.GetClient(), local.GetLogger().WithName("clusterhealth")
	everywhere := false // every replica tells of its own view
	return ctrl.NewControllerManagedBy(local).Named("clusterhealth").
		For(&corev1.Secret{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetNamespace() == h.cfg.Namespace && o.GetLabels()[kubeconfig.Label] == "true"
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 16, NeedLeaderElection: &everywhere}).
		Complete(h)
}

// Reconcile looks at one cluster, and asks for the next look.
func (h *Health) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := h.client.Get(ctx, req.NamespacedName, secret); err != nil {
		if apierrors.IsNotFound(err) {
			h.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading Secret %s: %w", req.NamespacedName, err)
	}
	if !secret.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	reason, note := Look(ctx, secret, h.cfg.Policy, h.cfg.Timeout)
	h.tell(ctx, secret, reason, note)
	if reason == ReasonBadConfig { // until the Secret changes, but for telling it again
		return ctrl.Result{RequeueAfter: eventEvery}, nil
	}
	return ctrl.Result{RequeueAfter: h.cfg.Every}, nil
}

// Look asks the cluster of a kubeconfig Secret whether it can be used. The note says why not, in one line that carries no
// secret and leaves room in an event.
func Look(ctx context.Context, secret *corev1.Secret, policy kubeconfig.Policy, timeout time.Duration) (reason, note string) {
	access, err := kubeconfig.OfSecret(secret, policy)
	if err != nil {
		return ReasonBadConfig, err.Error()
	}
	cfg, err := access.REST()
	if err != nil {
		return ReasonBadConfig, err.Error()
	}
	cfg.Timeout = timeout
	if err := ask(ctx, cfg); err != nil {
		reason = ReasonUnreachable
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			reason = ReasonRefused
		}
		return reason, text.Line(fmt.Sprintf("%s: %v", cfg.Host, err), text.Note/2)
	}
	return ReasonUsable, "the API server answers"
}

// ask makes one small request that every API server answers.
func ask(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "tenure (health)"
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/version", nil)
	if err != nil {
		return err
	}
	if cfg.Proxy != nil { // client-go shares no connections that go through a proxy: those would stay
		defer httpClient.CloseIdleConnections()
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return apierrors.NewUnauthorized("the credentials are refused")
	case http.StatusForbidden:
		return apierrors.NewForbidden(corev1.Resource("version"), "", errors.New("the credentials may not ask for the version"))
	}
	return fmt.Errorf("GET /version: %s", res.Status)
}

// Usable reports whether a cluster could be used when it was last asked, and since when that is so. One that wasn't asked
// yet, or isn't known, counts as not usable since the zero time.
func (h *Health) Usable(cluster string) (ok bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.states[cluster]
	return s.reason == ReasonUsable, s.since
}

// Changed returns a channel that gets a value after clusters came, went, or changed their state. There is one channel,
// for one receiver; changes in quick succession may share a value.
func (h *Health) Changed() <-chan struct{} { return h.changed }

func (h *Health) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// tell makes a change of state known.
func (h *Health) tell(ctx context.Context, secret *corev1.Secret, reason, note string) {
	name, now := secret.Name, state{reason: reason, since: time.Now(), told: time.Now()}
	if reason == ReasonBadConfig {
		now.cause = note
	}
	h.mu.Lock()
	was, known := h.states[name]
	if known && was.reason == now.reason && was.cause == now.cause {
		again := reason != ReasonUsable && now.told.Sub(was.told) >= eventEvery
		if again {
			was.told = now.told
			h.states[name] = was
		}
		h.mu.Unlock()
		if again {
			h.report(ctx, secret, reason, note)
		}
		return
	}
	h.states[name] = now
	h.mu.Unlock()
	h.signal()
	if known {
		usable.DeleteLabelValues(name, was.reason)
	}
	value := 0.0
	if reason == ReasonUsable {
		value = 1
	}
	usable.WithLabelValues(name, reason).Set(value)
	if reason == ReasonUsable {
		h.log.Info("cluster can be used", "cluster", name)
	} else {
		h.log.Info("cluster can't be used; the others go on", "cluster", name, "reason", reason, "note", note)
	}
	if known || reason != ReasonUsable {
		h.report(ctx, secret, reason, note)
	}
}

func (h *Health) forget(name string) {
	h.mu.Lock()
	delete(h.states, name)
	h.mu.Unlock()
	h.signal()
	usable.DeletePartialMatch(prometheus.Labels{"cluster": name})
}
