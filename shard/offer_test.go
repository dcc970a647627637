package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/must"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

func TestWhatBecomesOfAConnectionThatIsOffered(t *testing.T) {
	resource := corev1.Resource("namespaces")
	refused := apierrors.NewUnauthorized("")
	forbidden := apierrors.NewForbidden(resource, "kube-system", errors.New("no"))
	missing := apierrors.NewNotFound(resource, "kube-system")
	busy := apierrors.NewTooManyRequests("", 1)
	for _, c := range []struct {
		what string
		e    evidence
		want offerVerdict
	}{
		{"same server, same cluster", evidence{sameServer: true, inUse: "w", offered: "w"}, replace},
		{"same server, cluster in use unknown", evidence{sameServer: true, offered: "w"}, replace},
		{"same server, another cluster", evidence{sameServer: true, inUse: "w", offered: "x"}, another},
		{"other server, same cluster", evidence{inUse: "w", offered: "w"}, beside},
		{"other server, another cluster", evidence{inUse: "w", offered: "x"}, another},
		{"other server, cluster in use unknown", evidence{offered: "w"}, another},
		{"credentials refused", evidence{sameServer: true, inUse: "w", err: refused}, refuse},
		{"credentials refused at another server", evidence{inUse: "w", err: refused}, refuse},
		{"credentials refused, cluster in use unknown", evidence{sameServer: true, err: refused}, refuse},
		{"credentials with fewer rights", evidence{sameServer: true, inUse: "w", err: forbidden}, refuse},
		{"credentials with fewer rights, those in use refused",
			evidence{sameServer: true, inUse: "w", err: forbidden, lost: true}, replace},
		{"no right to know, before and after", evidence{sameServer: true, err: forbidden}, replace},
		{"no right to know, other server", evidence{err: forbidden}, another},
		{"no kube-system, before and after", evidence{sameServer: true, err: missing}, replace},
		{"a proxy's 404, cluster in use unknown", evidence{err: apierrors.NewGenericServerResponse(404, "get", resource,
			"kube-system", "no", 0, true)}, later},
		{"server away", evidence{sameServer: true, inUse: "w", err: errors.New("connection refused")}, later},
		{"server away, cluster in use unknown", evidence{sameServer: true, err: errors.New("connection refused")}, later},
		{"server busy", evidence{inUse: "w", err: busy}, later},
	} {
		if got := judgeOffer(c.e); got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, got, c.want)
		}
	}
}

// fakeServer is an API server that knows kube-system, by one set of credentials.
type fakeServer struct {
	name string
	uid  types.UID
	code int // of all answers, 0 for 200, -1 for none
	// proxy makes its refusals those of a proxy, which don't come as a Status.
	proxy bool
	// body is what it answers to everything; "" for what an API server does.
	body string
	// keepsPods: Pods may not be listed.
	keepsPods atomic.Bool
	// ends is after how long it ends watches, in which nothing happens; 0: it never answers them.
	ends time.Duration
	// mended: from now on it answers as it should.
	mended atomic.Bool
	mu     sync.Mutex // guards code and proxy once it is used
}

func (s *fakeServer) becomes(code int, proxy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.proxy = code, proxy
}

func (s *fakeServer) CloseIdleConnections() {}

func (s *fakeServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	code, proxy := cmp.Or(s.code, http.StatusOK), s.proxy
	s.mu.Unlock()
	if s.mended.Load() {
		code = http.StatusOK
	}
	if code < 0 {
		return nil, errors.New("connection refused")
	}
	if strings.HasSuffix(req.URL.Path, "/pods") && s.keepsPods.Load() {
		code = http.StatusForbidden
	}
	if code == http.StatusOK && req.URL.Query().Has("watch") {
		if s.ends == 0 {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		stream, end := io.Pipe()
		time.AfterFunc(s.ends, func() { _ = end.Close() })
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: stream}, nil
	}
	body := &corev1.Namespace{}
	body.APIVersion, body.Kind, body.Name, body.UID = "v1", "Namespace", "kube-system", s.uid
	header := http.Header{"Content-Type": {"application/json"}, "By": {s.name}}
	text, _ := json.Marshal(body)
	switch {
	case code == http.StatusOK && s.body != "" && !s.mended.Load():
		text = []byte(s.body)
	case code == http.StatusOK && req.URL.Path == "/version":
		text = []byte(`{"gitVersion":"v1.37.2"}`)
	case code == http.StatusOK && req.URL.Path == "/api/v1":
		text = []byte(`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod"}]}`)
	case code == http.StatusOK && strings.HasSuffix(req.URL.Path, "/pods"):
		text = []byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case code == http.StatusOK:
	case proxy:
		header.Set("Content-Type", "text/plain")
		text = []byte("page not found")
	default:
		text, _ = json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Message: "no", Code: int32(code), Reason: map[int]metav1.StatusReason{
				http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
			}[code]})
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(string(text)))}, nil
}

