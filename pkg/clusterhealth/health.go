package clusterhealth

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/event"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// Config of [Health]; zero values mean the defaults.
type Config struct {
	Namespace string // of the kubeconfig Secrets
	Replica   string // named in events; default "tenure"
	// Policy says what kubeconfigs may do.
	Policy kubeconfig.Policy
	// Incarnation returns that of this replica in the fleet, "" while it is no member. Readers ignore what was said before
	// the incarnations that are alive began, so trouble is reported again by another one. Default: always "".
	Incarnation func() string
	// InUse returns the connection that the program already has to a cluster; ok is false if it has none. A cluster
	// stays in use when its Secret breaks. Default: there are none.
	InUse func(cluster string) (_ Use, ok bool)
	// Kept is for a program without InUse whose connections follow the Secrets: while a Secret is refused, the connection
	// from before is used on. Kept returns the configuration of that one, nil if there is none. Default: there is none.
	Kept func(cluster string) *rest.Config
	// Limit applies the limits in a cluster's Secret, and returns what is wrong with them. The Secret is nil once it
	// is gone. Default: no limits.
	Limit func(cluster string, secret *corev1.Secret) error
}

const (
	// lookEvery is the time between two looks at a cluster.
	lookEvery = 10 * time.Second
	// lookTimeout bounds the wait for one answer.
	lookTimeout = 5 * time.Second
)

// Use is the connection that the program already has to a cluster.
type Use struct {
	// Ask returns why the cluster can't be used over this connection; nil if it can. It may answer without a request.
	Ask   func(context.Context) error
	Given *rest.Config // the configuration that the connection was made of
	// Refused is why the connection doesn't use what the Secret holds now; "" if it does, or may.
	Refused string
	// Proven reports whether recent answers show that the cluster can be used: Ask sends no request then.
	Proven bool
	// Needed reports whether something in this replica depends on the cluster.
	Needed bool
}

var usable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "tenure_cluster_usable",
	Help: "Whether a workload cluster can be used: 1 while its API server answers, by the kubeconfig in use; 0 " +
		"otherwise, and the reason says what is wrong.",
}, []string{"cluster", "reason"})

var rejected = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "tenure_cluster_kubeconfig_rejected",
	Help: "1 while the kubeconfig in a cluster's Secret doesn't work and the connection from before it is used on; " +
		"absent otherwise. The reason says what is wrong.",
}, []string{"cluster", "reason"})

func init() { metrics.Registry.MustRegister(usable, rejected) }

// Health watches over the workload clusters.
type Health struct {
	cfg    Config
	rarely time.Duration // lookEvery for a usable cluster that nothing here depends on
	client client.Client
	log    logr.Logger

	changed chan struct{} // holds a token after a change, until it is received
	events  *rate.Limiter // bounds the events of this replica

	mu          sync.Mutex // guards all below
	incarnation string     // the last that was a member, "" before
	states      map[string]state
	complaints  map[string]complaint // about limits
}

// state is what was found of one cluster.
type state struct {
	reason string
	usable bool // by the connection in use, whatever the Secret holds
	// cause distinguishes troubles with the same reason. It is set for a bad kubeconfig, whose error is the same each
	// time. It is empty for a failed connection, whose error varies.
	cause string
	since time.Time // when usable last changed
	// looked is when the cluster was last looked at, and version the Secret's resourceVersion then.
	looked  time.Time
	version string
	// shared is the configuration in use if it is that of the Secret's version.
	shared *rest.Config
	told   time.Time // when an event about it was last tried, or when its Secret was found to be gone
	said   string    // the reason in the last event that home took; "" before the first
	// incarnation is Health.incarnation then. It is newer if nothing had to be reported.
	incarnation string
	uid         types.UID // of the Secret
	owed        bool      // whether there is something to report that was put off, or that home didn't take
	copies      bool      // whether it keeps copies of Deployments
}

// New returns a Health; see SetupWithManager.
func New(cfg Config) *Health {
	if cfg.Replica == "" {
		cfg.Replica = "tenure"
	}
	if cfg.Incarnation == nil {
		cfg.Incarnation = func() string { return "" }
	}
	return &Health{cfg: cfg, rarely: 5 * time.Minute, changed: make(chan struct{}, 1),
		events: rate.NewLimiter(eventsPerSecond, eventsAtOnce), states: map[string]state{},
		complaints: map[string]complaint{}}
}

// looksAtOnce is how many clusters are looked at at a time. One that doesn't answer takes seconds, and looks at others
// shouldn't be late because a hundred are like that.
const looksAtOnce = 128

