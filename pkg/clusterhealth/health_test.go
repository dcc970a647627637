package clusterhealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/event"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/conns"
	"github.com/tenure-dev/tenure/test/must"
)

// kubeconfigOf leads to a server. Those of tests have no TLS, so only an insecure policy takes it.
func kubeconfigOf(server string) string {
	return fmt.Sprintf("clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\n"+
		"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x", server)
}

func secretOf(name, text string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "u"},
		Data:       map[string][]byte{kubeconfig.Key: []byte(text)},
	}
}

func newHealth(t *testing.T, home client.Client, cfg Config) *Health {
	t.Helper()
	cfg.Namespace = "n"
	h := New(cfg)
	h.client, h.log = home, logr.Discard()
	t.Cleanup(func() { // its metrics are the process's
		for name := range h.states {
			h.forget(context.Background(), name)
		}
	})
	return h
}

// reconcile looks at the cluster of a Secret.
func reconcile(t *testing.T, h *Health, name string) ctrl.Result {
	t.Helper()
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "n", Name: name}}
	result, err := h.Reconcile(t.Context(), request)
	must.Succeed(t, err)
	return result
}

func eventsIn(t *testing.T, home client.Client) []eventsv1.Event {
	t.Helper()
	list := &eventsv1.EventList{}
	must.Succeed(t, home.List(t.Context(), list))
	return list.Items
}

// Who changes a Secret waits for an answer, which is in an event about this version of it.
func TestASecretThatStaysBadIsToldOfAgainWhenItChanges(t *testing.T) {
	for name, bad := range map[string]string{
		ReasonBadConfig: "current-context: x", ReasonUnreachable: kubeconfigOf("http://127.0.0.1:1"),
	} {
		secret := secretOf("west", bad)
		home := fake.NewClientBuilder().WithObjects(secret).Build()
		h := newHealth(t, home, Config{Policy: kubeconfig.Policy{Insecure: true}})
		for version := range 3 {
			reconcile(t, h, "west")
			reconcile(t, h, "west")
			if all := eventsIn(t, home); len(all) != version+1 || all[0].Reason != name {
				t.Errorf("%s: %d events of %d versions, such as %+v", name, len(all), version+1, all[0])
			}
			secret.Annotations = map[string]string{"version": strings.Repeat("x", version+1)}
			must.Succeed(t, home.Update(t.Context(), secret))
		}
	}
}

func TestWhetherAClusterKeepsCopiesIsKnownOnceItIsLookedAt(t *testing.T) {
	secret, given := insecure(t, "http://127.0.0.1:1")
	home := fake.NewClientBuilder().WithObjects(secret).Build()
	ask := func(context.Context) error { return nil }
	h := newHealth(t, home, Config{Policy: kubeconfig.Policy{Insecure: true},
		InUse: func(string) (Use, bool) { return Use{Ask: ask, Given: given}, true }})
	changed := func() bool {
		select {
		case <-h.Changed():
			return true
		default:
			return false
		}
	}
	if _, known := h.KeepsCopies("west"); known {
		t.Error("it is known before the cluster is looked at")
	}
	for _, c := range []struct {
		roles                    string
		wantKeeps, wantsToBeTold bool
	}{{"", true, true}, {"ats", false, true}, {"ats,deployment-source", false, false}, {"deployments", true, true}} {
		secret.Annotations = map[string]string{kubeconfig.RolesAnnotation: c.roles}
		must.Succeed(t, home.Update(t.Context(), secret))
		reconcile(t, h, "west")
		keeps, known := h.KeepsCopies("west")
		if told := changed(); keeps != c.wantKeeps || !known || told != c.wantsToBeTold {
			t.Errorf("roles %q: keeps %v, known %v, told of a change: %v", c.roles, keeps, known, told)
		}
	}
	must.Succeed(t, home.Delete(t.Context(), secret))
	h.cfg.InUse = nil
	reconcile(t, h, "west")
	if _, known := h.KeepsCopies("west"); known {
		t.Error("it is known of a cluster that is gone")
	}
}

// Each replica finds the same trouble. It is one event, told anew only after a while.
func TestOneCauseIsOneEventWhoeverFindsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := secretOf("west", "current-context: x")
		home := fake.NewClientBuilder().WithObjects(secret).Build()
		var all []*Health
		for _, replica := range []string{"r1", "r2", "r3"} {
			all = append(all, newHealth(t, home, Config{Replica: replica}))
		}
		again := time.Until(period("west", time.Now()).Add(eventEvery))
		for range 3 {
			for _, h := range all {
				if result := reconcile(t, h, "west"); result.RequeueAfter != again {
					t.Fatalf("%v; want to be asked again after %v, to tell it anew", result, again)
				}
			}
		}
		told := eventsIn(t, home)
		if len(told) != 1 {
			t.Fatalf("%d events: %v", len(told), told)
		}
		if e := told[0]; e.Reason != ReasonBadConfig || e.Type != corev1.EventTypeWarning || e.Regarding.Name != "west" ||
			!strings.Contains(e.Note, "cluster west: kubeconfig: current-context must name one of contexts") {
			t.Errorf("the event: %v", e)
		}
		since := all[0].states["west"].since
		time.Sleep(again)
		for _, h := range all {
			reconcile(t, h, "west")
		}
		if n := len(eventsIn(t, home)); n != 2 || all[0].states["west"].since != since {
			t.Errorf("it isn't told again, or counts as new: %d events, since %v, was %v", n, all[0].states["west"].since, since)
		}
		// What is wrong is another thing now, and so another event.
		secret.Data[kubeconfig.Key] = []byte("[")
		must.Succeed(t, home.Update(t.Context(), secret))
		reconcile(t, all[0], "west")
		if n := len(eventsIn(t, home)); n != 3 {
			t.Errorf("%d events after another mistake, 2 before", n)
		}
	})
	// A state that changes back is told soon: whoever reads the events takes the last for the state.
	name := func(replica string, at time.Time) string {
		return Event{Replica: replica, News: true}.object(secretOf("west", ""), at).Name
	}
	began := event.Period("west", changeEvery, time.Now())
	change, peers, back := name("r1", began), name("r2", began.Add(changeEvery-1)), name("r1", began.Add(changeEvery))
	if change != peers || change == back {
		t.Errorf("a change is %s, a peer's %s, the next %s", change, peers, back)
	}
}

