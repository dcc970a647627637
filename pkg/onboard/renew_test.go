package onboard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

func TestATokenIsRenewedInTheLastQuarterOfItsLifeAndBeforeListCallsItSoon(t *testing.T) {
	for _, life := range []time.Duration{10 * time.Minute, 24 * time.Hour, 720 * time.Hour} {
		seen := map[time.Time]bool{}
		for i := range 200 {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}
			at, expires := renewAt(s, now, now.Add(life)), now.Add(life)
			seen[at] = true
			if share := float64(at.Sub(now)) / float64(life); share < 0.75 || share > 0.8 {
				t.Fatalf("renewed after %.3f of its life of %v", share, life)
			}
			if soon(Held{Expires: expires, issued: now}, at.Add(-time.Second)) {
				t.Fatalf("of a life of %v, list calls it soon before it is renewed at %v", life, at)
			}
			if again := renewAt(s, now, expires); again != at {
				t.Fatal("another replica would renew it at another time")
			}
		}
		if len(seen) < 50 {
			t.Errorf("200 Secrets are renewed at %d different times", len(seen))
		}
	}
}

func TestTriesGetRarerAndNeverRarerThanTheTimeThatIsLeftAllows(t *testing.T) {
	for _, c := range []struct {
		failures    int
		left        time.Duration
		least, most time.Duration
	}{
		{1, 100 * time.Hour, 5 * time.Second, 10 * time.Second},
		{2, 100 * time.Hour, 10 * time.Second, 20 * time.Second},
		{7, 100 * time.Hour, 5 * time.Minute, 10 * time.Minute},
		{1 << 40, 100 * time.Hour, 5 * time.Minute, 10 * time.Minute},
		{9, 10 * time.Minute, 30 * time.Second, time.Minute},
		{9, time.Second, 5 * time.Second, 10 * time.Second}, {9, 0, 5 * time.Minute, 10 * time.Minute},
	} {
		if low, high := retryAfter(c.failures, c.left, 0),
			retryAfter(c.failures, c.left, 1); low != c.least || high != c.most {
			t.Errorf("after %d failures with %v left: %v to %v, want %v to %v", c.failures, c.left, low, high, c.least, c.most)
		}
	}
}

// issuer plays the part of an API server that matters here: it tells its version to who has a token, and makes tokens.
type issuer struct {
	*httptest.Server
	status atomic.Int32  // of answers to a request for a token, 0 for a token
	grants atomic.Int64  // seconds, 0 for what is asked for
	asked  atomic.Int32  // how often
	bad    atomic.Bool   // refuses new tokens
	clock  *atomic.Int64 // seconds
	wished atomic.Int64  // the lifetime of the last request
	path   atomic.Value  // of the last request
	first  atomic.Value  // the token that was there in the beginning
	uid    types.UID     // of its namespace kube-system, "" if that may not be read
	seen   sync.Map      // the tokens that it was shown
}

func newIssuer(t *testing.T, clock *atomic.Int64) *issuer {
	t.Helper()
	i := &issuer{clock: clock}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			i.seen.Store(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), true)
			if strings.HasSuffix(r.URL.Path, "/kube-system") && i.uid != "" {
				answer(w, http.StatusOK, system(i.uid))
				return
			}
			if i.bad.Load() && r.Header.Get("Authorization") != "Bearer "+i.first.Load().(string) {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, itsVersion)
			return
		}
		i.asked.Add(1)
		i.path.Store(r.URL.Path)
		if code := i.status.Load(); code != 0 {
			answer(w, int(code), metav1.Status{Status: "Failure", Code: code,
				Reason: metav1.StatusReasonForbidden, Message: "no"})
			return
		}
		request, ok := sent[*authenticationv1.TokenRequest](t, r)
		if !ok {
			return
		}
		i.wished.Store(*request.Spec.ExpirationSeconds)
		life := *request.Spec.ExpirationSeconds
		if granted := i.grants.Load(); granted != 0 {
			life = granted
		}
		from := time.Unix(i.clock.Load(), 0)
		request.Status.Token = tokenFrom(from, from.Add(time.Duration(life)*time.Second))
		request.Status.ExpirationTimestamp = metav1.NewTime(from.Add(time.Duration(life) * time.Second))
		answer(w, http.StatusCreated, request)
	}))
	t.Cleanup(i.Close)
	return i
}

// renewing is a Renewer with one cluster, west, whose token was issued an hour ago by the clock and has an hour left.
type renewing struct {
	t     *testing.T
	r     *Renewer
	home  client.Client
	at    *issuer
	clock atomic.Int64
	owner atomic.Bool
}