// SetupWithManager adds Health to the home cluster's manager. It runs in every replica.
func (h *Health) SetupWithManager(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	h.client, h.log = local.GetClient(), local.GetLogger().WithName("clusterhealth")
	everywhere := false // every replica reports its own view
	return ctrl.NewControllerManagedBy(local).Named("clusterhealth").
		For(&corev1.Secret{}, builder.WithPredicates(kubeconfig.Secrets(h.cfg.Namespace))).
		WatchesRawSource(source.Func(h.wakeQuiet)).
		WithOptions(controller.Options{MaxConcurrentReconciles: looksAtOnce, NeedLeaderElection: &everywhere}).
		Complete(h)
}

// wakeQuiet queues the quiet clusters that have something to report by now, every lookEvery until the context ends. To
// reconcile all of them instead would cost an idle replica that knows hundreds of clusters much of its processor time.
func (h *Health) wakeQuiet(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	go wait.UntilWithContext(ctx, func(context.Context) {
		for _, name := range h.noLongerQuiet(time.Now()) {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: h.cfg.Namespace, Name: name}})
		}
	}, lookEvery)
	return nil
}

// noLongerQuiet returns the clusters that were quiet when they were looked at, and need another look. Their Secrets
// haven't changed: that is an event.
func (h *Health) noLongerQuiet(now time.Time) (names []string) {
	incarnation := h.cfg.Incarnation()
	h.mu.Lock()
	if incarnation != "" {
		h.incarnation = incarnation
	}
	maps.DeleteFunc(h.states, func(_ string, s state) bool { // of clusters that are gone, and events that are too old
		return s.since.IsZero() && now.Sub(s.told) > TroubleEventMaxAge
	})
	quiet := maps.Clone(h.states)
	maps.DeleteFunc(quiet, func(name string, _ state) bool { return !h.quiet(name) })
	for name, s := range h.states {
		if s.trouble() && (s.since.IsZero() || s.incarnation != h.incarnation) { // see forget and record
			names = append(names, name)
		}
	}
	h.mu.Unlock()
	for name, s := range quiet {
		use, ok := h.cfg.InUse(name)
		rests := use.Proven || (!use.Needed && now.Sub(s.looked) < h.rarely)
		if !ok || use.Refused != "" || use.Given != s.shared || !rests {
			names = append(names, name)
		}
	}
	return names
}

// quiet reports whether there is no trouble with a cluster, nor anything to report, its Secret's connection is in use,
// and the Secret's limits are sound. Call it with the lock held.
func (h *Health) quiet(name string) bool {
	s := h.states[name]
	_, complained := h.complaints[name]
	return s.reason == ReasonUsable && s.shared != nil && !complained && !s.owed
}

// Reconcile looks at one cluster. It asks for the next look, unless the cluster is quiet.
func (h *Health) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	err := h.client.Get(ctx, req.NamespacedName, secret)
	// A finalizer may hold it for long.
	gone := apierrors.IsNotFound(err) || !secret.DeletionTimestamp.IsZero()
	home := req.Name == kubeconfig.HomeName // refused: home may be in use, but not because of the Secret
	switch {
	case gone && !home && h.stillUsed(req.Name):
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case gone:
		h.forget(ctx, req.Name)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading Secret %s: %w", req.NamespacedName, err)
	}
	if !home {
		h.limit(ctx, secret)
	}
	var use *Use
	served := home && h.stillUsed(req.Name)
	if h.cfg.InUse != nil && !home {
		if u, ok := h.cfg.InUse(secret.Name); ok {
			use = &u
		}
	}
	var found finding
	if use != nil && use.Refused == "" && h.shares(secret, use.Given) {
		found = answer(use.Given, use.askWithin(ctx, lookTimeout))
		found.shared = use.Given
	} else {
		found = look(ctx, secret, h.cfg.Policy, lookTimeout, use, h.cfg.InUse != nil)
		if found.reason == ReasonBadConfig && h.cfg.Kept != nil && !home {
			use = useOf(h.cfg.Kept(secret.Name))
		}
		if use != nil && found.shared == nil {
			found = h.inUse(ctx, *use, found)
		}
		found.usable = found.usable || served
	}
	if ctx.Err() != nil {
		return ctrl.Result{}, nil // the process ends, which says nothing about the cluster
	}
	now := time.Now()
	h.tell(ctx, secret, found)
	h.mu.Lock()
	complaint, complained := h.complaints[secret.Name]
	owed := h.states[secret.Name].owed || (complained && complaint.told.IsZero())
	quiet := h.quiet(secret.Name)
	h.mu.Unlock()
	switch {
	case quiet:
		return ctrl.Result{}, nil
	case found.reason == ReasonBadConfig && use == nil && h.cfg.Kept == nil && !found.passing && !owed:
		// Only its event is repeated until it changes.
		next := time.Until(period(secret.Name, now).Add(eventEvery))
		return ctrl.Result{RequeueAfter: max(next, time.Second)}, nil // a period may have ended since
	}
	return ctrl.Result{RequeueAfter: lookEvery}, nil
}

