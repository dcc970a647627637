package onboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// sent is the object that a request must have.
func sent[T runtime.Object](t *testing.T, r *http.Request) (o T, ok bool) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	decoded, _, decoding := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if o, ok = decoded.(T); err != nil || decoding != nil || !ok {
		t.Errorf("a request with %T, want %T: %v, %v", decoded, o, err, decoding)
	}
	return o, ok
}

func answer(w http.ResponseWriter, code int, with any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(with)
}

// A far cluster answers each question late. Asked one by one, hundreds of rights would take longer than a command may.
func TestRightsAreAskedForManyAtATimeAndReportedInOrder(t *testing.T) {
	var inFlight, most atomic.Int32
	full, once := make(chan struct{}), sync.Once{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review, ok := sent[*authorizationv1.SelfSubjectAccessReview](t, r)
		if !ok {
			return
		}
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for {
			seen := most.Load()
			if n <= seen || most.CompareAndSwap(seen, n) {
				break
			}
		}
		if n == asksAtOnce {
			once.Do(func() { close(full) })
		}
		select { // nothing is answered before as many are asked as may be
		case <-full:
		case <-r.Context().Done():
			return
		}
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb != "delete"
		answer(w, http.StatusCreated, review)
	}))
	defer server.Close()
	wide := Access{Roles: []Role{Ats}}
	for i := range 100 {
		wide.Namespaces = append(wide.Namespaces, fmt.Sprint("team-", i))
	}
	rights, err := rightsIn(objectsOf(t, wide))
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // one by one, none would be answered
	defer cancel()
	missing, err := denied(ctx, &rest.Config{Host: server.URL, QPS: -1}, rights)
	must.Succeed(t, err)
	var want []Right
	for _, r := range rights {
		if r.Verb == "delete" {
			want = append(want, r)
		}
	}
	if diff := cmp.Diff(want, missing); diff != "" || len(want) == 0 {
		t.Errorf("of %d rights (-want +got):\n%s", len(rights), diff)
	}
	if most.Load() > asksAtOnce {
		t.Errorf("%d rights were asked for at a time, at most %d may be", most.Load(), asksAtOnce)
	}
}

// What the fleet says of a cluster is worth most where the cluster itself says nothing.
func TestAClusterThatDoesNotAnswerLeavesTimeForTheFleet(t *testing.T) {
	defer func(was time.Duration) { asksWithin = was }(asksWithin)
	asksWithin = 300 * time.Millisecond
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server doesn't see that the client has gone
		<-r.Context().Done()
	}))
	defer server.Close()
	p := probe{Access: everywhere}
	question, cancel := context.WithTimeout(t.Context(), lookTimeout) // of one request: there are many
	defer cancel()
	must.Succeed(t, p.ask(question, access(t, server), true))
	if question.Err() != nil {
		t.Error("no time is left for the fleet")
	}
	if !errors.Is(p.Unasked, context.DeadlineExceeded) || len(p.Asked) == 0 || len(p.Missing) > 0 {
		t.Errorf("%d rights asked for, %d missing, %v", len(p.Asked), len(p.Missing), p.Unasked)
	}
}

// A hostile API server can't fill the memory of whoever checks its cluster, often in a replica's own container.
func TestAnAnswerWithoutAnEndFailsACheck(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") == "gzip" {
			t.Error("a small answer could become a large one")
		}
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasPrefix(r.URL.Path, "/apis/cnat.") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		for range 17 {
			_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
		}
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[]}`)
	}))
	defer server.Close()
	p, large := probe{Access: everywhere}, &http.MaxBytesError{}
	if err := p.ask(t.Context(), access(t, server), false); err != nil || !errors.As(p.API, &large) {
		t.Errorf("%v, %v", err, p.API)
	}
}

// access is what a Secret of a cluster whose API server this is gives.
func access(t *testing.T, server *httptest.Server) *rest.Config {
	t.Helper()
	text, err := target{Server: server.URL, CA: certs.Of(server)}.kubeconfig("west", "token")
	must.Succeed(t, err)
	given, err := kubeconfig.Inspect(text, kubeconfig.Policy{})
	must.Succeed(t, err)
	config, err := given.REST()
	must.Succeed(t, err)
	return config
}