// Readers take trouble for over whose last event is older than that, or than all replicas that are alive.
func TestTheLastEventAboutLastingTroubleIsNeverTooOldWhicheverReplicasAreAlive(t *testing.T) {
	for name, policy := range map[string]kubeconfig.Policy{ReasonBadConfig: {}, ReasonUnreachable: {Insecure: true}} {
		synctest.Test(t, func(t *testing.T) {
			secret, given := insecure(t, "http://127.0.0.1:1")
			home := fake.NewClientBuilder().WithObjects(secret).Build()
			use := Use{Given: given, Ask: func(context.Context) error { return errors.New("no route") }}
			type replica struct {
				from, to, next time.Duration
				*Health
			}
			var replicas []*replica
			for _, life := range [][2]time.Duration{{0, 75}, {1, 3}, {50, 125}, {100, 175}, {150, 225}} {
				from := life[0] * time.Minute
				replicas = append(replicas, &replica{from: from, next: from, to: life[1] * time.Minute,
					Health: newHealth(t, home, Config{Replica: fmt.Sprint("r", life[0]), Policy: policy,
						InUse: func(string) (Use, bool) { return use, name == ReasonUnreachable }})})
			}
			for after := time.Duration(0); after < replicas[4].to; after += lookEvery {
				for _, r := range replicas {
					if after >= r.next && after < r.to {
						r.next = after + reconcile(t, r.Health, "west").RequeueAfter
					}
				}
				all := eventsIn(t, home)
				last := slices.MaxFunc(all, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
				age, by := time.Since(last.EventTime.Time), last.ReportingInstance
				if age > TroubleEventMaxAge || last.Reason != name {
					t.Fatalf("%s: the last event is of %v ago, by %s: %s", name, age, by, last.Reason)
				}
				for _, r := range replicas {
					if after == r.from && by != r.cfg.Replica {
						t.Errorf("%s: %s has just found it, and the last event is by %s", name, r.cfg.Replica, by)
					}
				}
				time.Sleep(lookEvery)
			}
			if n := len(eventsIn(t, home)); n > 5+225/20+1 {
				t.Errorf("%s: %d events in 225 minutes by 5 replicas, want one by each, and one in 20 minutes", name, n)
			}
		})
	}
}

const itsVersion = `{"gitVersion":"v1.37.2"}`

// apiServer answers /version with a code, and counts how often it is asked.
type apiServer struct {
	*rest.Config
	code, asked atomic.Int64
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{}
	a.code.Store(http.StatusOK)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.asked.Add(1)
		w.WriteHeader(int(a.code.Load()))
		_, _ = io.WriteString(w, itsVersion)
	}))
	t.Cleanup(s.Close)
	a.Config = &rest.Config{Host: s.URL}
	return a
}

// over asks over a connection.
func over(cfg *rest.Config) func(context.Context) error {
	return func(ctx context.Context) error { return ask(ctx, cfg, false) }
}

// A file that a Secret names may come at any time, and changes no Secret.
func TestASecretWhoseFileIsMissingIsLookedAtAgainSoon(t *testing.T) {
	missing := fmt.Sprintf("tokenFile: %q", filepath.Join(t.TempDir(), "token"))
	secret := secretOf("later", strings.Replace(kubeconfigOf("https://one"), "token: t", missing, 1))
	h := newHealth(t, fake.NewClientBuilder().WithObjects(secret).Build(), Config{Policy: kubeconfig.Policy{Files: true}})
	if result := reconcile(t, h, "later"); result.RequeueAfter != lookEvery {
		t.Errorf("%v; want to be asked again after %v", result, lookEvery)
	}
	if ok, _ := h.Usable("later"); ok {
		t.Error("it is usable without its token")
	}
}

func TestWhatAnAnswerSaysOfACluster(t *testing.T) {
	api := newAPIServer(t)
	secret := secretOf("west", kubeconfigOf(api.Host))
	for status, want := range map[int][2]string{ // what it says of the cluster, and of new credentials
		http.StatusOK:                 {ReasonUsable, ReasonUsable},
		http.StatusTooManyRequests:    {ReasonUsable, ReasonUnreachable},
		http.StatusUnauthorized:       {ReasonRefused, ReasonRefused},
		http.StatusForbidden:          {ReasonRefused, ReasonRefused},
		http.StatusServiceUnavailable: {ReasonUnreachable, ReasonUnreachable},
	} {
		api.code.Store(int64(status))
		cluster, note, _ := Look(t.Context(), secret, kubeconfig.Policy{Insecure: true}, time.Second)
		credentials, _ := Prove(t.Context(), secret, kubeconfig.Policy{Insecure: true}, time.Second)
		if got := [2]string{cluster, credentials}; got != want {
			t.Errorf("%d: %q, want %q (%s)", status, got, want, note)
		}
	}
}