// useOf returns the use of a connection, which is asked by a request; nil if there is none.
func useOf(given *rest.Config) *Use {
	if given == nil {
		return nil
	}
	return &Use{Given: given, Ask: func(ctx context.Context) error { return ask(ctx, given, false) }}
}

// shares reports whether an earlier look found that a configuration in use is that of this version of the Secret. Then
// the kubeconfig needn't be parsed again, which takes half a millisecond.
func (h *Health) shares(secret *corev1.Secret, given *rest.Config) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, known := h.states[secret.Name]
	return known && s.shared != nil && s.shared == given && s.version == secret.ResourceVersion
}

// stillUsed reports whether a cluster is in use although its Secret is gone. A Secret that soon comes back was only
// replaced.
func (h *Health) stillUsed(cluster string) bool {
	if h.cfg.InUse == nil {
		return false
	}
	_, used := h.cfg.InUse(cluster)
	return used
}

// inUse completes a finding about the Secret with the state of the connection in use.
func (h *Health) inUse(ctx context.Context, use Use, f finding) finding {
	switch {
	case f.usable && use.Refused == "":
		return f
	case f.usable:
		f = finding{reason: ReasonRefused, note: use.Refused}
	}
	if use.askWithin(ctx, lookTimeout) == nil {
		f.note, f.usable = f.note+"; the connection from before is used on, until this replica restarts", true
	}
	return f
}

// Usable reports whether a cluster could be used when it was last asked, and since when that has been so. A cluster
// that is unknown, or wasn't asked yet, has been unusable since the zero time.
func (h *Health) Usable(cluster string) (ok bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.states[cluster]
	return s.usable, s.since
}

// KeepsCopies reports whether a cluster keeps copies of Deployments, as its Secret said when the cluster was last
// looked at. known is false if it hasn't been looked at yet.
func (h *Health) KeepsCopies(cluster string) (keeps, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.states[cluster]
	return s.copies, !s.looked.IsZero()
}

// Changed returns a channel that gets a value after clusters came, went, or changed their state. There is one channel,
// for one receiver; changes in quick succession may share a value. To learn of clusters that come, set the provider up
// with [Health.Noting].
func (h *Health) Changed() <-chan struct{} { return h.changed }

// Noting returns the manager to set a provider up with: each cluster that the provider engages counts as changed. It
// may have been found usable long before, and whoever looked at all clusters then didn't see it.
func (h *Health) Noting(mgr mcmanager.Manager) mcmanager.Manager {
	return &notingManager{Manager: mgr, health: h}
}

type notingManager struct {
	mcmanager.Manager
	health *Health
}

// Engage implements multicluster.Aware.
func (m *notingManager) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	err := m.Manager.Engage(ctx, name, cl)
	m.health.signal()
	return err
}

func (h *Health) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// tell records a finding. It reports a change by metrics, log and event, and repeats the event of lasting trouble.
func (h *Health) tell(ctx context.Context, secret *corev1.Secret, f finding) {
	now := state{
		reason: f.reason, usable: f.usable, since: time.Now(), told: time.Now(), looked: time.Now(),
		version: secret.ResourceVersion, shared: f.shared, copies: kubeconfig.KeepsCopies(secret),
		uid: secret.UID,
	}
	if f.reason == ReasonBadConfig {
		now.cause = f.note
	}
	was, known, changed, news, tells := h.record(secret.Name, &now)
	if changed {
		h.signal()
		h.show(secret.Name, f, known)
	}
	if !tells {
		return
	}
	first := ""
	if now.first(was, known) {
		first = now.incarnation
	}
	if h.report(ctx, secret, f, known, news, first) != nil { // all replicas may have tried at the same moment
		now.owed, now.said = true, was.said // and now.told stays: what is repeated is bounded by it
		if first != "" {
			now.incarnation = was.incarnation
		}
		h.mu.Lock()
		h.states[secret.Name] = now
		h.mu.Unlock()
	}
}

