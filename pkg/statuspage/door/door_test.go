package door

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenure-dev/tenure/test/must"
)

// replica is one whose page wants a token.
func replica(t *testing.T, code int) (*url.URL, *[]http.Header) {
	t.Helper()
	var seen []http.Header
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header)
		if r.Header.Get("Authorization") != "Bearer token" {
			code = http.StatusUnauthorized
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "the page at "+r.URL.Path)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	must.Succeed(t, err)
	return at, &seen
}

func TestOnlyWhoKnowsTheKeyGetsInAndSeesThePageAsTheCaller(t *testing.T) {
	to, seen := replica(t, http.StatusOK)
	caller, err := Options{}.caller(t.Context(), &rest.Config{Host: "https://home", BearerToken: "token",
		Impersonate: rest.ImpersonationConfig{UserName: "x"}}, nil)
	must.Succeed(t, err)
	here := httptest.NewUnstartedServer(nil)
	here.Config.Handler = guard(here.Listener.Addr().String(), "key", proxy(to, caller))
	here.Start()
	defer here.Close()
	jar, err := cookiejar.New(nil)
	must.Succeed(t, err)
	guest, stranger := &http.Client{Jar: jar}, &http.Client{}
	for _, c := range []struct {
		who          *http.Client
		method, path string
		host         string
		code         int
		want         string
	}{
		{stranger, "GET", "/status", "", http.StatusForbidden, "open the address that tenure page printed"},
		{stranger, "GET", "/status?key=made-up", "", http.StatusForbidden, ""},
		{stranger, "GET", "/status?key=", "", http.StatusForbidden, ""},
		{guest, "GET", "/status?key=key", "", http.StatusOK, "the page at /status"},
		{guest, "GET", "/status/data", "", http.StatusOK, "the page at /status/data"},
		{guest, "POST", "/status", "", http.StatusNotFound, ""},
		{guest, "GET", "/metrics", "", http.StatusNotFound, ""},
		{guest, "GET", "/statuses", "", http.StatusNotFound, ""},
		{guest, "GET", "/status/%2e%2e/metrics", "", http.StatusNotFound, ""},
		{guest, "GET", "/status", "evil.example.com", http.StatusMisdirectedRequest, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, here.URL+c.path, nil)
		must.Succeed(t, err)
		request.Host = c.host
		request.Header.Set("Authorization", "Bearer somebody's")
		response, err := c.who.Do(request)
		must.Succeed(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != c.code || !strings.Contains(string(body), c.want) {
			t.Errorf("%s %s of %q: %s, want %d and %q\n%s", c.method, c.path, c.host, response.Status, c.code, c.want, body)
		}
	}
	if len(*seen) != 2 {
		t.Errorf("the replica got %d requests, want 2", len(*seen))
	}
	for _, h := range *seen {
		if h.Get("Cookie") != "" || h.Get("Impersonate-User") != "" {
			t.Errorf("the replica got %v", h)
		}
	}
}

func TestWhyThePageCannotBeHadIsSaid(t *testing.T) {
	for _, c := range []struct {
		token string
		code  int
		want  string
	}{
		{"", http.StatusOK, "--service-account NAME"},
		{"token", http.StatusForbidden, "tenure-metrics-reader"},
		{"token", http.StatusInternalServerError, "tenure-metrics-auth"},
	} {
		to, _ := replica(t, c.code)
		caller, err := Options{}.caller(t.Context(), &rest.Config{Host: "https://home", BearerToken: c.token}, nil)
		must.Succeed(t, err)
		if err := (Options{}).try(t.Context(), caller, to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with token %q: %v, want %q", c.token, err, c.want)
		}
	}
	with := Options{Namespace: "ns", ServiceAccount: "viewer"}
	for code, want := range map[int]string{
		http.StatusUnauthorized: "doesn't accept the token of service account ns/viewer",
		http.StatusForbidden:    "service account ns/viewer may not look", http.StatusNotFound: "--sharding=off",
		http.StatusInternalServerError: "the token of service account ns/viewer",
	} {
		to, _ := replica(t, code)
		caller, err := Options{}.caller(t.Context(), &rest.Config{Host: "https://home", BearerToken: "token"}, nil)
		must.Succeed(t, err)
		if err := with.try(t.Context(), caller, to); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "client certificate") {
			t.Errorf("a service account gets %d: %v, want %q", code, err, want)
		}
	}
	nobody := Options{Namespace: "here", Selector: "app=tenure"}
	if _, err := nobody.pod(t.Context(), fake.NewClientset()); err == nil ||
		!strings.Contains(err.Error(), "no Pod with app=tenure in namespace here") {
		t.Errorf("where there is no replica: %v", err)
	}
	if _, err := (Options{Listen: "0.0.0.0:0"}).listen(); err == nil ||
		!strings.Contains(err.Error(), "must be a loopback address") {
		t.Errorf("an address for everybody: %v", err)
	}
}

