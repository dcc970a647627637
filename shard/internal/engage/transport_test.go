package engage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/must"
)

func fencedServer(t *testing.T, g *Gate) (*http.Client, *Traffic, *[]string, string) {
	t.Helper()
	agents := &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*agents = append(*agents, r.Method+" "+r.UserAgent())
		_, _ = io.WriteString(w, "0123456789")
	}))
	t.Cleanup(server.Close)
	traffic := &Traffic{}
	return &http.Client{Transport: &fence{gate: g, base: http.DefaultTransport, traffic: traffic}},
		traffic, agents, server.URL
}

func TestAWriteOfAShardThatIsNotHeldIsNeverSent(t *testing.T) {
	g, _ := newTestGate(t)
	c, _, agents, url := fencedServer(t, g)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		req, _ := http.NewRequest(method, url, strings.NewReader("{}"))
		if _, err := c.Do(req); !errors.Is(err, ErrFenced) {
			t.Errorf("%s: got %v, want ErrFenced", method, err)
		}
	}
	if len(*agents) != 0 {
		t.Errorf("the server was reached: %v", *agents)
	}
}

func TestEveryRequestIsSignedWithShardEpochAndIncarnation(t *testing.T) {
	g, _ := newTestGate(t)
	c, traffic, agents, url := fencedServer(t, g)
	get := func() {
		res, err := c.Get(url)
		must.Succeed(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	get() // warming
	g.Open(7)
	get()
	res, err := c.Post(url, "application/json", strings.NewReader("{}"))
	must.Succeed(t, err)
	if body, err := io.ReadAll(res.Body); err != nil || len(body) != 10 {
		t.Errorf("the answer to a write can't be read after it was counted as answered: %q, %v", body, err)
	}
	_ = res.Body.Close()
	want := []string{
		"GET tenure/test (shard=west/01; incarnation=a-1)",
		"GET tenure/test (shard=west/01; epoch=7; incarnation=a-1)",
		"POST tenure/test (shard=west/01; epoch=7; incarnation=a-1)",
	}
	if got := strings.Join(*agents, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("requests:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	if got := traffic.ListWatchBytes.Load(); got != 20 {
		t.Errorf("bytes read: got %d, want 20 of two reads", got)
	}
	if g.writes != 0 {
		t.Errorf("%d writes counted as in flight after all were answered", g.writes)
	}
}

func TestOnlyAnAnswerSaysWhatBecameOfAWrite(t *testing.T) {
	for name, c := range map[string]struct {
		status  int // 0: none
		givenUp bool
	}{
		"not sent":     {-1, false},
		"done":         {http.StatusOK, false},
		"refused":      {http.StatusConflict, false},
		"server error": {http.StatusGatewayTimeout, true},
		"no answer":    {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFence(t, &answering{status: c.status})
			_, _ = send(t.Context(), f, http.MethodPost, "http://server/")
			if givenUp := !f.gate.givenUpAt.IsZero(); givenUp != c.givenUp {
				t.Errorf("held to be on the wire: %v, want %v", givenUp, c.givenUp)
			}
		})
	}
}

// A proxy answers so while it knows no way to the API server.
func TestWhatAProxyAnswersIsNoWordAboutAnObject(t *testing.T) {
	const json, text, object = "application/json", "text/plain", "/api/v1/namespaces/shop/pods/a"
	const none, away, status, lost = "404 page not found", http.StatusServiceUnavailable, `{"kind": "Status"}`,
		http.StatusNotFound
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
	}{
		"an object that isn't there": {http.MethodGet, object, json, status, lost},
		"the same, in binary":        {http.MethodGet, object, "application/vnd.kubernetes.protobuf", "k8s", lost},
		"a kind that isn't served":   {http.MethodGet, object, text, none + " audited", lost},
		"a proxy's text":             {http.MethodGet, object, text, "default backend - 404", away},
		"a proxy's empty answer":     {http.MethodGet, object, "", "", away},
		"a proxy's JSON":             {http.MethodGet, object, json, `{"message": "no Route"}`, away},
		"to a deletion":              {http.MethodDelete, object, text, none, away},
		"behind a path":              {http.MethodPatch, "/clusters/west" + object, text, none, away},
		"behind another API server": {http.MethodGet, "/apis/m/v1/clusters/west/proxy" + object, text, none + " audited",
			away},
		"a group that isn't served":          {http.MethodGet, "/apis/example.com/v1", text, none, lost},
		"a Pod's own answer":                 {http.MethodGet, object + "/proxy/page", text, "no such page", lost},
		"to a list":                          {http.MethodGet, "/api/v1/pods", text, none, away},
		"to a watch":                         {http.MethodGet, "/api/v1/pods?watch=1", text, none, away},
		"a list of a kind that isn't served": {http.MethodGet, "/apis/example.com/v1/ats", text, none + " audited", lost},
		"an object that there is":            {http.MethodGet, object, json, "{}", http.StatusOK},
		"what a proxy refuses otherwise":     {http.MethodDelete, object, text, "conflict", http.StatusConflict},
		"to a page to log in at":             {http.MethodGet, object, text, "elsewhere", away},
		"such a page at once":                {http.MethodGet, object, "text/html; charset=utf-8", "<html>", away},
		"such a page to a list":              {http.MethodGet, "/api/v1/pods", "text/html", "<html>", away},
		"such a page to a write":             {http.MethodPatch, object, "text/html", "<html>", away},
		"a Pod's own page":                   {http.MethodGet, object + "/proxy/page", "text/html", "<html>", http.StatusOK},
		"a Pod's own page to log in at":      {http.MethodGet, object + "/proxy/page", text, "elsewhere", http.StatusFound},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFence(t, servers(func(*http.Request) (*http.Response, error) {
				res := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}},
					Body: io.NopCloser(strings.NewReader(c.body))}
				if c.status == away {
					res.StatusCode = lost
				}
				switch c.body {
				case "elsewhere":
					res.StatusCode = http.StatusFound
				case "<html>":
					res.StatusCode = http.StatusOK
				}
				if strings.HasSuffix(c.body, "audited") {
					res.Header.Set("Audit-Id", "1")
				}
				return res, nil
			}))
			res, body, err := read(t.Context(), t, f, c.method, "http://server"+c.path)
			if err != nil || body != c.body || res.StatusCode != c.status {
				t.Errorf("%d %q (%v), want %d %q", res.StatusCode, body, err, c.status, c.body)
			}
			if served := !f.traffic.Breaker.LastUsable().IsZero(); served != (c.status != away) {
				t.Errorf("it counts as served: %v", served)
			}
		})
	}
}

