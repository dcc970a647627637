package engage

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/must"
)

// slow is a cluster that takes a second for each request, and how many it had at a time at most.
type slow struct {
	mu             sync.Mutex // guards all below
	now, most, all int
}

func (s *slow) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.all++
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	return answerAfter(req, time.Second, http.StatusOK)
}

const shopPods = "https://west/api/v1/namespaces/shop/pods"

// crowd sends so many requests of one method at once, and returns how long all took.
func crowd(t *testing.T, f *fence, n int, method string) time.Duration {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := send(t.Context(), f, method, shopPods); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

func TestShardsOfAClusterShareItsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits kubeconfig.Limits
		method string
		most   int // at a time; 0 if that is left to chance
		took   time.Duration
	}{
		"none":                   {kubeconfig.Limits{}, http.MethodPost, 20, time.Second},
		"writes":                 {kubeconfig.Limits{Writes: 4}, http.MethodPost, 4, 5 * time.Second},
		"writes aren't reads":    {kubeconfig.Limits{Writes: 4}, http.MethodGet, 20, time.Second},
		"requests a second":      {kubeconfig.Limits{QPS: 2, Burst: 10}, http.MethodGet, 0, 6 * time.Second},
		"no burst is a second's": {kubeconfig.Limits{QPS: 2}, http.MethodPost, 0, 10 * time.Second},
		"both": {kubeconfig.Limits{QPS: 100, Burst: 100, Writes: 2}, http.MethodPut,
			2, 10 * time.Second},
		"less than one a second":     {kubeconfig.Limits{QPS: 0.5, Burst: 19}, http.MethodGet, 0, 3 * time.Second},
		"more than anybody can send": {kubeconfig.Limits{QPS: 1e6, Burst: 1e6}, http.MethodGet, 20, time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server, traffic := &slow{}, &Traffic{}
			traffic.SetLimits(c.limits)
			var all sync.WaitGroup
			began := time.Now()
			for range 2 { // shards
				f := openFence(t, server)
				f.traffic = traffic
				all.Go(func() { crowd(t, f, 10, c.method) })
			}
			all.Wait()
			if took := time.Since(began); took != c.took || c.most > 0 && server.most != c.most || server.all != 20 {
				t.Errorf("%d requests took %v, %d at a time; want %v, %d", server.all, took, server.most, c.took, c.most)
			}
			if state, cause := traffic.Breaker.State(); state != protocol.ClusterClosed {
				t.Errorf("who waits for its own limit blames the cluster: %s, %s", state, cause)
			}
		})
	}
}

func TestLimitsChangeInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFence(t, &slow{})
		traffic := f.traffic
		traffic.SetLimits(kubeconfig.Limits{Writes: 1})
		done := make(chan time.Duration)
		go func() { done <- crowd(t, f, 10, http.MethodPost) }()
		time.Sleep(1500 * time.Millisecond)
		if sent, waiting, limits := traffic.Writes(); sent != 1 || waiting != 8 || limits.Writes != 1 {
			t.Errorf("%d sent, %d wait, %v", sent, waiting, limits)
		}
		traffic.SetLimits(kubeconfig.Limits{}) // the other eight go at once
		if took := <-done; took != 2500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		traffic.SetLimits(kubeconfig.Limits{QPS: 1, Burst: 1})
		crowd(t, f, 2, http.MethodGet)
		traffic.SetLimits(kubeconfig.Limits{QPS: 100, Burst: 100})
		time.Sleep(time.Second)
		if took := crowd(t, f, 50, http.MethodGet); took != time.Second {
			t.Errorf("50 requests at 100 a second took %v", took)
		}
		for _, to := range []kubeconfig.Limits{{}, {QPS: 100}} {
			traffic.SetLimits(kubeconfig.Limits{QPS: 0.1, Burst: 1})
			go func() { done <- crowd(t, f, 3, http.MethodPost) }()
			time.Sleep(1500 * time.Millisecond)
			if sent, waiting, _ := traffic.Writes(); sent != 0 || waiting != 2 {
				t.Errorf("%d sent, %d wait for the rate, want 2", sent, waiting)
			}
			traffic.SetLimits(to)
			if took := <-done; took != 2500*time.Millisecond {
				t.Errorf("what waited for the old rate took %v", took)
			}
		}
		traffic.SetLimits(kubeconfig.Limits{QPS: 0.1, Burst: 1})
		crowd(t, f, 1, http.MethodGet)
		traffic.SetLimits(kubeconfig.Limits{QPS: 0.1, Burst: 1}) // as it was
		if took := crowd(t, f, 1, http.MethodGet); took < 9*time.Second {
			t.Errorf("limits that are set again without a change let a request through after %v", took)
		}
	})
}

// Many requests may find that their time is too short. They must not take the turns of those that can wait.
func TestARequestWhoseTimeIsTooShortTakesNobodysTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limit{}
		l.set(kubeconfig.Limits{QPS: 0.1, Burst: 1})
		must.Succeed(t, l.pace(t.Context()))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := l.pace(short); !errors.Is(err, kubeconfig.ErrLimited) {
					t.Errorf("%v, want that there is no time", err)
				}
			})
		}
		all.Wait()
		began := time.Now()
		if err := l.pace(t.Context()); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("the next one waits %v (%v)", time.Since(began), err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.pace(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that its caller has gone", err)
		}
	})
}

