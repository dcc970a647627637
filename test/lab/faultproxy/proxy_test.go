package faultproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// server is an API server as far as these tests need one: it counts requests, says who asked, and streams events.
type server struct {
	*httptest.Server
	served atomic.Int64
	last   atomic.Pointer[http.Request]
	events chan string // what watches get
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{events: make(chan string, 100)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.served.Add(1)
		s.last.Store(r)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"metadata":{"name":"%s"}}`, r.Header.Get("Authorization"))
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case e := <-s.events:
				fmt.Fprintln(w, e)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certs.Of(s.Server)}}
}

// started is a proxy before a server.
func started(t *testing.T) (*server, *Proxy) {
	t.Helper()
	s := newServer(t)
	p, err := Start(Config{Upstream: s.config(), Seed: 1})
	must.Succeed(t, err)
	t.Cleanup(p.Close)
	return s, p
}

// client speaks to the proxy with or without HTTP/2.
func client(t *testing.T, p *Proxy, h2 bool) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2}
	if !h2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

const pods = "/api/v1/namespaces/default/pods"

// get asks for Pods, and returns the code of the answer.
func get(t *testing.T, c *http.Client, p *Proxy) int {
	t.Helper()
	res, err := c.Get(p.URL() + pods)
	must.Succeed(t, err)
	res.Body.Close()
	return res.StatusCode
}

func TestAWatchIsAVerbOfItsOwn(t *testing.T) {
	for query, want := range map[string]string{"": "list", "?watch=true": "watch", "?watch=1": "watch"} {
		r := httptest.NewRequest(http.MethodGet, pods+query, nil)
		if got := parse(r.Method, r.URL, ""); got.verb != want || got.resource != "pods" {
			t.Errorf("%s: %+v, want verb %s", r.URL, got, want)
		}
	}
}

func TestRequestsThatNoRulePicksPassWithTheClientsOwnToken(t *testing.T) {
	s, p := started(t)
	p.Inject(Rule{Match: Match{Verbs: []string{"create"}}, Fault: Answer, Status: 500})
	p.Inject(Rule{Match: Match{Agents: []string{"incarnation=r2-"}}, Fault: Answer, Status: 500})
	for _, h2 := range []bool{true, false} {
		r, _ := http.NewRequest(http.MethodGet, p.URL()+pods, nil)
		r.Header.Set("Authorization", "Bearer mine")
		r.Header.Set("User-Agent", "tenure/v1 (incarnation=r1-abc)")
		res, err := client(t, p, h2).Do(r)
		must.Succeed(t, err)
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(body), "Bearer mine") || s.last.Load().UserAgent() != "tenure/v1 (incarnation=r1-abc)" {
			t.Errorf("the server saw %s of %s", body, s.last.Load().UserAgent())
		}
		if want := map[bool]int{true: 2, false: 1}[h2]; res.ProtoMajor != want {
			t.Errorf("spoke HTTP/%d, want %d", res.ProtoMajor, want)
		}
	}
}

func TestARuleBefallsWhatItPicks(t *testing.T) {
	tests := []struct {
		name   string
		rule   Rule
		code   int // 0: no answer
		served int64
	}{
		{"a conflict is answered in the server's place", Rule{Fault: Answer, Status: 409}, 409, 0},
		{"an expired version too", Rule{Fault: Answer, Status: 410}, 410, 0},
		{"a lost reply was served", Rule{Fault: LoseReply}, 0, 1},
		{"dropped replies were served, and cut when the rule ends", Rule{Fault: DropReplies}, 0, 1},
		{"a blackhole's requests were not served, and cut when the rule ends", Rule{Fault: Blackhole}, 0, 0},
		{"a delayed request is served", Rule{Fault: Delay, Delay: 20 * time.Millisecond}, 200, 1},
		{"rules on watches leave others alone", Rule{Fault: CutWatch}, 200, 1},
		{"a probability of next to nothing picks nobody", Rule{Fault: Answer, Status: 500, Probability: 1e-12}, 200, 1},
	}
	for _, tt := range tests {
		for _, h2 := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", tt.name, h2), func(t *testing.T) {
				s, p := started(t)
				rule := p.Inject(tt.rule)
				if tt.code == 0 {
					var group sync.WaitGroup
					defer group.Wait()
					group.Go(func() { befalls(t, rule); rule.End() })
				}
				res, err := client(t, p, h2).Post(p.URL()+pods, "application/json", strings.NewReader("{}"))
				code := 0
				if err == nil {
					code = res.StatusCode
					res.Body.Close()
				}
				if code != tt.code || s.served.Load() != tt.served {
					t.Errorf("answered %d (%v) and served %d times, want %d and %d", code, err, s.served.Load(), tt.code, tt.served)
				}
			})
		}
	}
}

func TestATimeEndsARule(t *testing.T) {
	_, p := started(t)
	p.Inject(Rule{Fault: Answer, Status: 503, For: 10 * time.Millisecond})
	must.Until(t, "it isn't in force any more", func() bool { return get(t, client(t, p, true), p) == http.StatusOK })
}

func TestALimitEndsARule(t *testing.T) {
	_, p := started(t)
	rule := p.Inject(Rule{Fault: Answer, Status: 503, Limit: 2})
	var codes []int
	for range 3 {
		codes = append(codes, get(t, client(t, p, true), p))
	}
	if diff := cmp.Diff([]int{503, 503, 200}, codes); diff != "" || rule.Hits() != 2 {
		t.Errorf("%d hits, (-want +got):\n%s", rule.Hits(), diff)
	}
}

func TestClientGoUnderstandsTheAnswers(t *testing.T) {
	_, p := started(t)
	kubeconfig, err := clientcmd.Write(*kubeconfigOf("https://elsewhere", "mine"))
	must.Succeed(t, err)
	through, err := p.Kubeconfig(kubeconfig)
	must.Succeed(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(through)
	must.Succeed(t, err)
	c, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	pod, err := c.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || pod.Name != "Bearer mine" {
		t.Fatalf("got %v, %v", pod, err)
	}
	p.Inject(Rule{Fault: Answer, Status: 409})
	_, err = c.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	var status interface{ Status() metav1.Status }
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonConflict {
		t.Errorf("got %v, want a conflict", err)
	}
}

// watch reads lines of a watch as they come.
func watch(t *testing.T, p *Proxy) (lines chan string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+pods+"?watch=true", nil)
	res, err := client(t, p, true).Do(r)
	must.Succeed(t, err)
	lines = make(chan string, 100)
	go func() {
		defer close(lines)
		defer res.Body.Close()
		for scanner := bufio.NewScanner(res.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

func next(t *testing.T, lines chan string) string {
	t.Helper()
	select {
	case l, ok := <-lines:
		if !ok {
			return "cut"
		}
		return l
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
	}
	return ""
}

func nothing(t *testing.T, lines chan string, d time.Duration) {
	t.Helper()
	select {
	case l := <-lines:
		t.Fatalf("%q came though it was held back", l)
	case <-time.After(d):
	}
}

// befalls waits until something suffers a rule.
func befalls(t *testing.T, rule *Injection) {
	t.Helper()
	for began := time.Now(); rule.Hits() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Error("nothing suffers the rule")
			return
		}
	}
}

func TestAFrozenWatchDeliversLaterInOrder(t *testing.T) {
	s, p := started(t)
	lines := watch(t, p)
	s.events <- "1"
	if got := next(t, lines); got != "1" {
		t.Fatalf("got %q", got)
	}
	freeze := p.Inject(Rule{Fault: FreezeWatch, Match: Match{Resources: []string{"pods"}}})
	nothing(t, lines, 100*time.Millisecond)
	if n := freeze.Hits(); n != 0 {
		t.Errorf("%d hits, and nothing to hold back", n)
	}
	s.events <- "2"
	s.events <- "3"
	befalls(t, freeze)
	nothing(t, lines, 100*time.Millisecond)
	freeze.End()
	if got := next(t, lines) + next(t, lines); got != "23" || freeze.Hits() != 1 {
		t.Errorf("got %q after %d hits", got, freeze.Hits())
	}
}

func TestADelayedWatchLagsBehind(t *testing.T) {
	s, p := started(t)
	p.Inject(Rule{Fault: DelayWatch, Delay: 150 * time.Millisecond})
	lines := watch(t, p)
	began := time.Now()
	s.events <- "1"
	if got, took := next(t, lines), time.Since(began); got != "1" || took < 150*time.Millisecond {
		t.Errorf("got %q after %v", got, took)
	}
}

func TestADrippingAnswerComesByteByByteUntilTheRuleEnds(t *testing.T) {
	_, p := started(t)
	rule := p.Inject(Rule{Fault: Drip, Delay: 50 * time.Millisecond})
	began, some := time.Now(), make([]byte, 2)
	res, err := client(t, p, true).Post(p.URL()+pods, "application/json", strings.NewReader("{}"))
	must.Succeed(t, err)
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, some); err != nil || time.Since(began) < 100*time.Millisecond {
		t.Errorf("%q after %v, %v", some, time.Since(began), err)
	}
	rule.End()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) == 0 || rule.Hits() != 1 {
		t.Errorf("then %q, %v; %d hits", rest, err, rule.Hits())
	}
}

func TestAPartitionStallsAnOpenWatchAndCutsItInTheEnd(t *testing.T) {
	s, p := started(t)
	lines := watch(t, p)
	partition := p.Inject(Rule{Fault: DropReplies})
	befalls(t, partition)
	s.events <- "1"
	nothing(t, lines, 100*time.Millisecond)
	partition.End()
	if got := next(t, lines); got != "cut" {
		t.Errorf("got %q, want the watch to be cut", got)
	}
}

func TestACutWatchEndsWithItsNextEvent(t *testing.T) {
	s, p := started(t)
	lines := watch(t, p)
	p.Inject(Rule{Fault: CutWatch})
	s.events <- "1"
	if got := next(t, lines); got != "cut" {
		t.Errorf("got %q, want the watch to be cut", got)
	}
}

func TestAResetCutsWhatIsOpenAndWhatIsNew(t *testing.T) {
	_, p := started(t)
	lines := watch(t, p)
	reset := p.Inject(Rule{Fault: Reset})
	if got := next(t, lines); got != "cut" { // though nothing happens on it
		t.Errorf("got %q, want the watch to be cut", got)
	}
	if res, err := client(t, p, true).Get(p.URL() + pods); err == nil {
		res.Body.Close()
		t.Errorf("a request was answered with %d", res.StatusCode)
	}
	reset.End()
	get(t, client(t, p, true), p)
}

func kubeconfigOf(server, token string) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters["a"] = &clientcmdapi.Cluster{Server: server}
	c.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	c.CurrentContext = "a"
	return c
}

func TestARulePicksAProcessByItsConnections(t *testing.T) {
	_, p := started(t)
	other := p.Inject(Rule{Match: Match{Processes: []int{1}}, Fault: Answer, Status: 500})
	c := client(t, p, true)
	if got := get(t, c, p); got != http.StatusOK || other.Hits() != 0 {
		t.Errorf("another process's rule made it %d", got)
	}
	ours := p.Inject(Rule{Match: Match{Processes: []int{os.Getpid()}}, Fault: Answer, Status: 503})
	if got := get(t, c, p); got != http.StatusServiceUnavailable || ours.Hits() != 1 {
		t.Errorf("our own rule made it %d, %d hits", got, ours.Hits())
	}
}

func TestRequestsTakeTurnsBetweenTwoServers(t *testing.T) {
	first, second := newServer(t), newServer(t)
	p, err := Start(Config{Upstream: first.config(), Second: second.config()})
	must.Succeed(t, err)
	t.Cleanup(p.Close)
	c := client(t, p, true)
	for range 10 {
		get(t, c, p)
	}
	if first.served.Load() != 5 || second.served.Load() != 5 {
		t.Errorf("%d and %d requests, want 5 each", first.served.Load(), second.served.Load())
	}
	p.Inject(Rule{Fault: Answer, Status: 503}) // goes on to no server
	get(t, c, p)
	if p.PassedOn(0) != 5 || p.PassedOn(1) != 5 {
		t.Errorf("%d and %d requests are said to have gone on, want 5 each", p.PassedOn(0), p.PassedOn(1))
	}
}