// client-go makes connections of its own for these, without the shard's credentials.
func TestAShardRefusesWhatNeedsItsOwnConnection(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} { // by WebSocket, and by SPDY
		for _, of := range []string{"exec", "attach", "portforward"} {
			f := openFence(t, servers(func(*http.Request) (*http.Response, error) {
				t.Errorf("%s of %s was sent", method, of)
				return nil, io.ErrUnexpectedEOF
			}))
			body := &closable{Reader: strings.NewReader("x")}
			req := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/namespaces/shop/pods/a/"+of, body)
			if _, err := f.RoundTrip(req); !errors.Is(err, ErrUnfenceable) {
				t.Errorf("%s of %s: %v, want %v", method, of, err, ErrUnfenceable)
			}
			if _, why := f.traffic.Breaker.Open(); why != "" || !body.closed {
				t.Errorf("%s of %s: the cluster counts as %q; the body is closed: %v", method, of, why, body.closed)
			}
		}
	}
}

// closable is a body that knows whether it was closed.
type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// answering is a transport that answers at once, with a status and Retry-After. With 0 the connection is lost, with -1
// there is none.
type answering struct {
	status int
	after  string
}

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	switch a.status {
	case 0:
		return nil, io.ErrUnexpectedEOF
	case -1:
		return nil, syscall.ECONNREFUSED
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{"Retry-After": {a.after}}, Body: http.NoBody}, nil
}