func newRenewing(t *testing.T, changes ...func(*corev1.Secret)) *renewing {
	t.Helper()
	f := &renewing{t: t}
	f.clock.Store(time.Now().Unix())
	f.owner.Store(true)
	f.at = newIssuer(t, &f.clock)
	target := target{Server: f.at.URL, CA: certs.Of(f.at.Server), UID: "uid-west"}
	first := tokenFrom(f.now().Add(-time.Hour), f.now().Add(time.Hour))
	f.at.first.Store(first)
	s := newSecret("ns", "west", target.UID, everywhere)
	s.UID = "1"
	give(t, s, target, first)
	for _, change := range changes {
		change(s)
	}
	f.home = fake.NewClientBuilder().WithObjects(s).Build()
	f.r = NewRenewer(RenewerConfig{Namespace: "ns", Replica: "r1", Owner: f.owner.Load, Now: f.now})
	f.r.home, f.r.log = f.home, logr.Discard()
	t.Cleanup(func() { f.r.forget("west") }) // its metric is the process's
	return f
}

func (f *renewing) now() time.Time { return time.Unix(f.clock.Load(), 0) }

func (f *renewing) pass(d time.Duration) { f.clock.Add(int64(d / time.Second)) }

// untilDue lets time pass until the token is to be renewed.
func (f *renewing) untilDue() {
	s := f.secret()
	held := Hold(s)
	f.pass(renewAt(s, held.issued, held.Expires).Sub(f.now()) + time.Second)
}

func (f *renewing) look() time.Duration {
	f.t.Helper()
	result, err := f.r.Reconcile(f.t.Context(), ctrl.Request{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "west"},
	})
	must.Succeed(f.t, err)
	return result.RequeueAfter
}

func (f *renewing) secret() *corev1.Secret {
	f.t.Helper()
	s := &corev1.Secret{}
	must.Succeed(f.t, f.home.Get(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, s))
	return s
}

func (f *renewing) told() (all []string) {
	f.t.Helper()
	list := &eventsv1.EventList{}
	must.Succeed(f.t, f.home.List(f.t.Context(), list))
	for _, e := range list.Items {
		all = append(all, e.Type+" "+e.Reason+" "+e.Note)
	}
	return all
}

// gauge is the metric of west, -1 if there is none.
func gauge() float64 {
	if testutil.CollectAndCount(renewed) == 0 {
		return -1
	}
	return testutil.ToFloat64(renewed.WithLabelValues("west"))
}

func TestTheOwnerRenewsATokenThatWasRequestedHereWhenItIsTime(t *testing.T) {
	f := newRenewing(t)
	before := f.secret()
	f.look()
	if f.at.asked.Load() != 0 || gauge() != 1 {
		t.Fatalf("half of its life is over: asked %d times, metric %v", f.at.asked.Load(), gauge())
	}
	f.untilDue()
	f.owner.Store(false)
	least := ownersTime - time.Second // it has been due for a second at most
	if again := f.look(); f.at.asked.Load() != 0 || gauge() != 1 || again < least || again > 2*ownersTime {
		t.Fatalf("somebody else renews: asked %d times, metric %v, looked at again after %v",
			f.at.asked.Load(), gauge(), again)
	}
	f.owner.Store(true)
	f.look()
	after := f.secret()
	held := Hold(after)
	if want := f.now().Add(2 * time.Hour); !held.Expires.Equal(want) || !held.Renewed || f.at.wished.Load() != 7200 {
		t.Fatalf("expires %v, want %v; renewed again: %v; asked for %d s", held.Expires, want, held.Renewed,
			f.at.wished.Load())
	}
	if got, want := f.at.path.Load(), "/api/v1/namespaces/tenure-system/serviceaccounts/tenure/token"; got != want {
		t.Errorf("asked at %v, want %v", got, want)
	}
	was := Hold(before)
	if held.Server != was.Server || string(held.target.CA) != string(was.target.CA) ||
		after.Annotations[kubeconfig.UIDAnnotation] != "uid-west" {
		t.Error("something else than the token has changed")
	}
	f.look()
	if told := f.told(); f.at.asked.Load() != 1 || gauge() != 1 || len(told) != 1 ||
		!strings.HasPrefix(told[0], "Normal TokenRenewed cluster west: its token was renewed") {
		t.Errorf("asked %d times, metric %v, told %q", f.at.asked.Load(), gauge(), told)
	}
}