// fakeCluster is what a provider gives.
type fakeCluster struct {
	cluster.Cluster
	config *rest.Config
}

func (c fakeCluster) GetConfig() *rest.Config    { return c.config }
func (c fakeCluster) GetScheme() *runtime.Scheme { return scheme.Scheme }

// offering is a set of clusters with a provider that gives one connection to west after the other.
type offering struct {
	*clusterSet
	t     *testing.T
	take  context.CancelFunc // the last one back
	told  atomic.Int32
	first realCluster
}

const testGrace = 10 * time.Second

// offered starts with west at https://a, behind credentials "1".
func offered(t *testing.T) *offering {
	o := offeredBy(t, &fakeServer{name: "1", uid: "w"}, &corev1.Pod{})
	if o.first.uid != "w" {
		t.Fatalf("west is %q", o.first.uid)
	}
	return o
}

// offeredBy starts with west at https://a, which the server is. It has these primary kinds.
func offeredBy(t *testing.T, first *fakeServer, kinds ...client.Object) *offering {
	o := &offering{clusterSet: newClusterSet(logr.Discard(), testGrace, kubeconfig.Limits{}), t: t, take: func() {}}
	o.primary = func(keyspace.ClusterName) []client.Object { return kinds }
	o.give("a", first)
	o.start(t.Context(), func(f func()) { go f() }, func() { o.told.Add(1) })
	synctest.Wait()
	o.first, _ = o.get("west")
	return o
}

// pass lets time pass, and all that it brings happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// addCluster adds a cluster to a set, as a provider does.
func addCluster(ctx context.Context, t *testing.T, to *clusterSet, name keyspace.ClusterName, config rest.Config) {
	t.Helper()
	must.Succeed(t, to.add(ctx, name, fakeCluster{config: &config}))
}

// give has the provider take the last connection back, as they do, and give another.
func (o *offering) give(host string, s *fakeServer) {
	o.t.Helper()
	o.take()
	ctx, cancel := context.WithCancel(o.t.Context())
	o.take = cancel
	addCluster(ctx, o.t, o.clusterSet, "west", rest.Config{Host: "https://" + host, Transport: s})
	synctest.Wait()
}

// by says which credentials requests use that are sent now over a connection.
func (o *offering) by(c realCluster) string {
	o.t.Helper()
	if c.via == nil {
		return "none"
	}
	req, _ := http.NewRequest(http.MethodGet, c.via.Config().Host, nil)
	res, err := c.via.Config().Transport.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	return res.Header.Get("By")
}

// expect says where west is now.
func (o *offering) expect(what string, sameCluster, sameConnection bool, by string) {
	o.t.Helper()
	now, _ := o.get("west")
	got := fmt.Sprint(now.clusterNo == o.first.clusterNo, now.connection == o.first.connection, o.by(now))
	if want := fmt.Sprint(sameCluster, sameConnection, by); got != want {
		o.t.Errorf("%s: same cluster, same connection, credentials: %s, want %s", what, got, want)
	}
}

func TestNewCredentialsTakeThePlaceOfThoseInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		o.give("a", &fakeServer{name: "2", uid: "w"})
		o.expect("rotated", true, true, "2")
		if by := o.by(o.first); by != "2" {
			t.Errorf("what was opened before uses %s, want the new credentials too", by)
		}
		time.Sleep(2 * testGrace)
		o.expect("after the grace", true, true, "2")
	})
}

func TestWhatIsBrokenChangesNothingAndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		bad := &fakeServer{name: "bad", uid: "w", code: http.StatusUnauthorized}
		o.give("a", bad)
		o.give("b", bad)
		o.give("a", &fakeServer{name: "away", code: -1})
		o.expect("broken three times", true, true, "1")
		if why := o.status()["west"].Refused; why != "" {
			t.Errorf("one that doesn't answer is refused: %s", why)
		}
		o.give("a", bad)
		pass(time.Hour)
		o.expect("broken for an hour", true, true, "1")
		if o.status()["west"].Refused == "" {
			t.Error("nothing says that the new credentials are refused")
		}
		bad.mended.Store(true) // the token is known at last
		pass(2 * lastAskPause)
		o.expect("mended", true, true, "bad")
		if why := o.status()["west"].Refused; why != "" {
			t.Errorf("still refused: %s", why)
		}
	})
}