// silent is a transport that never answers.
var silent = servers(func(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
})

// answerAfter answers a request after a while, unless that is given up before. 0 stands for never.
func answerAfter(req *http.Request, d time.Duration, status int) (*http.Response, error) {
	var over <-chan time.Time
	if d > 0 {
		over = time.After(d)
	}
	select {
	case <-over:
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

// openFence is the fence of a shard that is held, before a server.
func openFence(t *testing.T, server http.RoundTripper) *fence {
	return &fence{gate: openGate(t), base: server, traffic: &Traffic{}}
}

// send sends a request, and closes the answer's body.
func send(ctx context.Context, by http.RoundTripper, method, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := by.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return res, res.Body.Close()
}

// read sends a request, which is answered, and reads what it can of the answer.
func read(ctx context.Context, t *testing.T, by http.RoundTripper, method, url string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	must.Succeed(t, err)
	res, err := by.RoundTrip(req)
	must.Succeed(t, err)
	body, err := io.ReadAll(res.Body)
	return res, string(body), errors.Join(err, res.Body.Close())
}

// dripping answers at once, with one byte every so often.
type dripping struct {
	every time.Duration
	bytes int
}

func (d *dripping) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: &drip{dripping: *d, ctx: req.Context()}}, nil
}

type drip struct {
	dripping
	ctx context.Context
}

func (d *drip) Read(p []byte) (int, error) {
	if d.bytes == 0 {
		return 0, io.EOF
	}
	d.bytes--
	select {
	case <-time.After(d.every):
		return copy(p, "x"), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (d *drip) Close() error { return nil }

func TestAListIsWaitedForAsLongAsAnythingOfItArrives(t *testing.T) {
	const object, list = "/api/v1/namespaces/shop/pods/a", "/api/v1/pods"
	const inner = "/api/v1/namespaces/shop/services/east/proxy" + list // of a cluster that is reached through another
	for name, c := range map[string]struct {
		every time.Duration
		path  string
		whole bool
	}{
		"a slow list":                      {listStallAfter - time.Second, list, true},
		"a list that stalls":               {listStallAfter + time.Second, list, false},
		"a slow answer":                    {stallAfter - time.Second, object, true},
		"an answer that stalls":            {stallAfter + time.Second, object, false},
		"a list slower than other answers": {stallAfter + time.Second, list, true},
		"an inner cluster's stalled list":  {listStallAfter + time.Second, inner, false},
		"what is passed on":                {listStallAfter + time.Second, object + "/proxy/report", true},
		"a log that is long in coming":     {listStallAfter + time.Second, object + "/log", true},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			ctx := t.Context()
			if strings.HasSuffix(c.path, list) {
				ctx = context.WithValue(ctx, pageKey{}, &page{})
			}
			drips := &dripping{c.every, 10}
			server := servers(func(req *http.Request) (*http.Response, error) {
				if strings.HasSuffix(req.URL.Path, "/kube-system") {
					if streams(c.path) {
						return answerAfter(req, time.Millisecond, http.StatusOK)
					}
					return silent(req) // it says nothing else meanwhile
				}
				return drips.RoundTrip(req)
			})
			for of, through := range map[string]http.RoundTripper{
				"a shard": openFence(t, server), "no shard": Unfenced(server, &Breaker{}),
			} {
				_, body, err := read(ctx, t, through, http.MethodGet, "https://west"+c.path)
				if whole := err == nil && len(body) == 10; whole != c.whole {
					t.Errorf("of %s: read %d bytes, %v", of, len(body), err)
				}
			}
			time.Sleep(stallAfter) // until inquiries end, too
		})
	}
}