// The coordinator may be in a network from which it can't reach the cluster.
func TestAnotherReplicaRenewsATokenThatTheOwnerLeavesDue(t *testing.T) {
	f := newRenewing(t)
	f.owner.Store(false)
	f.untilDue()
	f.pass(f.look() + time.Second)
	f.look()
	if n := f.at.asked.Load(); n != 1 || !Hold(f.secret()).Expires.Equal(f.now().Add(2*time.Hour)) {
		t.Errorf("after twice what the owner has for it: asked %d times, expires %v", n, Hold(f.secret()).Expires)
	}
}

func TestAClusterThatGrantsSecondsIsAskedOnceAMinute(t *testing.T) {
	f := newRenewing(t, func(s *corev1.Secret) {
		give(t, s, Hold(s).target, tokenFrom(time.Now().Add(-9*time.Second), time.Now().Add(time.Second)))
	})
	f.at.grants.Store(5)
	for range 60 {
		f.look()
		f.pass(time.Second)
	}
	if n := f.at.asked.Load(); n != 1 || f.at.wished.Load() != 600 {
		t.Errorf("asked %d times within a minute, for %d s", n, f.at.wished.Load())
	}
	f.pass(time.Second)
	f.look()
	if n := f.at.asked.Load(); n != 2 {
		t.Errorf("asked %d times in a minute", n)
	}
}

func TestAClockThatIsFarAheadRenewsNotWithoutEnd(t *testing.T) {
	f := newRenewing(t)
	ahead := f.now().Add(100 * time.Minute)
	f.r.cfg.Now = func() time.Time { return ahead }
	f.at.grants.Store(7300) // so that it is later than the one before, and seems old all the same
	for range 5 {
		f.look()
	}
	if n := f.at.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// The pause after a renewal is a part of the new token's life, not of the old one's, which may be much longer.
func TestATokenIsRenewedInTimeAlthoughItIsShorterThanTheOneBefore(t *testing.T) {
	f := newRenewing(t) // two hours
	f.pass(55 * time.Minute)
	f.at.grants.Store(600)
	f.look()
	f.pass(9 * time.Minute)
	f.look()
	if n := f.at.asked.Load(); n != 2 {
		t.Errorf("asked %d times while the second token of ten minutes ended, want 2", n)
	}
}

// After a renewal somebody puts a token in its place that lives for a short time only.
func TestATokenOfARotationIsRenewedInTimeAlthoughOneWasRenewedJustBefore(t *testing.T) {
	f := newRenewing(t)
	f.pass(55 * time.Minute)
	f.look()
	s := f.secret()
	give(t, s, Hold(s).target, tokenFrom(f.now(), f.now().Add(10*time.Minute)))
	must.Succeed(t, f.home.Update(t.Context(), s))
	f.pass(9 * time.Minute)
	f.look()
	if n := f.at.asked.Load(); n != 2 {
		t.Errorf("asked %d times while the token of the rotation ended, want 2", n)
	}
}

func TestAKubeconfigOfSomebodyElsesIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"made by hand":       byHand,
		"its sum taken away": unsummed,
		"replaced since it was requested": func(s *corev1.Secret) {
			s.Data[kubeconfig.Key] = append(s.Data[kubeconfig.Key], '\n')
		},
		"broken": func(s *corev1.Secret) { fill(s, []byte("["), true) },
	} {
		f := newRenewing(t, change)
		f.pass(59 * time.Minute)
		if again := f.look(); again != 0 || f.at.asked.Load() != 0 || gauge() != -1 {
			t.Errorf("%s: asked %d times, metric %v, looked at again after %v", name, f.at.asked.Load(), gauge(), again)
		}
	}
}

func TestATokenThatCantBeRenewedIsKeptToldOfAndTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*issuer)
		says  string
	}{
		"no right":        {func(i *issuer) { i.status.Store(http.StatusForbidden) }, "tenure cluster add gives the right"},
		"no answer":       {func(i *issuer) { i.Close() }, "connection refused"},
		"a shorter one":   {func(i *issuer) { i.grants.Store(60) }, "--service-account-max-token-expiration"},
		"one that is bad": {func(i *issuer) { i.bad.Store(true) }, "so the one before is kept: AccessRefused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRenewing(t)
			before := f.secret()
			c.spoil(f.at)
			f.pass(40 * time.Minute)
			f.look()
			f.look() // at once: it isn't tried again yet
			if n := f.at.asked.Load(); n > 1 {
				t.Errorf("tried %d times without a pause", n)
			}
			if told := f.told(); len(told) != 1 || !strings.HasPrefix(told[0],
				"Warning TokenNotRenewed cluster west: its token expires") ||
				!strings.Contains(told[0], c.says) || !strings.Contains(told[0], "tenure cluster rotate west") {
				t.Errorf("told %q, want it to say %q", told, c.says)
			}
			if got := f.secret(); gauge() != 0 || got.ResourceVersion != before.ResourceVersion {
				t.Errorf("metric %v, the Secret has changed: %v", gauge(), got.ResourceVersion != before.ResourceVersion)
			}
			if name == "no answer" {
				return
			}
			f.at.status.Store(0)
			f.at.grants.Store(0)
			f.at.bad.Store(false)
			f.pass(retryFirst)
			f.look()
			if gauge() != 1 || !Hold(f.secret()).Expires.After(Hold(before).Expires) {
				t.Errorf("metric %v after it could be renewed", gauge())
			}
		})
	}
}