func TestABrokenSecretLeavesItsClusterUsable(t *testing.T) {
	api := newAPIServer(t)
	secret := secretOf("kept", "current-context: x")
	secret.Finalizers = []string{"example.com/slow"} // it can't go at once, and is gone for us all the same
	home := fake.NewClientBuilder().WithObjects(secret).Build()
	inUse, refused := api.Config, ""
	h := newHealth(t, home, Config{InUse: func(string) (Use, bool) {
		return Use{Ask: over(inUse), Given: api.Config, Refused: refused, Needed: true}, inUse != nil
	}})
	look := func(what string, wantUsable bool, wantReason string) time.Time {
		t.Helper()
		if result := reconcile(t, h, "kept"); result.RequeueAfter > lookEvery {
			t.Fatalf("%s: the next look after %v", what, result.RequeueAfter)
		}
		got, since := h.Usable("kept")
		if got != wantUsable {
			t.Errorf("%s: usable %t, want %t", what, got, wantUsable)
		}
		wantRejected := 0
		if wantUsable && wantReason != ReasonUsable {
			wantRejected = 1
		}
		if n := testutil.CollectAndCount(rejected); n != wantRejected {
			t.Errorf("%s: %d Secrets are rejected, want %d", what, n, wantRejected)
		}
		shown := wantReason
		if wantUsable {
			shown = ReasonUsable
		}
		if n := testutil.ToFloat64(usable.WithLabelValues("kept", shown)); (n == 1) != wantUsable ||
			testutil.CollectAndCount(usable) != 1 {
			t.Errorf("%s: usable is %v by %s, of %d series", what, n, shown, testutil.CollectAndCount(usable))
		}
		return since
	}
	since := look("garbage", true, ReasonBadConfig)
	if again := look("garbage still", true, ReasonBadConfig); again != since {
		t.Error("it counts as usable anew")
	}
	api.code.Store(http.StatusUnauthorized)
	look("garbage, and what was in use has expired", false, ReasonBadConfig)
	api.code.Store(http.StatusOK)
	look("garbage, and what was in use serves again", true, ReasonBadConfig)
	secret.Data[kubeconfig.Key] = []byte(kubeconfigOf(api.Host))
	h.cfg.Policy.Insecure = true
	must.Succeed(t, home.Update(t.Context(), secret))
	look("mended", true, ReasonUsable)
	refused = "credentials with fewer rights"
	look("answers, but isn't used", true, ReasonRefused)
	refused = ""
	look("used at last", true, ReasonUsable)
	actions := map[string]string{}
	for _, e := range eventsIn(t, home) {
		actions[e.Reason] = e.Action
	}
	if actions[ReasonRefused] != ActionKeep || actions[ReasonUsable] != "Probe" {
		t.Errorf("events have the actions %v", actions)
	}
	must.Succeed(t, home.Delete(t.Context(), secret))
	look("deleted just now", true, ReasonUsable)
	inUse = nil
	reconcile(t, h, "kept")
	if got, since := h.Usable("kept"); got || !since.IsZero() || testutil.CollectAndCount(usable) != 0 {
		t.Errorf("after its removal it is usable: %t since %v, in %d series", got, since, testutil.CollectAndCount(usable))
	}
}

// Hundreds of clusters in which nothing happens are looked at without a reconcile, or a request, for each.
func TestAQuietClusterIsReconciledWhenItStirs(t *testing.T) {
	api := newAPIServer(t)
	secret := secretOf("calm", kubeconfigOf(api.Host))
	home := fake.NewClientBuilder().WithObjects(secret).Build()
	use, there, limits := Use{Ask: over(api.Config), Given: api.Config}, true, error(nil)
	h := newHealth(t, home, Config{
		Policy: kubeconfig.Policy{Insecure: true},
		InUse:  func(string) (Use, bool) { return use, there },
		Limit:  func(string, *corev1.Secret) error { return limits },
	})
	look := func(what string, again time.Duration) {
		t.Helper()
		if result := reconcile(t, h, "calm"); result.RequeueAfter != again {
			t.Errorf("%s: reconciled again after %v, want %v", what, result.RequeueAfter, again)
		}
	}
	stirs := func(what string, want bool) {
		t.Helper()
		for range 2 {
			if got := len(h.noLongerQuiet(time.Now())) == 1; got != want {
				t.Fatalf("%s: it stirs: %t", what, got)
			}
		}
	}
	stirs("not looked at yet", false)
	look("new", 0)
	stirs("nothing depends on it", false)
	h.rarely = 0
	stirs("nothing depends on it, long ago", true)
	h.rarely = time.Hour
	use.Needed = true
	stirs("needed, and its answers are long ago", true)
	use.Proven = true
	stirs("needed and proven", false)
	use.Refused = "what the Secret holds now leads elsewhere"
	stirs("other credentials were refused", true)
	use.Refused = ""
	there = false
	stirs("not in use any more", true)
	there = true
	use.Given = rest.CopyConfig(api.Config)
	stirs("another connection", true)
	look("another connection", 0)
	stirs("the other one is known", false)
	limits = errors.New("qps must be above 0")
	look("bad limits", lookEvery)
	stirs("bad limits, which are told again", false)
	limits = nil
	api.code.Store(http.StatusServiceUnavailable)
	use.Proven = false
	look("down", lookEvery)
	stirs("down", false)
	api.code.Store(http.StatusOK)
	look("up again", 0)
	stirs("up again, not proven", true)
}

func TestAClusterThatStirsIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{Namespace: "n", InUse: func(name string) (Use, bool) { return Use{}, false }})
		h.states["west"] = state{reason: ReasonUsable, since: time.Now(), shared: &rest.Config{}}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer queue.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		must.Succeed(t, h.wakeQuiet(ctx, queue))
		for range 3 {
			got, _ := queue.Get()
			if want := (types.NamespacedName{Namespace: "n", Name: "west"}); got.NamespacedName != want {
				t.Errorf("%v is queued, want %v", got, want)
			}
			queue.Done(got)
		}
		cancel()
	})
}

// connections is an API server that counts connections.
func connections(t *testing.T) (server string, counts *conns.Counts) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, itsVersion)
	}))
	counts = conns.Of(s)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, counts
}

func TestTheConnectionInUseIsAskedWhereItIsTheSecrets(t *testing.T) {
	server, counts := connections(t)
	policy := kubeconfig.Policy{Insecure: true}
	secret, given := insecure(t, server)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	use := &Use{Ask: over(&rest.Config{Host: server, Transport: transport}), Given: given}
	askThrice := func() {
		t.Helper()
		for range 3 {
			if f := look(t.Context(), secret, policy, time.Minute, use, true); f.reason != ReasonUsable {
				t.Fatal(f.reason, f.note)
			}
		}
	}
	askThrice()
	if n := counts.Opened.Swap(0); n < 1 || n > 2 { // net/http doesn't use a connection again whose writer was 50 ms late
		t.Errorf("%d connections for three questions over the one in use", n)
	}
	use.Given = &rest.Config{Host: server, BearerToken: "before it was rotated"}
	askThrice()
	if n := counts.Opened.Load(); n != 3 {
		t.Errorf("%d connections for three questions with other credentials, each to be closed", n)
	}
}

// Such a Secret is refused, and home is in use without it.
func TestASecretThatIsCalledHomeLimitsNothingAndIsForgotten(t *testing.T) {
	secret := secretOf(kubeconfig.HomeName, "")
	home := fake.NewClientBuilder().WithObjects(secret).Build()
	limits := 0
	h := newHealth(t, home, Config{
		InUse: func(string) (Use, bool) { return Use{Needed: true}, true },
		Limit: func(_ string, secret *corev1.Secret) error {
			if secret != nil {
				limits++
			}
			return nil
		},
	})
	reconcile(t, h, secret.Name)
	if limits > 0 {
		t.Error("it limits the home cluster")
	}
	if testutil.ToFloat64(rejected.WithLabelValues(kubeconfig.HomeName, ReasonBadConfig)) != 1 {
		t.Error("nothing says that it is refused")
	}
	if testutil.ToFloat64(usable.WithLabelValues(kubeconfig.HomeName, ReasonUsable)) != 1 {
		t.Error("home counts as one that can't be used")
	}
	must.Succeed(t, home.Delete(t.Context(), secret))
	if result := reconcile(t, h, secret.Name); result.RequeueAfter > 0 || testutil.CollectAndCount(rejected) > 0 {
		t.Errorf("it is looked at again (%v), or still counts as refused", result)
	}
}

func TestLimitsThatCannotBeUsedAreToldOnceAndAgainAfterAWhile(t *testing.T) {
	secret := secretOf("bounded", "")
	home := fake.NewClientBuilder().WithObjects(secret).Build()
	var problem error
	given, taken := 0, 0
	h := newHealth(t, home, Config{Limit: func(cluster string, secret *corev1.Secret) error {
		if cluster != "bounded" {
			t.Errorf("asked for %s", cluster)
		}
		if given++; secret == nil {
			taken++
		}
		return problem
	}})
	look := func(want int) {
		t.Helper()
		reconcile(t, h, "bounded")
		told, events := 0, eventsIn(t, home)
		for _, e := range events {
			if e.Reason == ReasonBadLimits {
				told++
			}
		}
		if told != want {
			t.Errorf("%d events, want %d: %v", told, want, events)
		}
	}
	look(0)
	problem = errors.New(`annotation tenure.dev/cluster-qps: "fast" must be a number`)
	look(1)
	look(1)
	problem = errors.New("another")
	look(2)
	problem = nil
	look(2)
	if len(h.complaints) > 0 {
		t.Error("it is remembered although it is mended")
	}
	must.Succeed(t, home.Delete(t.Context(), secret))
	look(2)
	if given != 6 || taken != 1 {
		t.Errorf("limits were given %d times and taken away %d times", given, taken)
	}
}

func TestAQuestionLeavesNoConnectionOpen(t *testing.T) {
	server, counts := connections(t)
	secret := secretOf("west", kubeconfigOf(server))
	reason, note, _ := Look(t.Context(), secret, kubeconfig.Policy{Insecure: true}, time.Minute)
	if reason != ReasonUsable {
		t.Fatal(reason, note)
	}
	must.Until(t, "the connection is closed", func() bool { return counts.Open() == 0 })
}