// A proxy may lose one request, while the cluster answers all others.
func TestARequestThatIsLostIsGivenUpWhateverElseTheClusterAnswers(t *testing.T) {
	const object, list = "/api/v1/namespaces/shop/pods/a", "/api/v1/pods"
	for name, c := range map[string]struct {
		path  string
		first time.Duration // until the answer begins; 0: never
		every time.Duration // between its parts
		after time.Duration // when it is given up; 0: not
	}{
		"a lost read":          {object, 0, 0, longestAnswer + stallAfter},
		"a slow read":          {object, longestAnswer, time.Second, 0},
		"a long slow answer":   {object, time.Second, 20 * time.Second, 0},
		"an answer that stops": {object, time.Second, 24 * time.Hour, time.Second + longestAnswer + stallAfter},
		"a proxied read":       {"/api/v1/namespaces/shop/services/a/proxy/report", 2 * longestAnswer, time.Second, 0},
		"a lost list":          {list, 0, 0, longestAnswer + listStallAfter},
		"a long slow list":     {list, time.Second, 20 * time.Second, 0},
		"a list just in time":  {list, time.Second, longestAnswer + listStallAfter - time.Second, 0},
		"a list just too late": {list, time.Second, longestAnswer + listStallAfter + time.Second,
			longestAnswer + listStallAfter + time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			f := openFence(t, servers(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path != c.path {
					return answerAfter(req, time.Nanosecond, http.StatusOK)
				}
				if res, err := answerAfter(req, c.first, http.StatusOK); err != nil {
					return res, err
				}
				return (&dripping{c.every, 10}).RoundTrip(req)
			}))
			others, end := context.WithCancel(t.Context())
			defer func() { end(); time.Sleep(stallAfter) }() // until the others have ended
			go func() {
				for others.Err() == nil {
					_, _ = send(others, f, http.MethodGet, "https://west/api/v1/namespaces/shop/pods/b")
					time.Sleep(time.Second)
				}
			}()
			ctx, enough := context.WithTimeout(t.Context(), time.Hour)
			defer enough()
			began := time.Now()
			if c.path == list {
				ctx = context.WithValue(ctx, pageKey{}, &page{})
			}
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://west"+c.path, nil)
			res, err := f.RoundTrip(req)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			if took := time.Since(began); (err == nil) != (c.after == 0) || err != nil && took.Round(time.Second) != c.after {
				t.Errorf("%v after %v, want it given up after %v", err, took, c.after)
			}
		})
	}
}

func TestAPathSaysWhatARequestIsAboutAndWhetherItsAnswerMayTakeItsTime(t *testing.T) {
	for path, want := range map[string]struct {
		namespace    string
		one, streams bool
	}{
		"/version":                                                                          {"", false, false},
		"/apis/apps/v1":                                                                     {"", false, false},
		"/api/v1/pods":                                                                      {"", false, false},
		"/api/v1/namespaces/shop":                                                           {"shop", true, false},
		"/api/v1/namespaces/shop/pods":                                                      {"shop", false, false},
		"/api/v1/namespaces/shop/pods/a":                                                    {"shop", true, false},
		"/api/v1/namespaces/shop/pods/a/status":                                             {"shop", false, false},
		"/api/v1/namespaces/shop/pods/a/log":                                                {"shop", false, true},
		"/api/v1/namespaces/shop/pods/a/proxy/metrics":                                      {"shop", false, true},
		"/api/v1/namespaces/shop/services/a/proxy/report":                                   {"shop", false, true},
		"/api/v1/namespaces/shop/services/a/proxy/api/v1/query":                             {"", false, true},
		"/api/v1/namespaces/apis/pods/a":                                                    {"apis", true, false},
		"/api/v1/namespaces/proxy/pods/a":                                                   {"proxy", true, false},
		"/api/v1/namespaces/services/services/a/proxy":                                      {"services", false, true},
		"/api/v1/nodes/a/proxy/metrics":                                                     {"", false, true},
		"/apis/apps/v1/namespaces/api/deployments/a":                                        {"api", true, false},
		"/apis/apps/v1/namespaces/services/deployments/proxy":                               {"services", true, false},
		"/apis/cnat.tenure.dev/v1alpha1/namespaces/shop/ats/a/status":                       {"shop", false, false},
		"/proxy/west/apis/apps/v1/namespaces/api/replicas":                                  {"api", false, false},
		"/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/pods":                   {"", false, false},
		"/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/namespaces/shop/pods/a": {"shop", true, false},
		"/api/v1/namespaces/vc/services/https:vc:443/proxy/apis/apps/v1/namespaces/shop/deployments": {"shop", false, true},
	} {
		if namespace, one, slow := namespaceOf(path), namesOne(path), streams(path); namespace != want.namespace ||
			one != want.one || slow != want.streams {
			t.Errorf("%s: namespace %q, one object: %v, may take its time: %v; want %+v", path, namespace, one, slow, want)
		}
	}
}

