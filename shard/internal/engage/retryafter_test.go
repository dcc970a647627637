package engage

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/must"
)

// servers answers requests.
type servers func(*http.Request) (*http.Response, error)

func (s servers) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// closing is a transport that can be told to close its idle connections.
type closing struct {
	http.RoundTripper
	told bool
}

func (c *closing) CloseIdleConnections() { c.told = true }

func TestIdleConnectionsBelowAreClosed(t *testing.T) {
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{"Obedient": Obedient, "Noting": Noting} {
		below := &closing{}
		if utilnet.CloseIdleConnectionsFor(wrap(below)); !below.told {
			t.Errorf("%s: they stay open", name)
		}
	}
}

func TestHowLongTheAPIServerAsksToWaitIsToldAndTheClientNotMadeToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for header, want := range map[string]time.Duration{
			"": 0, "1": time.Second, "90": 90 * time.Second, "999999999": time.Hour, "soon": 0, "-1": 0,
			"99999999999999999999": time.Hour, "-99999999999999999999": 0,
			in(time.Minute): time.Minute, in(-time.Minute): 0, in(48 * time.Hour): time.Hour,
		} {
			server := &answering{http.StatusTooManyRequests, header}
			ctx, asked := Obeying(t.Context())
			res, err := send(ctx, Obedient(server), http.MethodPatch, "https://home")
			if err != nil || res.Header.Get("Retry-After") != "" || asked.Wait(nil) != want {
				t.Errorf("Retry-After %q: %v is waited for (%v), and the client sees %q", header, asked.Wait(nil), err,
					res.Header.Get("Retry-After"))
			}
			res, err = send(context.Background(), Obedient(server), http.MethodPatch, "https://home") // nobody wants to know
			if err != nil || res.Header.Get("Retry-After") != "" {
				t.Errorf("the client waits by itself: %q (%v)", res.Header.Get("Retry-After"), err)
			}
		}
	})
	for header, want := range map[string]string{"3600": "5", "0": "", "-5": ""} {
		by := Noting(&answering{http.StatusServiceUnavailable, header})
		res, err := send(t.Context(), by, http.MethodGet, "https://home/api/v1/secrets?watch=true")
		if err != nil || res.Header.Get("Retry-After") != want {
			t.Errorf("Retry-After %q: a watch waits by itself for %q s (%v)", header, res.Header.Get("Retry-After"), err)
		}
	}
	failing := servers(func(*http.Request) (*http.Response, error) { return nil, errors.New("cut") })
	if _, err := Obedient(failing).RoundTrip(&http.Request{}); err == nil {
		t.Error("a request that failed is told to have succeeded")
	}
}

func TestWhatOneClusterAsksForIsNotSaidOfAnother(t *testing.T) {
	ctx, asked := Obeying(t.Context())
	west, east := &Breaker{}, &Breaker{}
	asked.note(askedBy{cluster: west, longest: 2 * time.Second, busy: true})
	asked.note(askedBy{cluster: east, longest: time.Minute, lost: true})
	asked.note(askedBy{cluster: west, longest: time.Second})
	want := []askedBy{{west, 2 * time.Second, false, true}, {east, time.Minute, true, false}}
	if got := []askedBy{asked.about(west), asked.about(east)}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if AskedToWait(ctx, east) != time.Minute || AskedToWait(ctx, nil) != 0 || AskedToWait(t.Context(), east) != 0 {
		t.Errorf("east asked for %v, home for %v, and in no reconcile for %v", AskedToWait(ctx, east), AskedToWait(ctx, nil),
			AskedToWait(t.Context(), east))
	}
}

// throttled is a client of a cluster that answers everything with a status, and asks to be left alone for ten minutes.
func throttled(t *testing.T, status int) (client.Client, *Traffic) {
	t.Helper()
	return clientOf(t, servers(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"600"}}, Request: r,
			Body: io.NopCloser(strings.NewReader("too many requests"))}, nil
	}))
}

// clientOf is a client of Pods, before a server.
func clientOf(t *testing.T, server http.RoundTripper) (client.Client, *Traffic) {
	t.Helper()
	f, pods := openFence(t, server), meta.NewDefaultRESTMapper(nil)
	pods.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: "https://west"}, client.Options{Mapper: pods,
		HTTPClient: &http.Client{Transport: f}})
	must.Succeed(t, err)
	return c, f.traffic
}

// client-go would wait for as long as it is told to, ten times, and hold a worker meanwhile.
func TestAWorkerIsNotHeldForAsLongAsAClusterAsksToBeLeftAlone(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			c, traffic := throttled(t, status)
			ctx, asked := Obeying(t.Context())
			began, pod := time.Now(), &corev1.Pod{}
			pod.Namespace, pod.Name = "shop", "a"
			err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			if took := time.Since(began); err == nil || took > time.Second {
				t.Errorf("%d: a read took %v (%v)", status, took, err)
			}
			if status == http.StatusTooManyRequests && !apierrors.IsTooManyRequests(err) {
				t.Errorf("the error doesn't say what it is: %v", err)
			}
			for range enoughRefusals {
				_ = c.Create(ctx, pod.DeepCopy())
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%d: writes took %v", status, took)
			}
			told := asked.Wait(&traffic.Breaker)
			if wait, open := traffic.Breaker.Left("shop"); !open || wait != LongestAsked || told != 10*time.Minute {
				t.Errorf("%d: put off for %v, and told to wait for %v", status, wait, told)
			}
		})
	}
}

// client-go would send a read again by itself, ten times, and hold a worker meanwhile.
func TestAWorkerIsNotHeldByAClusterThatClosesConnections(t *testing.T) {
	for name, lost := range map[string]error{
		"reset": &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, "closed": io.EOF,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := clientOf(t, servers(func(*http.Request) (*http.Response, error) { return nil, lost }))
			ctx, _ := Obeying(t.Context())
			began, pod := time.Now(), &corev1.Pod{}
			err := c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "a"}, pod)
			if took := time.Since(began); !errors.Is(err, ErrStalled) || took > 2*FirstPause {
				t.Errorf("%s: a read took %v (%v)", name, took, err)
			}
		})
	}
}