// Whatever answers JSON isn't an API server yet, let alone another cluster.
func TestAnAnswerWithoutAUIDIsNoCluster(t *testing.T) {
	for _, body := range []string{`{}`, `{"kind":"Status","apiVersion":"v1","status":"Success"}`} {
		synctest.Test(t, func(t *testing.T) {
			o := offered(t)
			wrong := &fakeServer{name: "2", uid: "w", body: body}
			o.give("b", wrong)
			pass(time.Hour)
			o.expect(body, true, true, "1")
			wrong.mended.Store(true)
			pass(2 * lastAskPause)
			o.expect("once it is the cluster's", true, false, "2")
		})
	}
}

// Credentials that may not even list what is to be reconciled are no successors of some that may.
func TestCredentialsWithoutRightsReplaceNoneThatHaveThem(t *testing.T) {
	for _, host := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			o := offered(t)
			poor := &fakeServer{name: "2", uid: "w"}
			poor.keepsPods.Store(true)
			o.give(host, poor)
			pass(time.Hour)
			o.expect("without rights", true, true, "1")
			if o.status()["west"].Refused == "" {
				t.Error("nothing says that the new credentials are refused")
			}
			poor.keepsPods.Store(false)
			pass(2 * lastAskPause)
			o.expect("with rights", true, host == "a", "2")
			poor.keepsPods.Store(true)
			poorer := &fakeServer{name: "3", uid: "w"}
			poorer.keepsPods.Store(true)
			o.give(host, poorer)
			o.expect("no rights before and after", true, host == "a", "3")
			poorer.becomes(http.StatusUnauthorized, false)
			last := &fakeServer{name: "4", uid: "w"}
			last.keepsPods.Store(true)
			o.give("c", last)
			o.expect("no rights, at another server, and those in use are refused", true, false, "4")
		})
	}
}

func TestAnotherServerOfTheSameClusterIsAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		leftAlone := func() bool {
			_, traffic := o.get("west")
			open, _ := traffic.Breaker.Open()
			return open
		}
		_, traffic := o.get("west")
		answered(&traffic.Breaker, http.StatusServiceUnavailable, 3)
		if !leftAlone() {
			t.Fatal("a cluster that refuses everything isn't left alone")
		}
		o.give("b", &fakeServer{name: "2", uid: "w"})
		o.expect("moved", true, false, "2")
		if leftAlone() {
			t.Error("the new server is left alone, because the old one refused everything")
		}
		if by := o.by(o.first); by != "1" {
			t.Errorf("the caches in use are at %s, want where they are", by)
		}
	})
}

func TestAnotherClusterUnderTheSameNameIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		o.give("a", &fakeServer{name: "2", uid: "other"})
		o.expect("made anew", false, false, "2")
	})
}

func TestARemovalIsActedOnAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		o.take()
		pass(testGrace - 1)
		o.expect("within the grace", true, true, "1")
		o.give("a", &fakeServer{name: "2", uid: "w"})
		pass(testGrace)
		o.expect("it came back", true, true, "2")
		o.take()
		pass(testGrace)
		o.expect("after the grace", false, false, "none")
		if o.status()["west"].Known {
			t.Error("it counts as one of the fleet's")
		}
		_, traffic := o.get("west")
		answered(&traffic.Breaker, http.StatusServiceUnavailable, 3)
		o.give("a", &fakeServer{name: "3", uid: "w"})
		o.expect("it comes after that", false, false, "3")
		if open, _ := traffic.Breaker.Open(); open {
			t.Error("it is left alone, because the one before refused everything")
		}
	})
}

// A Secret that was replaced by a bad one is taken away: the cluster goes, although its good connection still works.
func TestARemovalCountsWhateverIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		o.give("a", &fakeServer{code: http.StatusUnauthorized})
		o.take()
		pass(testGrace)
		o.expect("removed", false, false, "none")
	})
}

func TestAClusterThatRefusesToSayWhoItIsIsServedAndAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offered(t)
		late := &fakeServer{name: "2", uid: "e", code: http.StatusForbidden}
		addCluster(t.Context(), t, o.clusterSet, "east", rest.Config{Host: "https://e", Transport: late})
		synctest.Wait()
		if c, _ := o.get("east"); !c.identified || c.uid != "" {
			t.Fatalf("east is %q, identified: %v", c.uid, c.identified)
		}
		told := o.told.Load()
		time.Sleep(10 * time.Minute)
		if o.told.Load() != told {
			t.Error("it tells of an answer that says nothing new")
		}
		late.mended.Store(true)
		pass(refusedAskPause)
		if c, _ := o.get("east"); c.uid != "e" || o.told.Load() != told+1 {
			t.Errorf("east is %q, told %d times", c.uid, o.told.Load()-told)
		}
	})
}