func TestAClusterBehindAnotherOnesProxyIsAskedItself(t *testing.T) {
	const prefix = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy"
	asked := ""
	base := servers(func(req *http.Request) (*http.Response, error) {
		asked = req.URL.Path
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	i := inquiry{base: base, to: &url.URL{Scheme: "https", Host: "h", Path: prefix + "/api/v1/namespaces/n/pods"}}
	if _, ok := i.answer(t.Context()); !ok || asked != prefix+"/api/v1/namespaces/kube-system" {
		t.Errorf("asked %q", asked)
	}
}

// An inquiry shows that a cluster is there. Whether it can be used from here, its answer says.
func TestWhatAnInquiryIsAnsweredIsNotTakenForMoreThanItSays(t *testing.T) {
	for _, c := range []struct {
		status           int
		answered, usable bool
	}{
		{http.StatusOK, true, true}, {http.StatusForbidden, true, true}, {http.StatusTooManyRequests, true, true},
		{http.StatusUnauthorized, true, false}, {http.StatusInternalServerError, false, false},
		{http.StatusNotFound, false, false}, // by a proxy: the namespace is always there
	} {
		b := &Breaker{}
		to := &url.URL{Scheme: "https", Host: "h", Path: "/api/v1/namespaces/n/pods"}
		b.ask(t.Context(), inquiry{base: &answering{c.status, "7"}, to: to}, time.Second)
		if answered, usable := !b.lastAnswer().IsZero(), !b.LastUsable().IsZero(); answered != c.answered ||
			usable != c.usable {
			t.Errorf("%d: answered %v, usable %v, want %v, %v", c.status, answered, usable, c.answered, c.usable)
		}
	}
}

func TestWhatIsAnsweredToRequestsIsJudged(t *testing.T) {
	t.Run("of a shard", func(t *testing.T) {
		judged(t, func(f *fence) http.RoundTripper { return f })
	})
	t.Run("of no shard", func(t *testing.T) {
		judged(t, func(f *fence) http.RoundTripper { return Unfenced(f.base, &f.traffic.Breaker) })
	})
}

func judged(t *testing.T, through func(*fence) http.RoundTripper) {
	synctest.Test(t, func(t *testing.T) {
		server, ctx := &answering{http.StatusUnauthorized, "7"}, t.Context()
		f := openFence(t, server)
		by, traffic := through(f), f.traffic
		send := func(method, path string) {
			t.Helper()
			_, err := send(ctx, by, method, "https://west"+path)
			must.Succeed(t, err)
		}
		const pods = "/api/v1/namespaces/shop/pods"
		for range 2 * enoughRefusals {
			send(http.MethodGet, pods+"?watch=true")
		}
		if traffic.Breaker.wait("shop") != 0 {
			t.Error("watches are judged, which say nothing about the work")
		}
		if !traffic.Breaker.LastUsable().IsZero() {
			t.Error("refused credentials show that the cluster can be used")
		}
		for range enoughRefusals {
			send(http.MethodPost, pods)
		}
		if got := traffic.Breaker.wait("shop"); got != 7*time.Second {
			t.Errorf("put off for %v, want the 7s of Retry-After", got)
		}
		if state, cause := traffic.Breaker.State(); state != protocol.ClusterOpen || cause != Unauthorized {
			t.Errorf("%s, %s", state, cause)
		}
		if traffic.Breaker.wait("bank") != 0 {
			t.Error("another namespace is put off")
		}
		server.status = http.StatusTooManyRequests
		for range 2 * enoughRefusals {
			send(http.MethodPost, "/api/v1/namespaces/inn/pods/a/eviction")
		}
		if traffic.Breaker.wait("inn") != 0 {
			t.Error("a namespace is put off for a disruption budget's word about one Pod")
		}
		for range enoughRefusals {
			send(http.MethodPut, "/api/v1/namespaces/inn/services/eviction")
		}
		if traffic.Breaker.wait("inn") == 0 {
			t.Error("what is said of an object named eviction is taken for a disruption budget's word")
		}
		server.status = http.StatusOK
		send(http.MethodGet, pods+"?watch=true")
		if _, open := traffic.Breaker.Left("shop"); !open {
			t.Error("a watch that is served closes the breaker")
		}
		send(http.MethodGet, pods+"/a")
		if _, open := traffic.Breaker.Left("shop"); open {
			t.Error("still open after a request was served")
		}
		server.status = http.StatusServiceUnavailable
		time.Sleep(FirstPause)
		for range enoughRefusals {
			send(http.MethodGet, "/api/v1/namespaces/bank")
		}
		if traffic.Breaker.wait("bank") == 0 {
			t.Error("what is refused of a Namespace itself isn't held against the work in it")
		}
		server.status = http.StatusOK
		send(http.MethodGet, pods+"/a")
		server.status = http.StatusServiceUnavailable
		time.Sleep(FirstPause)
		ctx, _ = ObeyingFor(ctx, &traffic.Breaker, "") // for a key without a namespace
		for range enoughRefusals {
			send(http.MethodPost, pods)
		}
		if traffic.Breaker.wait("") == 0 {
			t.Error("what is refused on behalf of a key isn't held against its namespace")
		}
	})
}

// A reader may take long between two reads, for instance to pass on what it has read.
func TestOnlyTheTimeThatAServerTakesMakesItLate(t *testing.T) {
	const object, long = "/api/v1/namespaces/shop/pods/a", tooLate + 100*time.Millisecond
	for name, c := range map[string]struct {
		path          string
		drips, reader time.Duration
		late          bool
	}{
		"a slow reader":                {object, 0, long, false},
		"a slow reader of a log":       {object + "/log", 0, long, false},
		"a slow server":                {object, long, 0, true},
		"a slow server behind a proxy": {object + "/proxy/report", long, 0, false},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			f := openFence(t, &dripping{c.drips, 1})
			for range fewAnswers {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://west"+c.path, nil)
				res, err := f.RoundTrip(req)
				must.Succeed(t, err)
				time.Sleep(c.reader)
				if body, err := io.ReadAll(res.Body); err != nil || len(body) != 1 {
					t.Fatalf("read %q, %v", body, err)
				}
				must.Succeed(t, res.Body.Close())
			}
			if _, cause := f.traffic.Breaker.State(); (cause == Late) != c.late {
				t.Errorf("the cluster counts as %q", cause)
			}
		})
	}
}

func TestATransportThatPanicsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			var of context.Context
			f := openFence(t, servers(func(req *http.Request) (*http.Response, error) {
				of = req.Context()
				panic("as planned")
			}))
			f.traffic.SetLimits(kubeconfig.Limits{Writes: 1})
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: the panic doesn't reach the caller", method)
					}
				}()
				_, _ = send(t.Context(), f, method, shopPods)
			}()
			if of.Err() == nil {
				t.Errorf("%s: the request is still watched over", method)
			}
			if n, _, _ := f.traffic.Writes(); n != 0 || f.gate.writes != 0 {
				t.Errorf("%s: %d places are taken, and the gate waits for %d writes", method, n, f.gate.writes)
			}
			if lost := f.traffic.UnansweredWrites.Load() == 1; lost != mutates(method) || f.gate.givenUpAt.IsZero() == lost {
				t.Errorf("%s: it counts as unanswered: %v", method, lost)
			}
		}
	})
}

// broken answers with headers, and then breaks off.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{},
		Body: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))}, nil
}

func TestAnAnswerThatBreaksOffIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFence(t, broken{})
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			ctx, asked := Obeying(t.Context())
			req, _ := http.NewRequestWithContext(ctx, method, "https://west/api/v1/namespaces/shop/pods/a", nil)
			res, err := f.RoundTrip(req)
			must.Succeed(t, err)
			time.Sleep(FirstPause)
			if _, err := io.ReadAll(res.Body); err == nil {
				t.Fatal("the answer is whole")
			}
			_ = res.Body.Close()
			b := &f.traffic.Breaker
			if open, why := b.Open(); !open || why != Silence || !asked.Lost(b) {
				t.Errorf("%s: open %v (%s), lost %v", method, open, why, asked.Lost(b))
			}
		}
		b := &Breaker{}
		to := &url.URL{Scheme: "https", Host: "h", Path: "/api/v1/namespaces/n/pods"}
		if b.ask(t.Context(), inquiry{base: broken{}, to: to}, time.Second); !b.lastAnswer().IsZero() {
			t.Error("an inquiry is answered by headers alone")
		}
	})
}

