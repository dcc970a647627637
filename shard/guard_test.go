package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/bubble"
)

// refuser is a cluster whose answers have a status, and a reconciler that makes one write there, in the namespace of
// its key.
type refuser struct {
	breaker *engage.Breaker
	engaged *engagement
	rests   func(mcreconcile.Request) bool // nothing is to be done about such a key; may be nil
	mu      sync.Mutex                     // guards all below
	status  map[string]int                 // by namespace; 201 for others
	right   map[string]bool                // keys for which it is 201 all the same
	asked   int                            // requests
	served  map[string]time.Time           // by key, when it was first
}

func (r *refuser) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	if r.rests != nil && r.rests(req) {
		return reconcile.Result{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	status := r.status[req.Namespace]
	if status == 0 || r.right[req.String()] {
		status = http.StatusCreated
	}
	to := "https://west/api/v1/namespaces/" + req.Namespace + "/pods"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, nil)
	if err == nil {
		_, err = engage.Unfenced(answer{code: status}, r.breaker).RoundTrip(request)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if status >= http.StatusBadRequest {
		return reconcile.Result{}, apierrors.NewGenericServerResponse(status, "post", corev1.Resource("pods"), req.Name,
			"refused", 0, true)
	}
	if r.served[req.String()].IsZero() {
		r.served[req.String()] = time.Now()
	}
	return reconcile.Result{}, nil
}

// becomes changes what the cluster answers in the namespace shop, and returns how often it was asked until then.
func (r *refuser) becomes(status int) (asked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status["shop"] = status
	return r.asked
}

// control does with keys what a controller with one worker does, until the test's end. It begins with some of the
// namespace shop.
func control(t *testing.T, r *refuser, keys int) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
	t.Helper()
	id := keyspace.ShardID{Cluster: "west"}
	g, gate, traffic := guarding(t, id, r)
	gate.Open(1)
	r.breaker, r.served = &traffic.Breaker, map[string]time.Time{}
	r.engaged = g.roster.get(clusterName(id))
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](
		time.Second, 5*time.Minute))
	t.Cleanup(q.ShutDown)
	go func() {
		for {
			key, end := q.Get()
			if end {
				return
			}
			result, err := g.Reconcile(t.Context(), key)
			switch {
			case err != nil:
				q.AddRateLimited(key)
			case result.RequeueAfter > 0:
				q.Forget(key)
				q.AddAfter(key, result.RequeueAfter)
			default:
				q.Forget(key)
			}
			q.Done(key)
		}
	}()
	for i := range keys {
		q.Add(keyOf("shop", i))
	}
	return q
}

// guarding guards a reconciler of one shard.
func guarding(t *testing.T, id keyspace.ShardID,
	r reconcile.TypedReconciler[mcreconcile.Request]) (*guard, *engage.Gate, *engage.Traffic) {
	traffic := &engage.Traffic{}
	gate := engage.NewGate(t.Context(), id, "tenure/test", "r1-1", func() bool { return true })
	all := newRoster(Config{})
	all.put(clusterName(id), &engagement{id: id, gate: gate, traffic: traffic})
	return newGuard(all, logr.Discard(), r), gate, traffic
}

// guardingFunc guards what reconciles keys of west, which this replica holds.
func guardingFunc(t *testing.T, do func(context.Context, *engage.Breaker) (reconcile.Result, error)) (*guard,
	*engage.Breaker) {
	var west *engage.Breaker
	g, gate, traffic := guarding(t, keyspace.ShardID{Cluster: "west"}, reconcile.TypedFunc[mcreconcile.Request](
		func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) { return do(ctx, west) }))
	west = &traffic.Breaker
	gate.Open(1)
	return g, west
}

// answered has a breaker hear of some answers with that status, to requests in the namespace shop.
func answered(b *engage.Breaker, status, times int) {
	request := &http.Request{URL: &url.URL{Path: "/api/v1/namespaces/shop/pods/a"}}
	for range times {
		b.Judge(request, &http.Response{StatusCode: status}, time.Millisecond, 0)
	}
}