func TestNewCredentialsThatMayNotSayWhoTheClusterIsLeaveItKnownAndAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := offeredBy(t, &fakeServer{name: "1", uid: "w", code: http.StatusForbidden})
		late := &fakeServer{name: "2", uid: "w", code: http.StatusForbidden}
		o.give("a", late)
		time.Sleep(time.Minute)
		if c, _ := o.get("west"); o.by(c) != "2" || c.uid != "" {
			t.Fatalf("credentials %s are in use, of cluster %q", o.by(c), c.uid)
		}
		late.mended.Store(true)
		pass(refusedAskPause)
		if c, _ := o.get("west"); c.uid != "w" {
			t.Errorf("west is %q", c.uid)
		}
	})
}

// An ingress that reloads answers 404 to everything.
func TestWhatAProxyRefusesForAMomentSaysNothingOfTheCluster(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		synctest.Test(t, func(t *testing.T) {
			o := offered(t)
			proxy := &fakeServer{name: "2", uid: "e", code: code, proxy: true}
			awayAtFirst(o, code)
			addCluster(t.Context(), t, o.clusterSet, "east", rest.Config{Host: "https://e", Transport: proxy})
			pass(proxyPatience / 2)
			if c, _ := o.get("east"); c.identified {
				t.Errorf("%d: east counts as one that doesn't say who it is", code)
			}
			proxy.mended.Store(true)
			pass(lastAskPause)
			if c, _ := o.get("east"); c.uid != "e" {
				t.Errorf("%d: east is %q afterwards", code, c.uid)
			}
			moment := &fakeServer{name: "3", uid: "w", code: code, proxy: true}
			o.give("a", moment)
			if why := o.status()["west"].Refused; why != "" {
				t.Errorf("%d: new credentials are refused: %s", code, why)
			}
			o.give("c", &fakeServer{name: "4", uid: "other", code: code, proxy: true})
			o.expect("an offer behind a proxy", true, true, "1")
			for _, name := range []keyspace.ClusterName{"south", "north"} { // one after the other: neither gets more time
				goesOn := &fakeServer{code: code, proxy: true}
				addCluster(t.Context(), t, o.clusterSet, name, rest.Config{Host: "https://" + string(name), Transport: goesOn})
				pass(proxyPatience + 2*lastAskPause)
				if c, _ := o.get(name); !c.identified {
					t.Errorf("%d: %s, behind a proxy that always refuses, is never served", code, name)
				}
			}
		})
	}
}

// What the provider gave first works again, and what it gave since doesn't.
func TestAConnectionInUseIsIdentifiedWhateverBecomesOfAnOffer(t *testing.T) {
	for what, offer := range map[string]*fakeServer{
		"refused": {name: "2", code: http.StatusUnauthorized}, "away": {name: "2", code: -1},
	} {
		for _, host := range []string{"a", "b"} {
			synctest.Test(t, func(t *testing.T) {
				first := &fakeServer{name: "1", uid: "w", code: -1}
				o := offeredBy(t, first)
				o.give(host, offer)
				time.Sleep(time.Minute)
				if c, _ := o.get("west"); c.identified {
					t.Fatal("it is identified, and nothing answers")
				}
				first.mended.Store(true)
				pass(lastAskPause)
				if c, _ := o.get("west"); c.uid != "w" || o.told.Load() == 0 {
					t.Errorf("%s at %s: west is %q, told %d times", what, host, c.uid, o.told.Load())
				}
			})
		}
	}
}

// awayAtFirst has a proxy come up before the cluster behind it, long after the connection was given.
func awayAtFirst(o *offering, code int) {
	o.t.Helper()
	away := &fakeServer{uid: "l", code: -1}
	addCluster(o.t.Context(), o.t, o.clusterSet, "late", rest.Config{Host: "https://late", Transport: away})
	time.Sleep(time.Hour)
	away.becomes(code, true)
	pass(proxyPatience - lastAskPause)
	if c, _ := o.get("late"); c.identified {
		o.t.Errorf("%d: a cluster whose proxy came up first counts as one that doesn't say who it is", code)
	}
	away.becomes(http.StatusOK, false)
	pass(lastAskPause)
	if c, _ := o.get("late"); !c.identified {
		o.t.Errorf("%d: a cluster whose proxy came up first isn't known afterwards", code)
	}
}