func TestAnAddressThatCannotBeOpenedIsRefusedBeforeAnybodyIsAsked(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	for _, address := range []string{"0.0.0.0:0", "127.0.0.1", taken.Addr().String()} {
		err := Open(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, Options{Listen: address}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "--listen "+address) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAHomeClusterThatDoesNotAnswerIsNotWaitedForWithoutEnd(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 100 * time.Millisecond
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	defer silent.CloseClientConnections()
	for pod, want := range map[string]string{"": "looking for the replicas' Pods", "r1": "no answer from " + silent.URL} {
		err := Open(t.Context(), &rest.Config{Host: silent.URL},
			Options{Namespace: "ns", Pod: pod, Port: 1, Listen: "127.0.0.1:0"}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pod %q: %v, want %q", pod, err, want)
		}
	}
}

// A browser leaves out port 80.
func TestThePageOpensAtTheUsualPort(t *testing.T) {
	for host, code := range map[string]int{"127.0.0.1": http.StatusOK, "127.0.0.1:80": http.StatusOK,
		"localhost": http.StatusMisdirectedRequest} {
		r, w := httptest.NewRequest("GET", "http://"+host+"/status", nil), httptest.NewRecorder()
		r.AddCookie(&http.Cookie{Name: "tenure-page-80", Value: "key"})
		guard("127.0.0.1:80", "key", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%s: %d, want %d", host, w.Code, code)
		}
	}
}

func TestTwoPagesAtOnceKeepTheirOwnKeys(t *testing.T) {
	jar, err := cookiejar.New(nil)
	must.Succeed(t, err)
	browser := &http.Client{Jar: jar}
	to, _ := replica(t, http.StatusOK)
	caller, err := Options{}.caller(t.Context(), &rest.Config{Host: "https://home", BearerToken: "token"}, nil)
	must.Succeed(t, err)
	open := func(key string) string {
		here := httptest.NewUnstartedServer(nil)
		here.Config.Handler = guard(here.Listener.Addr().String(), key, proxy(to, caller))
		here.Start()
		t.Cleanup(here.Close)
		return here.URL + "/status"
	}
	first, second := open("a"), open("b")
	for _, address := range []string{first + "?key=a", second + "?key=b", first, second} {
		res, err := browser.Get(address)
		must.Succeed(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", address, res.Status)
		}
	}
}

// A page may stay open for longer than a token lives.
func TestAServiceAccountsTokenIsRenewedInTime(t *testing.T) {
	clients, asked := fake.NewClientset(), 0
	clients.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "token", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Second)),
		}}, nil
	})
	to, _ := replica(t, http.StatusOK)
	began := time.Now()
	caller, err := Options{Namespace: "ns", ServiceAccount: "viewer"}.caller(t.Context(), &rest.Config{}, clients)
	must.Succeed(t, err)
	look := func() {
		t.Helper()
		if err := (Options{}).try(t.Context(), caller, to); err != nil {
			t.Error(err)
		}
	}
	look()
	if asked != 1 && time.Since(began) < 800*time.Millisecond { // later, the first is as good as over
		t.Errorf("%d tokens were requested for a first look", asked)
	}
	before := asked
	time.Sleep(900 * time.Millisecond)
	look()
	if asked != before+1 {
		t.Errorf("%d tokens were requested in nine tenths of the life of the last, want 1", asked-before)
	}
}