// A replica serves hundreds of clusters, and looks at each every ten seconds.
func TestAKubeconfigIsParsedOnceForEachVersionOfItsSecret(t *testing.T) {
	policy := kubeconfig.Policy{Insecure: true}
	secret, given := insecure(t, "http://127.0.0.1:1")
	var trouble error
	use := Use{Ask: func(context.Context) error { return trouble }, Given: given, Needed: true}
	h := newHealth(t, fake.NewClientBuilder().WithObjects(secret).Build(),
		Config{Policy: policy, InUse: func(string) (Use, bool) { return use, true }})
	look := func(want string) {
		t.Helper()
		if reconcile(t, h, "west"); h.states["west"].reason != want {
			t.Errorf("%v; want %s", h.states["west"].reason, want)
		}
	}
	look(ReasonUsable)
	h.cfg.Policy = kubeconfig.Policy{} // it wouldn't pass this one
	look(ReasonUsable)
	trouble = errors.New("away")
	look(ReasonUnreachable)
	trouble = nil
	look(ReasonUsable)
	use.Given = rest.CopyConfig(given) // another connection
	look(ReasonBadConfig)
	h.cfg.Policy = policy
	look(ReasonUsable)
	h.cfg.Policy = kubeconfig.Policy{}
	must.Succeed(t, h.client.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "west"}, secret))
	secret.Annotations = map[string]string{"a": "b"}
	must.Succeed(t, h.client.Update(t.Context(), secret))
	look(ReasonBadConfig)
}

// insecure is a Secret of a cluster, and the connection that it gives.
func insecure(t *testing.T, server string) (*corev1.Secret, *rest.Config) {
	t.Helper()
	secret := secretOf("west", kubeconfigOf(server))
	access, err := kubeconfig.OfSecret(secret, kubeconfig.Policy{Insecure: true})
	must.Succeed(t, err)
	given, err := access.REST()
	must.Succeed(t, err)
	return secret, given
}

// engaging is a manager that does nothing but engage clusters.
type engaging struct {
	mcmanager.Manager
	engage func() error
}

func (m *engaging) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error {
	return m.engage()
}

// Whoever looks at all clusters when the health of one changes would otherwise never see one that the provider engages
// after it was found usable.
func TestAClusterThatTheProviderEngagesCountsAsChangedOnceItIsThere(t *testing.T) {
	h := New(Config{})
	refused := errors.New("refused")
	mgr := h.Noting(&engaging{engage: func() error {
		select {
		case <-h.Changed():
			t.Error("told before the cluster is there")
		default:
		}
		return refused
	}})
	if err := mgr.Engage(t.Context(), "west", nil); !errors.Is(err, refused) {
		t.Errorf("Engage returned %v, want what the manager returned", err)
	}
	select {
	case <-h.Changed():
	default:
		t.Error("nobody was told of the cluster")
	}
}

// Who may not read Secrets goes by events, and the last one is about a Secret that is gone.
func TestAGoodSecretAfterABadOneOfItsNameIsTold(t *testing.T) {
	api := newAPIServer(t)
	home := fake.NewClientBuilder().Build()
	h := newHealth(t, home, Config{Policy: kubeconfig.Policy{Insecure: true}})
	for _, c := range []struct {
		name, text string
		events     int
	}{
		{"west", "[", 2}, {"west", kubeconfigOf(api.Host), 3}, {"west", kubeconfigOf(api.Host), 3},
		{"east", kubeconfigOf(api.Host), 3},
	} {
		secret := secretOf(c.name, c.text)
		must.Succeed(t, home.Create(t.Context(), secret))
		reconcile(t, h, c.name)
		must.Succeed(t, home.Delete(t.Context(), secret))
		reconcile(t, h, c.name)
		if ok, since := h.Usable(c.name); ok || !since.IsZero() {
			t.Errorf("%s, which is gone, can be used since %v", c.name, since)
		}
		all := eventsIn(t, home)
		slices.SortFunc(all, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		if len(all) != c.events || c.events > 2 && all[2].Reason != ReasonUsable {
			t.Errorf("%s, %q: %d events, want %d", c.name, c.text, len(all), c.events)
		}
	}
}

// Otherwise the trouble of a file that was taken away again would seem to last for twenty minutes.
func TestReportedTroubleEndsWithItsClusterByAnEventOfEachReplica(t *testing.T) {
	home := fake.NewClientBuilder().Build()
	file, fine := secretOf("typo", "["), secretOf("fine", "")
	file.UID = "file:/clusters/typo.yaml"
	var all []*Health
	for _, replica := range []string{"r1", "r2"} {
		h := newHealth(t, home, Config{Replica: replica})
		h.tell(t.Context(), file, finding{reason: ReasonBadConfig, note: "no kubeconfig"})
		h.tell(t.Context(), fine, finding{reason: ReasonUnreachable})
		h.tell(t.Context(), fine, finding{reason: ReasonUsable, usable: true})
		all = append(all, h)
	}
	ended := func() (by []string) {
		for _, e := range eventsIn(t, home) {
			if e.Reason == ReasonRemoved {
				by = append(by, e.ReportingInstance)
				if e.Type != corev1.EventTypeNormal || e.Regarding.UID != file.UID || e.Regarding.Namespace != "n" {
					t.Errorf("%+v", e)
				}
			}
		}
		slices.Sort(by)
		return by
	}
	for _, h := range all {
		h.forget(t.Context(), "fine")
		h.events = rate.NewLimiter(0, 0)
		h.forget(t.Context(), "typo")
	}
	if by := ended(); len(by) > 0 {
		t.Errorf("%q wrote more events than they may", by)
	}
	for i, h := range all {
		h.events = rate.NewLimiter(0, 10)
		for look := range 3 {
			names := h.noLongerQuiet(time.Now())
			if again := slices.Contains(names, "typo"); again != (look == 0) {
				t.Errorf("%d looks after its event was put off, typo is looked at again: %v", look, again)
			}
			for _, name := range names {
				reconcile(t, h, name)
			}
		}
		if by := ended(); !slices.Equal(by, []string{"r1", "r2"}[:i+1]) {
			t.Errorf("%d replicas may write events: %q did", i+1, by)
		}
	}
	// A file that comes back with the same mistake is reported anew, though the event of the first time has no other
	// cause.
	before := len(eventsIn(t, home))
	all[0].tell(t.Context(), file, finding{reason: ReasonBadConfig, note: "no kubeconfig"})
	if len(eventsIn(t, home)) == before {
		t.Error("it came back, and no event says so")
	}
}

func TestTroubleOfAClusterThatIsGoneIsForgottenWhenItsEventsAreTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(t, fake.NewClientBuilder().Build(), Config{})
		for i := range 100 {
			name := fmt.Sprint("west-", i)
			h.tell(t.Context(), secretOf(name, "["), finding{reason: ReasonBadConfig, note: "it is no kubeconfig"})
			h.forget(context.Background(), name)
			time.Sleep(time.Minute)
		}
		h.noLongerQuiet(time.Now())
		if most := int(TroubleEventMaxAge / time.Minute); len(h.states) != most {
			t.Errorf("of 100 clusters that were gone after a minute each, %d are remembered, want the last %d", len(h.states),
				most)
		}
	})
}