// The Secret is written only as it was read: who rotates at the same moment isn't undone.
func TestARotationMeanwhileIsNotUndone(t *testing.T) {
	f := newRenewing(t)
	f.pass(40 * time.Minute)
	stale := f.secret()
	byAdmin := f.secret()
	byAdmin.Labels["x"] = "y"
	must.Succeed(t, f.home.Update(t.Context(), byAdmin))
	attempt := f.r.try("west")
	f.r.renew(t.Context(), stale, Hold(stale), attempt)
	if got := f.secret(); got.Labels["x"] != "y" || attempt.failures != 0 || len(f.told()) != 0 {
		t.Errorf("labels %v, %d failures, told %q", got.Labels, attempt.failures, f.told())
	}
	if !slices.Equal(f.secret().Data[kubeconfig.Key], stale.Data[kubeconfig.Key]) {
		t.Error("the other's Secret was overwritten")
	}
}

func TestAKubeconfigWhoseTokenIsNotDueIsParsedRarely(t *testing.T) {
	f := newRenewing(t)
	if again := f.look(); again != lookRarely {
		t.Errorf("half an hour early, looked at again after %v", again)
	}
	f.owner.Store(false)
	if again := f.look(); again != lookOthers {
		t.Errorf("somebody else renews: looked at again after %v", again)
	}
}

// What add and rotate have in common.
func TestANewTokenIsWrittenOnlyIfTheClusterTakesIt(t *testing.T) {
	f := newRenewing(t)
	before := f.secret()
	there := &rest.Config{Host: f.at.URL, TLSClientConfig: rest.TLSClientConfig{CAData: Hold(before).target.CA}}
	put := func() (r Report, err error) {
		secret := f.secret()
		err = Onboarder{Namespace: "ns", Name: "west", Workload: there}.renewSecret(t.Context(), f.home, secret,
			Hold(secret).target, 2*time.Hour, &r)
		return r, err
	}
	f.at.bad.Store(true)
	if _, err := put(); err == nil || !strings.Contains(err.Error(), "so they weren't written: AccessRefused") {
		t.Errorf("a token that is refused: %v", err)
	}
	if after := f.secret(); after.ResourceVersion != before.ResourceVersion {
		t.Error("it was written")
	}
	f.at.bad.Store(false)
	f.at.grants.Store(3600)
	r, err := put()
	if err != nil || len(r.Lines) != 1 || !strings.HasSuffix(r.Lines[0].Done, ", in 1h") || len(r.Notes) != 1 ||
		!strings.Contains(r.Notes[0], "asked for a token for 2h, the API server granted 1h") {
		t.Errorf("%+v, %v", r, err)
	}
	if held := Hold(f.secret()); !held.Renewed || !held.Expires.Equal(f.now().Add(time.Hour)) {
		t.Errorf("the Secret holds one until %v; the fleet renews it: %v", held.Expires, held.Renewed)
	}
}

// noted is a connection that notes its end.
type noted struct {
	net.Conn
	closed *atomic.Int64
}

func (c noted) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// Nothing else would ever use it again.
func TestAConnectionThroughAProxyIsClosedOnceTheTokenIsThere(t *testing.T) {
	clock, opened, closed := &atomic.Int64{}, 0, atomic.Int64{}
	at := newIssuer(t, clock)
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	_, _, err := requestToken(t.Context(), &rest.Config{Host: at.URL, BearerToken: "token", Proxy: direct,
		TLSClientConfig: rest.TLSClientConfig{CAData: certs.Of(at.Server)},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			opened++
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return noted{c, &closed}, err
		}}, time.Hour)
	must.Succeed(t, err)
	if n := closed.Load(); opened != 1 || n == 0 {
		t.Errorf("%d connections were opened, and %d closed", opened, n)
	}
}