// Writes that wait for a place spend their rate when they are sent.
func TestWritesThatWaitedForAPlaceAreNoBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limit{}
		l.set(kubeconfig.Limits{QPS: 1, Burst: 1, Writes: 1})
		must.Succeed(t, l.beginWrite(t.Context()))
		sent := make(chan time.Time, 5)
		for range cap(sent) {
			go func() {
				if err := l.beginWrite(t.Context()); err != nil {
					t.Error(err)
				}
				sent <- time.Now()
				l.writes.Leave()
			}()
		}
		time.Sleep(time.Minute) // the first hangs
		l.writes.Leave()
		first := <-sent
		for range cap(sent) - 2 {
			<-sent
		}
		if took := (<-sent).Sub(first); took < 4*time.Second {
			t.Errorf("5 writes at one a second are sent within %v", took)
		}
	})
}

func TestAWriteThatWaitedForItsTurnMeetsTheGateOfThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slow{}
		f := openFence(t, server)
		g, traffic := f.gate, f.traffic
		traffic.SetLimits(kubeconfig.Limits{QPS: 0.1, Burst: 1})
		send := func(ctx context.Context) error {
			_, err := send(ctx, f, http.MethodPost, shopPods)
			return err
		}
		must.Succeed(t, send(t.Context()))
		waits := make(chan error)
		go func() { waits <- send(t.Context()) }()
		time.Sleep(time.Second)
		g.Shut()
		if err := <-waits; !errors.Is(err, ErrFenced) || server.all != 1 {
			t.Errorf("%v, %d requests sent, want it fenced", err, server.all)
		}
		g.Open(2)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := send(short); !errors.Is(err, context.DeadlineExceeded) || server.all != 1 {
			t.Errorf("%v, want no more wait than the caller has time", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		go func() { waits <- send(gone) }()
		time.Sleep(time.Millisecond)
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want it to end with its caller", err)
		}
		if sent, waiting, _ := traffic.Writes(); sent != 0 || waiting != 0 {
			t.Errorf("%d places aren't given back, %d wait", sent, waiting)
		}
	})
}

// TestWaitingForOurOwnLimitIsNotTheClustersSilence asks in vain in each way that a limit can take a caller's time. In a
// cluster that is silent it is the cluster that takes it.
func TestWaitingForOurOwnLimitIsNotTheClustersSilence(t *testing.T) {
	for name, c := range map[string]struct {
		limits  kubeconfig.Limits
		method  string
		patient time.Duration // what the caller has; the cluster takes a second
		before  int           // requests that are under way already
		limited bool
	}{
		"no turn in time":             {kubeconfig.Limits{QPS: 0.1, Burst: 1}, http.MethodGet, 5 * time.Second, 1, true},
		"no turn in time for a write": {kubeconfig.Limits{QPS: 0.1, Burst: 1}, http.MethodPatch, 5 * time.Second, 1, true},
		"behind other writes":         {kubeconfig.Limits{Writes: 1}, http.MethodPost, 500 * time.Millisecond, 1, true},
		"sent with little time": {kubeconfig.Limits{QPS: 0.25, Burst: 1}, http.MethodGet,
			4500 * time.Millisecond, 1, true},
		"a write with little time": {kubeconfig.Limits{QPS: 0.25, Burst: 1}, http.MethodPost,
			4500 * time.Millisecond, 1, true},
		"behind others, little time": {kubeconfig.Limits{Writes: 1}, http.MethodPost, 1500 * time.Millisecond, 1, true},
		"no limit":                   {kubeconfig.Limits{}, http.MethodGet, 500 * time.Millisecond, 1, false},
		"a limit that isn't reached": {kubeconfig.Limits{QPS: 10, Writes: 4}, http.MethodPost,
			500 * time.Millisecond, 1, false},
		"a wait that is no excuse": {kubeconfig.Limits{QPS: 10, Burst: 1}, http.MethodGet,
			500 * time.Millisecond, 1, false},
		"a write without any before it": {kubeconfig.Limits{QPS: 0.1, Burst: 1, Writes: 1}, http.MethodPost,
			500 * time.Millisecond, 0, false},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			f := openFence(t, &slow{})
			f.traffic.SetLimits(c.limits)
			var others sync.WaitGroup
			others.Go(func() { crowd(t, f, c.before, c.method) })
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), c.patient)
			defer cancel()
			_, err := send(ctx, f, c.method, shopPods)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kubeconfig.ErrLimited) != c.limited {
				t.Errorf("%v, want a timeout by our limits: %v", err, c.limited)
			}
			if state, cause := f.traffic.Breaker.State(); state != protocol.ClusterClosed {
				t.Errorf("the cluster is blamed: %s, %s", state, cause)
			}
			others.Wait()
		})
	}
}

func TestNoLimitCostsNothing(t *testing.T) {
	l, ctx := &limit{}, t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if l.beginWrite(ctx) == nil {
			l.writes.Leave()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