// How long a target has been away decides whether its copies go elsewhere.
func TestAClusterThatIsAddedAgainInTroubleIsInTroubleSinceThen(t *testing.T) {
	home := fake.NewClientBuilder().Build()
	h := newHealth(t, home, Config{})
	for range 2 {
		began, secret := time.Now(), secretOf("west", "[")
		must.Succeed(t, home.Create(t.Context(), secret))
		reconcile(t, h, "west")
		if ok, since := h.Usable("west"); ok || since.Before(began) {
			t.Errorf("it is usable: %t since %v, and was added at %v", ok, since, began)
		}
		must.Succeed(t, home.Delete(t.Context(), secret))
		reconcile(t, h, "west")
	}
}

func TestAClusterIsKnownByTheUIDOfItsSystemNamespace(t *testing.T) {
	answer, code, uids := `{"apiVersion":"v1","kind":"Namespace","metadata":{"uid":"u-west"}}`, http.StatusOK, 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, itsVersion)
			return
		}
		if uids++; r.URL.Path != "/api/v1/namespaces/kube-system" {
			t.Errorf("it asks for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	counts := conns.Of(server)
	server.Start()
	defer server.Close()
	secret := secretOf("west", kubeconfigOf(server.URL))
	ask := func() string {
		reason, note, uid := Look(t.Context(), secret, kubeconfig.Policy{Insecure: true}, time.Minute)
		if reason != ReasonUsable {
			t.Error(reason, note)
		}
		return uid
	}
	if got := ask(); got != "u-west" {
		t.Errorf("%q", got)
	}
	answer = strings.Replace(answer, "u-west", strings.Repeat("u", 1<<16), 1)
	if got := ask(); len(got) > 64 {
		t.Errorf("%d bytes", len(got))
	}
	code = http.StatusForbidden
	if got := ask(); got != "" {
		t.Errorf("who may not read it gets %q", got)
	}
	// net/http doesn't use a connection again whose writer was 50 ms late.
	if n := counts.Opened.Load(); uids != 3 || n < 3 || n > 4 {
		t.Errorf("%d connections for %d looks, want one for each", n, uids)
	}
	reason, _, got := Look(t.Context(), secret, kubeconfig.Policy{}, time.Minute)
	if reason != ReasonBadConfig || got != "" {
		t.Errorf("by a kubeconfig that isn't allowed: %s, %q", reason, got)
	}
}

// Each event is a write to the home cluster, which has other things to do when a network breaks.
func TestManyClustersThatComeAndGoCauseAFewEventsASecondAndTheLastIsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.NewClientBuilder().Build()
		h := newHealth(t, home, Config{})
		began := time.Now()
		look := func(clusters int, found finding) (owed int) {
			for i := range clusters {
				name := fmt.Sprint("c", i)
				h.tell(t.Context(), secretOf(name, ""), found)
				if h.states[name].owed {
					owed++
				}
			}
			if n := len(eventsIn(t, home)); n > 50+5*int(time.Since(began)/time.Second) {
				t.Fatalf("%d events in %v", n, time.Since(began))
			}
			time.Sleep(lookEvery)
			return owed
		}
		away := finding{reason: ReasonUnreachable, note: "no route"}
		back := finding{reason: ReasonUsable, usable: true, shared: &rest.Config{}}
		for range 3 {
			look(150, away)
			look(150, back)
		}
		if owed := look(150, back); owed == 0 || h.quiet("c149") {
			t.Errorf("%d events are put off; the next look at one is due: %v", owed, !h.quiet("c149"))
		}
		for look(150, back) > 0 {
		}
		last := map[string]eventsv1.Event{}
		for _, e := range eventsIn(t, home) {
			if l, ok := last[e.Regarding.Name]; !ok || l.EventTime.Time.Before(e.EventTime.Time) {
				last[e.Regarding.Name] = e
			}
		}
		for name, e := range last {
			if e.Reason != ReasonUsable || !h.quiet(name) {
				t.Errorf("the last event about %s says %s", name, e.Reason)
			}
		}
		// Whoever edits a Secret doesn't wait for the others, and takes silence for a good answer.
		look(150, away)
		for version := range 3 {
			secret := secretOf("c149", "")
			secret.ResourceVersion = fmt.Sprint(version)
			before := len(eventsIn(t, home))
			h.events.AllowN(time.Now(), int(h.events.TokensAt(time.Now())))
			h.tell(t.Context(), secret, away)
			if got, want := len(eventsIn(t, home))-before, min(version, 1); got != want || h.states["c149"].owed != (want == 0) {
				t.Errorf("version %d: %d events, want %d; another is owed: %v", version, got, want, h.states["c149"].owed)
			}
		}
		for look(150, back) > 0 {
		}
		if before := len(eventsIn(t, home)); len(last) != 150 || look(150, back) > 0 || len(eventsIn(t, home)) != before {
			t.Errorf("events about %d clusters, want 150; or there are more about what was reported", len(last))
		}
	})
}