func TestASilentClusterIsNoticedThoughItsCallersAreImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFence(t, silent)
		try := func(within time.Duration) bool {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := send(ctx, f, http.MethodGet, "https://west/api/v1/namespaces/shop/pods/a")
			open, why := f.traffic.Breaker.Open()
			return err != nil && open && why == Silence
		}
		if try(FirstPause / 2) {
			t.Error("a cluster is silent after half a second")
		}
		if !try(2 * FirstPause) {
			t.Error("a cluster that was silent for two seconds isn't left alone")
		}
		time.Sleep(stallAfter) // an inquiry may outlive its request
	})
}

// What a request waits for may be a webhook, while the cluster answers inquiries and is asked nothing else.
func TestACallersDeadlineShowsThatAClusterIsSilentOnlyWhereItAnswersNoInquiry(t *testing.T) {
	const ms, object, list = time.Millisecond, "https://west/api/v1/namespaces/shop/pods/a", "https://west/api/v1/pods"
	for name, c := range map[string]struct {
		deadline, inquiries time.Duration
		answered            int // how many inquiries are
		of                  string
		silent              bool
	}{
		"no time for an inquiry":       {FirstPause, ms, 0, object, false}, // it is sent later
		"an inquiry isn't answered":    {1100 * ms, ms, 0, object, true},
		"it is":                        {1100 * ms, ms, 1, object, false},
		"it is in the end":             {1100 * ms, 500 * ms, 1, object, false},
		"each is":                      {7000 * ms, 400 * ms, 99, object, false},
		"the second has not been yet":  {3900 * ms, ms, 1, object, false},
		"the second isn't":             {4200 * ms, ms, 1, object, true},
		"no inquiry is made of a list": {4200 * ms, ms, 0, list, false},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			breaker, asked := &Breaker{}, 0
			server := servers(func(req *http.Request) (*http.Response, error) {
				if strings.HasSuffix(req.URL.Path, "/kube-system") && asked < c.answered {
					asked++
					return answerAfter(req, c.inquiries, http.StatusOK)
				}
				defer time.Sleep(2 * ms) // as on a busy machine
				return silent(req)
			})
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			time.Sleep(ms)
			_, err := send(ctx, Unfenced(server, breaker), http.MethodGet, c.of)
			if _, why := breaker.Open(); (why == Silence) != c.silent || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it counts as %q: %v", why, err)
			}
			time.Sleep(stallAfter) // an inquiry may outlive its request
		})
	}
}

func TestALogThatIsFollowedMayBeSilent(t *testing.T) {
	for query, want := range map[string]bool{"pods/p/log?follow=true": true, "pods/p/log": false, "pods?watch=1": true} {
		req, err := http.NewRequest(http.MethodGet, "https://west/api/v1/namespaces/n/"+query, nil)
		must.Succeed(t, err)
		if got := watches(req); got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}