func keyOf(namespace string, i int) mcreconcile.Request {
	name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
	return mcreconcile.Request{ClusterName: clusterName(keyspace.ShardID{Cluster: "west"}),
		Request: reconcile.Request{NamespacedName: name}}
}

// TestAClusterThatRefusedEverythingIsServedSoonAfterItRecovers has a cluster refuse all for so long that keys which
// back off by themselves come back minutes later.
func TestAClusterThatRefusedEverythingIsServedSoonAfterItRecovers(t *testing.T) {
	for _, c := range []struct {
		status, keys int
		outage       time.Duration
		tries        int // of each key: by 403 and 500 each has to find out by itself, later and later
	}{
		{401, 50, 4 * time.Minute, 1},
		{403, 50, 4 * time.Minute, 4},
		{429, 50, 4 * time.Minute, 1},
		{500, 50, 4 * time.Minute, 4},
		{503, 50, 4 * time.Minute, 1},
		{403, 1000, 970 * time.Second, 7}, // soon after the last try: if a key slept on, it would be for another minute
		{500, 6000, 100 * time.Second, 4},
	} {
		status, keys, outage := c.status, c.keys, c.outage
		bubble.Run(t, fmt.Sprintf("%d of %d keys", status, keys), func(t *testing.T) {
			r := &refuser{status: map[string]int{"shop": status}}
			control(t, r, keys)
			time.Sleep(outage)
			asked := r.becomes(http.StatusCreated)
			most := c.tries*keys + int(outage/time.Second)/2
			if asked > most {
				t.Errorf("%d requests during the outage, want at most %d", asked, most)
			}
			recovered := time.Now()
			pass(15 * time.Second)
			r.mu.Lock()
			defer r.mu.Unlock()
			first, last := time.Hour, time.Duration(0)
			for _, at := range r.served {
				first, last = min(first, at.Sub(recovered)), max(last, at.Sub(recovered))
			}
			if len(r.served) != keys || first > 5*time.Second {
				t.Errorf("%d of %d keys were served within 15s of the recovery, the first after %v, want all, and 5s",
					len(r.served), keys, first)
			}
			t.Logf("%d requests in vain; then all were served after %v to %v", asked, first, last)
		})
	}
}

// The cluster serves something else, and that doesn't tell whether it would serve any of them.
func TestKeysThatWereRefusedAreNotAllTriedWhenAnotherIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refuser{status: map[string]int{"shop": http.StatusForbidden}}
		q := control(t, r, 1000)
		time.Sleep(2 * time.Minute)
		before := r.becomes(http.StatusForbidden)
		const within = 4 * time.Second
		q.Add(keyOf("bank", 0))
		pass(within)
		r.mu.Lock()
		defer r.mu.Unlock()
		if most, asked := int(within/refusedEvery)+5, r.asked-before; asked > most || len(r.served) != 1 {
			t.Errorf("%d requests within %v, want at most %d; %d served", asked, within, most, len(r.served))
		}
	})
}

// The trial of keys that are refused is drawn by lot, and one that was corrected can't wait for that among hundreds.
func TestAKeyThatIsCorrectedIsServedThoughAllOthersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		r := &refuser{status: map[string]int{"shop": http.StatusForbidden}, right: map[string]bool{}}
		q := control(t, r, keys)
		time.Sleep(time.Minute)
		corrected := keyOf("shop", 7)
		r.mu.Lock()
		r.right[corrected.String()] = true
		r.mu.Unlock()
		q.Add(corrected)
		time.Sleep(engage.LongestAsked + 2*engage.LastPause)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.served[corrected.String()].IsZero() {
			t.Error("a key that was corrected still waits among those that are refused")
		}
		if most := 6 * keys; r.asked > most {
			t.Errorf("%d requests, want at most %d", r.asked, most)
		}
	})
}