// period returns when the period began in which an event about a cluster's lasting trouble is written.
func period(cluster string, now time.Time) time.Time { return event.Period(cluster, eventEvery, now) }

// record completes the state of a cluster from the one before, and keeps it. It returns the one before, whether there
// was one, whether they differ, whether there is news to report, and whether to write an event. If there are too many
// events, that of news is put off to the next look: readers take the last event for the state. Two kinds of events
// aren't put off. Repeated ones are bounded by their periods. And whoever edits a Secret waits for the answer, and
// takes silence for a good one.
func (h *Health) record(name string, now *state) (was state, known, changed, news, tells bool) {
	incarnation := h.cfg.Incarnation()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.incarnation == "" { // noLongerQuiet updates it every ten seconds
		h.incarnation = incarnation
	}
	now.incarnation = h.incarnation
	was, known = h.states[name]
	if known && was.usable == now.usable && !was.since.IsZero() { // one that was forgotten is new
		now.since = was.since
	}
	if was.copies != now.copies {
		h.signal()
	}
	edited := now.reason != ReasonUsable && was.version != now.version
	changed = !known || was.reason != now.reason || was.usable != now.usable || was.cause != now.cause || edited
	news = was.owed || was.trouble() && was.incarnation != now.incarnation
	if changed {
		news = known || now.reason != ReasonUsable
	}
	repeats := now.reason != ReasonUsable && now.reason == was.said &&
		!period(name, was.told).Equal(period(name, now.told))
	tells = repeats || (edited && was.version != "") || (news && h.events.Allow())
	now.owed = news && !tells
	if now.said = now.reason; !tells {
		now.told, now.said = was.told, was.said
		if now.first(was, known) {
			now.incarnation = was.incarnation
		}
	}
	h.states[name] = *now
	return was, known, changed, news, tells
}

// show shows a changed finding in metrics and log.
func (h *Health) show(name string, f finding, known bool) {
	if known { // otherwise there are none, and looking for them means looking at those of all clusters
		usable.DeletePartialMatch(prometheus.Labels{"cluster": name})
		rejected.DeletePartialMatch(prometheus.Labels{"cluster": name})
	}
	switch {
	case f.reason == ReasonUsable:
		usable.WithLabelValues(name, f.reason).Set(1)
		h.log.Info("cluster can be used", "cluster", name)
	case f.usable:
		usable.WithLabelValues(name, ReasonUsable).Set(1)
		rejected.WithLabelValues(name, f.reason).Set(1)
		h.log.Info("cluster's kubeconfig can't be used; the connection from before is used on", "cluster", name, "reason",
			f.reason, "note", f.note)
	default:
		usable.WithLabelValues(name, f.reason).Set(0)
		h.log.Info("cluster can't be used; the others go on", "cluster", name, "reason", f.reason, "note", f.note)
	}
}

// first reports whether an event about the state would be the first of its incarnation, other than about a change that
// it saw. was is the state before, if one is known.
func (s state) first(was state, known bool) bool {
	return s.incarnation != was.incarnation && (!known || was.owed || was.trouble())
}

// trouble reports whether the last event told of trouble.
func (s state) trouble() bool { return s.said != "" && s.said != ReasonUsable }

// forget drops what is known of a cluster that is gone. If its last event told of trouble, another one ends that; where
// there are too many events, a later call writes it. If there was trouble, its reason stays for as long as readers heed
// the last event about it: what the next Secret of that name holds is a change then, whose event no event of before
// stands for. The same goes for a cluster whose trouble is over and wasn't reported to be.
func (h *Health) forget(ctx context.Context, name string) {
	h.mu.Lock()
	s, known := h.states[name]
	ends := s.trouble() && h.events.Allow()
	if known && (s.reason != ReasonUsable || s.owed) {
		left := state{reason: s.reason, owed: s.owed, told: time.Now()}
		if !ends {
			left.said, left.uid = s.said, s.uid
		}
		h.states[name] = left
	} else {
		delete(h.states, name)
	}
	delete(h.complaints, name)
	h.mu.Unlock()
	if known && !s.since.IsZero() && h.cfg.InUse == nil { // otherwise what uses the clusters logs that
		h.log.Info("the Secret of a cluster is gone", "cluster", name)
	}
	h.signal()
	if ends {
		h.end(ctx, name, s)
	}
	if h.cfg.Limit != nil {
		_ = h.cfg.Limit(name, nil)
	}
	usable.DeletePartialMatch(prometheus.Labels{"cluster": name})
	rejected.DeletePartialMatch(prometheus.Labels{"cluster": name})
}