// Who may not read Secrets goes by the last event.
func TestARecoveryThatWasNotReportedYetIsNotForgottenWithItsSecret(t *testing.T) {
	home := fake.NewClientBuilder().Build()
	h := newHealth(t, home, Config{})
	west, usable := secretOf("west", ""), finding{reason: ReasonUsable, usable: true}
	h.tell(t.Context(), west, finding{reason: ReasonUnreachable})
	h.events = rate.NewLimiter(0, 0)
	h.tell(t.Context(), west, usable)
	h.forget(t.Context(), "west")
	h.forget(t.Context(), "west") // it may be told twice
	h.events = rate.NewLimiter(1, 1)
	west.UID = "another"
	h.tell(t.Context(), west, usable)
	if all := eventsIn(t, home); len(all) != 2 {
		t.Errorf("%d events, want one of the trouble, and one that it is over", len(all))
	}
}

// The last event about a cluster in trouble must not be older than readers heed.
func TestTroubleThatWasReportedIsReportedAgainWhateverIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.NewClientBuilder().Build()
		h := newHealth(t, home, Config{})
		away, back := finding{reason: ReasonUnreachable}, finding{reason: ReasonUsable, usable: true}
		tell := func(name string, found finding) { h.tell(t.Context(), secretOf(name, ""), found) }
		tell("reported", away)
		tell("recovered", away)
		tell("recovered", back)
		h.events = rate.NewLimiter(0, 0)
		tell("reported", back) // for a moment, and nobody is told
		for _, c := range []struct {
			after  time.Duration
			events int
		}{{0, 3}, {lookEvery, 3}, {eventEvery, 4}, {lookEvery, 4}, {eventEvery, 5}} {
			time.Sleep(c.after)
			for _, name := range []string{"reported", "recovered", "new"} { // the others add to the load
				tell(name, away)
			}
			if n := len(eventsIn(t, home)); n != c.events {
				t.Errorf("after %v more: %d events, want %d", c.after, n, c.events)
			}
		}
	})
}

// To readers, what was said before the oldest incarnation began is about replicas that are gone. Where home was away
// for long, all are new.
func TestANewIncarnationReportsTroubleAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := fake.NewClientBuilder().WithObjects(secretOf("west", "[")).Build()
		by := ""
		h := newHealth(t, home, Config{Incarnation: func() string { return by }})
		h.tell(t.Context(), secretOf("well", ""), finding{reason: ReasonUsable, usable: true})
		reconcile(t, h, "west")
		for i, c := range []struct {
			by    string
			wakes bool
		}{{"r0-a", true}, {"r0-a", false}, {"", false}, {"r0-a", false}, {"r0-b", true}, {"r0-b", false}} {
			time.Sleep(lookEvery)
			by = c.by
			before, names := len(eventsIn(t, home)), h.noLongerQuiet(time.Now())
			if reconcile(t, h, "west"); slices.Contains(names, "west") != c.wakes || slices.Contains(names, "well") {
				t.Errorf("%d: %q are looked at again, want west: %v", i, names, c.wakes)
			}
			if n := len(eventsIn(t, home)) - before; (n == 1) != c.wakes || n > 1 {
				t.Errorf("%d: %d events by incarnation %q", i, n, by)
			}
		}
	})
}

// To readers, what a peer said before the others began may be about replicas that are gone. What changes while all look
// on is one event.
func TestReplicasThatBeginTogetherEachReportWhatTheyFindAndChangesOnce(t *testing.T) {
	for into := range 2 { // at the beginning of a period in which trouble is repeated, the repeat is no news of another
		synctest.Test(t, func(t *testing.T) {
			bad, well := finding{reason: ReasonUnreachable}, finding{reason: ReasonUsable, usable: true}
			home, all := fake.NewClientBuilder().Build(), []*Health{}
			time.Sleep(time.Until(period("west", time.Now()).Add(eventEvery + time.Duration(into)*changeEvery)))
			for _, incarnation := range []string{"r0-a", "r1-a", "r2-a"} {
				h := newHealth(t, home, Config{Replica: incarnation, Incarnation: func() string { return incarnation }})
				h.tell(t.Context(), secretOf("west", ""), bad)
				h.tell(t.Context(), secretOf("east", ""), well)
				if all = append(all, h); len(eventsIn(t, home)) != len(all) {
					t.Errorf("%d events by %d replicas", len(eventsIn(t, home)), len(all))
				}
				time.Sleep(3 * time.Second)
			}
			time.Sleep(time.Second)
			for _, h := range all {
				h.tell(t.Context(), secretOf("west", ""), well)
				h.tell(t.Context(), secretOf("east", ""), bad)
			}
			if n := len(eventsIn(t, home)); n != 3+2 {
				t.Errorf("%d events, want 3 that tell of the trouble, and 2 of changes", n)
			}
		})
	}
}