// What it waited for while its cluster was away says nothing of how busy the cluster is since.
func TestAfterAnOutageOneHiccupCostsAKeyAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p putOff
		key := putOffKey{NamespacedName: keyOf("shop", 1).NamespacedName}
		p.noteAlone(key) // busy for a moment
		time.Sleep(5 * time.Minute)
		p.note(key) // then away
		if alone := p.noteAlone(key); alone != 0 {
			t.Errorf("refused for the first time since the cluster is back, and said to be for %v", alone)
		}
		time.Sleep(time.Minute)
		if alone := p.noteAlone(key); alone != time.Minute {
			t.Errorf("refused for %v, want a minute", alone)
		}
	})
}

func TestANamespaceThatIsRefusedHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refuser{status: map[string]int{"bank": http.StatusTooManyRequests}}
		q := control(t, r, 0)
		for i := range 50 {
			q.Add(keyOf("bank", i))
		}
		time.Sleep(time.Minute)
		for i := range 50 {
			began := time.Now()
			q.Add(keyOf("shop", i))
			synctest.Wait()
			r.mu.Lock()
			at := r.served[keyOf("shop", i).String()]
			r.mu.Unlock()
			if at.IsZero() || at.Sub(began) > 0 {
				t.Fatalf("key %d of the other namespace wasn't served at once", i)
			}
			time.Sleep(time.Second)
		}
	})
}

// A quota refuses many, and something else is served now and then. Nobody can tell what the next request will show.
func TestManyThatAreRefusedForThemselvesAreNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refuser{status: map[string]int{"shop": http.StatusForbidden}}
		const keys, every = 300, 8 * time.Second
		q := control(t, r, keys)
		before, rounds := 0, 0
		for began := time.Now(); time.Since(began) < 20*time.Minute; rounds++ {
			time.Sleep(every)
			q.Add(keyOf("bank", rounds))
			if rounds == 75 { // ten minutes, in which they have learnt
				before = r.becomes(http.StatusForbidden)
			}
		}
		pass(time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		most, asked := 6*keys+rounds, r.asked-before
		if asked > most || len(r.served) != rounds {
			t.Errorf("%d requests in ten minutes, want at most %d; %d others of %d were served", asked, most,
				len(r.served), rounds)
		}
		t.Logf("%d requests", asked)
	})
}

// Most keys of a cluster that is back are looked at for nothing: a watch that begins anew brings them all.
func TestKeysThatAskTheClusterNothingDoNotUseUpItsTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refuser{status: map[string]int{"shop": http.StatusServiceUnavailable},
			rests: func(req mcreconcile.Request) bool { return len(req.Name) > 1 }}
		const busy = 5
		q := control(t, r, busy)
		time.Sleep(time.Minute)
		for i := range 1000 {
			q.Add(keyOf("shop", 10+i))
		}
		r.becomes(http.StatusCreated)
		pass(5 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.served) != busy {
			t.Errorf("%d of %d keys were served within 5s of the recovery", len(r.served), busy)
		}
	})
}

func TestKeysThatArePutOffAreSeenToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refuser{status: map[string]int{"shop": http.StatusServiceUnavailable}}
		const keys = 10
		control(t, r, keys)
		time.Sleep(time.Minute)
		waits := func() fairqueue.Backlog { return r.engaged.putOff.backlog("west", nil) }
		got := waits()
		if got.Cluster != "west" || got.Ready != keys || got.Wait < 55*time.Second || len(got.Longest) != 1 ||
			got.Longest[0] != (fairqueue.Waiting{Namespace: "shop", Ready: keys, Wait: got.Wait}) {
			t.Errorf("after a minute: %+v", got)
		}
		r.becomes(http.StatusCreated)
		pass(15 * time.Second)
		if got := waits(); got.Ready != 0 || got.Wait != 0 || len(got.Longest) != 0 {
			t.Errorf("after the recovery: %+v", got)
		}
	})
}

// A quota may refuse one object for ever. Its key backs off by itself, like after any other error.
func TestAKeyThatIsRefusedWhileOthersAreServedIsNotSeenToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p putOff
		key := putOffKey{NamespacedName: keyOf("shop", 1).NamespacedName}
		p.refuse(key, false)
		time.Sleep(time.Minute)
		if got := p.backlog("west", nil); got.Ready != 1 || got.Wait != time.Minute {
			t.Errorf("while nothing was served: %+v", got)
		}
		p.refuse(key, true)
		if got := p.backlog("west", nil); got.Ready != 0 || got.Wait != 0 {
			t.Errorf("while others are served: %+v", got)
		}
	})
}

// counted is a reconciler that has the keys of its controller counted that are put off.
type counted struct {
	refuser
	waits func() []fairqueue.Backlog
}

func (c *counted) CountPutOff(waits func() []fairqueue.Backlog) { c.waits = waits }

func TestAControllerCanCountItsKeysThatArePutOff(t *testing.T) {
	var c counted
	one, other := keyspace.ShardID{Cluster: "west"}, keyspace.ShardID{Cluster: "east"}
	g, _, _ := guarding(t, one, &c)
	g.roster.put(clusterName(other), &engagement{id: other})
	if got := c.waits(); len(got) != 0 {
		t.Errorf("before any is put off: %+v", got)
	}
	e := g.roster.get(clusterName(one))
	e.putOff.note(putOffKey{g, keyOf("shop", 1).NamespacedName})
	e.putOff.note(putOffKey{&guard{}, keyOf("shop", 2).NamespacedName}) // of another controller
	if got := c.waits(); len(got) != 1 || got[0].Cluster != "west" || got[0].Ready != 1 {
		t.Errorf("one is put off: %+v", got)
	}
}

// Its API server has too many requests of one kind, or of one namespace, and serves all else.
func TestAKeyThatIsToldToWaitDoesSoWithoutBackingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			answer answer
			want   time.Duration
		}{
			{answer{code: http.StatusTooManyRequests}, engage.FirstPause},
			{answer{code: http.StatusTooManyRequests, after: "30"}, 30 * time.Second},
			{answer{code: http.StatusTooManyRequests, after: "3600"}, engage.LongestAsked},
			{answer{code: http.StatusTooManyRequests, after: "99999999999999999999"}, engage.LongestAsked},
			{answer{code: http.StatusServiceUnavailable, after: "30"}, 30 * time.Second},
			{answer{code: http.StatusServiceUnavailable, after: "300"}, longestAway}, // it may be back sooner
			{answer{code: http.StatusBadGateway}, engage.FirstPause},
			{answer{lost: errors.New("connection reset by peer")}, engage.FirstPause},
			{answer{code: http.StatusGatewayTimeout}, 0}, // this may be the key's fault
			{answer{code: http.StatusInternalServerError}, 0},
			{answer{code: http.StatusConflict, lost: errors.New("connection reset by peer")}, 0},
			{answer{code: http.StatusConflict}, 0},
		} {
			g, breaker := guardingFunc(t, func(ctx context.Context, west *engage.Breaker) (reconcile.Result, error) {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://west", nil)
				if err == nil {
					_, err = engage.Unfenced(c.answer, west).RoundTrip(request)
				}
				status := apierrors.NewGenericServerResponse(c.answer.code, "get", schema.GroupResource{}, "", "", 0, true)
				return reconcile.Result{}, errors.Join(err, status)
			})
			answered(breaker, http.StatusOK, 1)
			result, err := g.Reconcile(t.Context(), keyOf("shop", 1))
			after := result.RequeueAfter
			if (err == nil) != (c.want > 0) || after < c.want || after > c.want*5/4 {
				t.Errorf("%+v: comes back after %v, want %v (%v)", c.answer, after, c.want, err)
			}
		}
	})
}