// All replicas repeat an event at the same moment.
func TestAnEventThatHomeDoesNotTakeIsWrittenAtTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		home := fake.NewClientBuilder().WithObjects(secretOf("west", "[")).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if fails != nil {
					return fails
				}
				return c.Create(ctx, o, opts...)
			}}).Build()
		h := newHealth(t, home, Config{})
		for _, want := range []int{1, 2} { // the first, and a repeated one
			fails = errors.New("no")
			if again := reconcile(t, h, "west").RequeueAfter; again != lookEvery {
				t.Errorf("event %d failed: the next look is after %v", want, again)
			}
			fails = nil
			for _, left := range []int{0, 1} { // events that may be written
				h.events = rate.NewLimiter(0, left)
				again, n := reconcile(t, h, "west").RequeueAfter, len(eventsIn(t, home))
				if n != want-1+left || (again > lookEvery) != (left > 0) {
					t.Errorf("event %d, %d may be written: %d events; the next look is after %v", want, left, n, again)
				}
			}
			time.Sleep(eventEvery)
		}
	})
}

// Events are bounded for home's sake, and the log isn't home's.
func TestLimitsThatAreWrongAreLoggedOnceAndAtOnceAndTheirEventComesSoon(t *testing.T) {
	home := fake.NewClientBuilder().WithObjects(secretOf("west", "[")).Build()
	var limits error
	h := newHealth(t, home, Config{Limit: func(string, *corev1.Secret) error { return limits }})
	lines := 0
	h.log = funcr.New(func(_, args string) {
		if strings.Contains(args, "limits") {
			lines++
		}
	}, funcr.Options{})
	wrong := errors.New("qps must be above 0")
	for i, c := range []struct {
		limits        error
		left          int // events that may be written
		lines, events int
		soon          bool // the next look
	}{
		{nil, 1, 0, 1, false}, // of the kubeconfig
		{wrong, 0, 1, 1, true}, {wrong, 0, 1, 1, true}, {wrong, 1, 1, 2, false}, {wrong, 1, 1, 2, false},
	} {
		limits, h.events = c.limits, rate.NewLimiter(0, c.left)
		again, events := reconcile(t, h, "west").RequeueAfter, len(eventsIn(t, home))
		if (again == lookEvery) != c.soon || lines != c.lines || events != c.events {
			t.Errorf("look %d: %d lines, %d events, the next one after %v; want %+v", i, lines, events, again, c)
		}
	}
}

// Without sharding, nothing else logs it.
func TestThatAClusterIsTakenAwayIsLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		inUse func(string) (Use, bool)
		text  string
		lines int
	}{
		"it can be used":              {nil, "", 1},
		"it is in trouble":            {nil, "[", 1},
		"who uses clusters logs that": {func(string) (Use, bool) { return Use{}, false }, "[", 0},
	} {
		api := newAPIServer(t)
		if c.text == "" {
			c.text = kubeconfigOf(api.Host)
		}
		secret := secretOf("west", c.text)
		home := fake.NewClientBuilder().WithObjects(secret).Build()
		h, lines := newHealth(t, home, Config{InUse: c.inUse, Policy: kubeconfig.Policy{Insecure: true}}), 0
		h.log = funcr.New(func(_, args string) { lines += strings.Count(args, "is gone") }, funcr.Options{})
		reconcile(t, h, "west")
		must.Succeed(t, home.Delete(t.Context(), secret))
		for range 2 {
			reconcile(t, h, "west")
		}
		if lines != c.lines {
			t.Errorf("%s: %d lines, want %d", name, lines, c.lines)
		}
	}
}

func TestAnEventThatIsPutOffIsWrittenAtTheNextLookWhichIsSoon(t *testing.T) {
	bad, api := secretOf("bad", "["), newAPIServer(t)
	limited := secretOf("limited", kubeconfigOf(api.Host))
	home := fake.NewClientBuilder().WithObjects(bad, limited).Build()
	h := newHealth(t, home, Config{Policy: kubeconfig.Policy{Insecure: true},
		Limit: func(_ string, secret *corev1.Secret) error {
			if secret != nil && secret.Name == "limited" {
				return errors.New("qps must be above 0")
			}
			return nil
		}})
	for _, c := range []struct {
		left, events int
		soon         bool // the next look at the bad one
	}{{0, 0, true}, {2, 2, false}, {2, 2, false}} {
		h.events = rate.NewLimiter(0, c.left)
		if again := reconcile(t, h, "bad").RequeueAfter; (again == lookEvery) != c.soon {
			t.Errorf("%d events may be written: the next look is after %v, want it soon: %v", c.left, again, c.soon)
		}
		if again := reconcile(t, h, "limited").RequeueAfter; again != lookEvery {
			t.Errorf("%d events may be written: the next look is after %v, want %v", c.left, again, lookEvery)
		}
		if n := len(eventsIn(t, home)); n != c.events {
			t.Errorf("%d events may be written: there are %d, want %d", c.left, n, c.events)
		}
	}
}