// A reconcile may work in several clusters.
func TestWhatOneClusterAsksForIsNotObeyedForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &engage.Breaker{}
		g, breaker := guardingFunc(t, func(ctx context.Context, west *engage.Breaker) (reconcile.Result, error) {
			for breaker, wait := range map[*engage.Breaker]string{west: "7", other: "120"} {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x", nil)
				if err != nil {
					return reconcile.Result{}, err
				}
				busy := answer{code: http.StatusTooManyRequests, after: wait}
				if _, err := engage.Unfenced(busy, breaker).RoundTrip(request); err != nil {
					return reconcile.Result{}, err
				}
			}
			if asked := engage.AskedToWait(ctx, other); asked != 2*time.Minute {
				t.Errorf("the reconciler hears that the other one asked for %v", asked)
			}
			return reconcile.Result{}, apierrors.NewTooManyRequestsError("later")
		})
		answered(breaker, http.StatusOK, 1)
		result, err := g.Reconcile(t.Context(), keyOf("shop", 1))
		if after := result.RequeueAfter; err != nil || after < 7*time.Second || after > 9*time.Second {
			t.Errorf("comes back after %v, want the 7s of its own cluster (%v)", after, err)
		}
		if asked := engage.AskedToWait(t.Context(), other); asked != 0 {
			t.Errorf("outside of a reconcile %v were asked for", asked)
		}
	})
}

// It may work with home, or with an aggregated API elsewhere.
func TestWhatAnotherServerCanNotServeIsAnErrorLikeAnyOther(t *testing.T) {
	for name, other := range map[string]*engage.Breaker{"home": nil, "another cluster": {}} {
		g, west := guardingFunc(t, func(ctx context.Context, _ *engage.Breaker) (reconcile.Result, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x", nil)
			if err == nil && other != nil {
				_, err = engage.Unfenced(answer{code: http.StatusServiceUnavailable}, other).RoundTrip(request)
			}
			return reconcile.Result{}, errors.Join(err, apierrors.NewServiceUnavailable("later"))
		})
		answered(west, http.StatusOK, 1)
		result, err := g.Reconcile(t.Context(), keyOf("shop", 1))
		left := g.roster.get(keyOf("shop", 1).ClusterName).putOff.backlog("west", nil).Ready
		if !apierrors.IsServiceUnavailable(err) || !result.IsZero() || left != 0 {
			t.Errorf("%s: got %+v, %v; %d keys wait for west", name, result, err, left)
		}
		if key := keyOf("shop", 1); !strings.HasPrefix(err.Error(), "west/ "+key.NamespacedName.String()+": ") {
			t.Errorf("the error doesn't say of which key it is: %v", err)
		}
	}
}

// A key was put off in an outage, and then its object makes the reconciler panic.
func TestAKeyWhoseReconcilePanicsDoesNotWaitForItsCluster(t *testing.T) {
	g, gate, traffic := guarding(t, keyspace.ShardID{Cluster: "west"}, reconcile.TypedFunc[mcreconcile.Request](
		func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
			time.Sleep(time.Millisecond)
			panic("odd object")
		}))
	gate.Open(1)
	key := keyOf("shop", 1)
	e := g.roster.get(key.ClusterName)
	e.putOff.note(putOffKey{g, key.NamespacedName})
	answered(&traffic.Breaker, http.StatusOK, 1)
	func() {
		defer func() {
			want := fmt.Sprintf("%s %s: odd object", e.id, key.NamespacedName)
			if got, _ := recover().(string); !strings.HasPrefix(got, want) {
				t.Errorf("the worker hears %q, want %q with a stack", got, want)
			}
		}()
		_, _ = g.Reconcile(t.Context(), key)
	}()
	if left := e.putOff.backlog("west", nil).Ready; left != 0 || e.busy.Load() == 0 {
		t.Errorf("%d keys wait for the cluster; reconciles took %d ns", left, e.busy.Load())
	}
}

// Sources don't start beyond the guards that were made.
func TestAGuardOfAGuardCountsOnce(t *testing.T) {
	m := aManager(t, Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	before := m.node.roster.guards.Load()
	g := m.Guard(reconcile.TypedFunc[mcreconcile.Request](nil))
	if again := m.Guard(g); again != g || m.node.roster.guards.Load() != before+1 {
		t.Errorf("%d guards are counted, want one", m.node.roster.guards.Load()-before)
	}
}

// What a cluster asks for holds until something there is served, or the cluster is reached another way.
func TestAKeyIsNotPutOffForAsLongAsItsClusterAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := answer{code: http.StatusServiceUnavailable, after: "300"}
		g, breaker := guardingFunc(t, func(ctx context.Context, west *engage.Breaker) (reconcile.Result, error) {
			for range 3 {
				request := (&http.Request{URL: &url.URL{Path: "/api/v1/namespaces/shop/pods"}}).WithContext(ctx)
				if _, err := engage.Unfenced(busy, west).RoundTrip(request); err != nil {
					return reconcile.Result{}, err
				}
			}
			return reconcile.Result{}, apierrors.NewServiceUnavailable("later")
		})
		for _, when := range []string{"refused", "put off"} {
			result, err := g.Reconcile(t.Context(), keyOf("shop", 1))
			if after := result.RequeueAfter; err != nil || after == 0 || after > engage.LastPause*5/4 {
				t.Errorf("a key that is %s comes back after %v (%v)", when, after, err)
			}
			if wait, open := breaker.Left("shop"); !open || wait < time.Minute {
				t.Fatalf("open: %v, for %v", open, wait)
			}
		}
	})
}

// answer is how a server answers: with that code and Retry-After, or not at all.
type answer struct {
	code  int
	after string
	lost  error
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{"Retry-After": {a.after}}, Body: http.NoBody}, a.lost
}

// The next holder looks at every key. Where there is none, a key that is dropped is looked at by nobody.
func TestAKeyWhoseReconcileIsAbandonedIsTriedAgainUnlessItsTenureIsOver(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			g, gate, _ := guarding(t, keyspace.ShardID{Cluster: "west"}, reconcile.TypedFunc[mcreconcile.Request](
				func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
					<-release
					return reconcile.Result{}, nil
				}))
			gate.Open(1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // as ReconciliationTimeout sets it
			defer cancel()
			if over {
				time.AfterFunc(time.Second, gate.Shut)
			}
			e, key := g.roster.get(keyOf("shop", 1).ClusterName), putOffKey{g, keyOf("shop", 1).NamespacedName}
			e.putOff.note(key)
			if result, err := g.Reconcile(ctx, keyOf("shop", 1)); !result.IsZero() || (err == nil) != over {
				t.Errorf("tenure over: %v: got %v, %v", over, result, err)
			}
			if left := e.putOff.backlog("west", nil).Ready; left != 0 {
				t.Errorf("tenure over: %v: %d keys wait for their cluster, which didn't hinder them", over, left)
			}
		})
	}
}

// Such a key has no holder, so nobody would ever serve it.
func TestAKeyOfAClusterThatIsNoShardIsAnError(t *testing.T) {
	g, _, _ := guarding(t, keyspace.ShardID{Cluster: "west"}, &refuser{})
	_, err := g.Reconcile(t.Context(), mcreconcile.Request{ClusterName: "west"})
	if !errors.Is(err, reconcile.TerminalError(nil)) || !strings.Contains(err.Error(), "isn't a shard") {
		t.Errorf("got %v", err)
	}
	elsewhere := mcreconcile.Request{ClusterName: clusterName(keyspace.ShardID{Cluster: "east"})}
	if result, err := g.Reconcile(t.Context(), elsewhere); err != nil || !result.IsZero() {
		t.Errorf("a key that another replica serves: %v, %v", result, err)
	}
}

func TestAKeyOfTheManagersOwnClusterIsAnError(t *testing.T) {
	g, _, _ := guarding(t, keyspace.ShardID{Cluster: "west"}, &refuser{})
	_, err := g.Reconcile(t.Context(), mcreconcile.Request{})
	if !errors.Is(err, reconcile.TerminalError(nil)) || !strings.Contains(err.Error(), "HomeCluster") {
		t.Errorf("got %v", err)
	}
}
