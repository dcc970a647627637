package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// homeOn returns the home client of incarnation a, over a client.
func homeOn(ctx context.Context, c client.Client, spawn func(func())) *homeClient {
	h := &homeClient{
		id: "a", log: logr.Discard(), failures: newHomeFailures(logr.Discard()), observer: NopObserver{},
		mail: newMailbox[driver.Event](), spawn: spawn, client: c, members: member.NewStore(c, "n", ""),
	}
	h.restart(ctx)
	return h
}

// numbers are those of the requests that were answered, in the order in which a loop takes the answers.
func (h *homeClient) numbers() (all []uint64) {
	for _, e := range append(h.mail.takeUrgent(), h.mail.take()...) {
		switch e := e.(type) {
		case driver.Written:
			all = append(all, e.Number)
		case driver.Found:
			all = append(all, e.Number)
		}
	}
	return all
}

// A home that refuses half of all requests hardly ever answers the lists of Leases and of records at once.
func TestAListIsReadAgainWhereHomeHasNoRoomForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		must.Succeed(t, errors.Join(coordinationv1.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)))
		refusals, lists := map[string][]error{}, map[string]int{}
		var mu sync.Mutex
		c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context,
			c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			mu.Lock()
			defer mu.Unlock()
			kind := fmt.Sprintf("%T", list)
			lists[kind]++
			if left := refusals[kind]; len(left) > 0 {
				refusals[kind] = left[1:]
				return left[0]
			}
			return c.List(ctx, list, opts...)
		}}).Build()
		h := homeOn(t.Context(), c, func(f func()) { f() })
		h.records = record.NewStore(c, "n", "")
		const leases, shards = "*v1.LeaseList", "*v1alpha1.ShardList"
		full, gone := apierrors.NewTooManyRequests("later", 60), apierrors.NewServiceUnavailable("away")
		for _, c := range []struct {
			refused map[string][]error
			want    map[string]int
			ok      bool
		}{
			{nil, map[string]int{leases: 1, shards: 1}, true},
			{map[string][]error{leases: {full, full, gone}}, map[string]int{leases: 4, shards: 1}, true},
			{map[string][]error{shards: {gone, full, full}, leases: {full}}, map[string]int{leases: 2, shards: 4}, true},
			{map[string][]error{shards: slices.Repeat([]error{full}, 100)}, map[string]int{leases: 1, shards: 5}, false},
			{map[string][]error{shards: {errors.New("no answer")}}, map[string]int{leases: 1, shards: 1}, false},
		} {
			clear(lists)
			refusals = maps.Clone(c.refused)
			h.read(driver.Read{Number: 1, Of: driver.Subject{All: true}, Patience: 2 * time.Second})
			found := h.mail.take()[0].(driver.Found)
			if diff := cmp.Diff(c.want, lists); diff != "" || (found.What != nil) != c.ok {
				t.Errorf("%v: found %v, by lists (-want +got):\n%s", c.refused, found.What, diff)
			}
		}
	})
}

// A loop that handles thousands of events for seconds would lapse if it came to these answers last.
func TestWhatTheOwnLeaseIsAboutIsUrgent(t *testing.T) {
	refuses := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build() // all
	h := homeOn(t.Context(), refuses, func(f func()) { f() })
	h.write(driver.Write{Number: 1, Effect: ownership.SealLease{ID: "b"}})
	h.read(driver.Read{Number: 2, Of: driver.Subject{Lease: "b"}})
	h.write(driver.Write{Number: 3, Effect: ownership.WriteLease{Lease: ownership.Lease{ID: "a"}}})
	h.read(driver.Read{Number: 4, Of: driver.Subject{Lease: "a"}})
	expect.Equal(t, "answers to", []uint64{3, 4, 1, 2}, h.numbers())
}

// hangs is a client whose requests end with their contexts.
func hangs() client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object,
			_ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
		Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch,
			_ ...client.PatchOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
}

func TestARequestIsWaitedForAsLongAsTheDriverSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := homeOn(t.Context(), hangs(), func(f func()) { go f() })
		h.write(driver.Write{Number: 1, Patience: 2 * time.Second, Effect: ownership.SealLease{Base: 1, ID: "b"}})
		h.read(driver.Read{Number: 2, Patience: 4 * time.Second, Of: driver.Subject{Lease: "b"}})
		for _, want := range [][]uint64{nil, {1}, nil, {2}} {
			time.Sleep(time.Second + time.Millisecond)
			synctest.Wait()
			expect.Equal(t, "answered a second later", want, h.numbers())
		}
	})
}

func TestWhoCannotReadHomeTakesNoPartAgain(t *testing.T) {
	for name, c := range map[string]struct {
		again, unreadable bool
		base, made        ownership.Version
	}{
		"the first time, its first listing has just been read": {unreadable: true, made: 1},
		"again, while home can be read":                        {again: true, made: 1},
		"again, while it can't":                                {again: true, unreadable: true},
		"it renews":                                            {again: true, unreadable: true, base: 1, made: 1},
	} {
		t.Run(name, func(t *testing.T) {
			sent := ownership.Version(0)
			write := func(obj client.Object) error {
				obj.SetResourceVersion("7")
				sent++
				return nil
			}
			h := homeOn(t.Context(), interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					if c.unreadable {
						return errors.New("no answer")
					}
					return nil
				},
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
					return write(obj)
				},
				Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, _ client.Patch,
					_ ...client.PatchOption) error {
					return write(obj)
				},
			}), func(f func()) { f() })
			h.records, h.again = record.NewStore(h.client, "n", ""), c.again
			h.write(driver.Write{Number: 1, Patience: time.Minute,
				Effect: ownership.WriteLease{Base: c.base, Lease: ownership.Lease{ID: "a"}}})
			told := h.mail.takeUrgent()
			if len(told) != 1 || sent != c.made || (told[0].(driver.Written).Outcome == protocol.Committed) != (c.made > 0) {
				t.Errorf("%d writes were sent, want %d; the driver is told %+v", sent, c.made, told)
			}
		})
	}
}

func TestTakingPartAgainTakesNoLongerThanTheDriverSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				time.Sleep(time.Second)
				return nil
			},
			Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
				<-ctx.Done()
				return ctx.Err()
			},
		})
		h := homeOn(t.Context(), slow, func(f func()) { f() })
		h.records, h.again = record.NewStore(h.client, "n", ""), true
		begun := time.Now()
		h.write(driver.Write{Number: 1, Patience: 3 * time.Second,
			Effect: ownership.WriteLease{Lease: ownership.Lease{ID: "a"}}})
		expect.Equal(t, "answered after", 3*time.Second, time.Since(begun))
	})
}

func TestWhenAnIncarnationStopsItsRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := homeOn(t.Context(), hangs(), func(f func()) { go f() })
		h.write(driver.Write{Number: 1, Patience: time.Minute, Effect: ownership.SealLease{Base: 1, ID: "b"}})
		synctest.Wait()
		h.restart(t.Context())
		h.write(driver.Write{Number: 2, Patience: time.Minute, Effect: ownership.SealLease{Base: 1, ID: "b"}})
		synctest.Wait()
		expect.Equal(t, "ended", []uint64{1}, h.numbers())
		time.Sleep(time.Hour)
	})
}

// The driver waits for as long as home asks for, and takes an answer for as old as it is.
func TestAnAnswerSaysWhenItCameAndForHowLongHomeAsksToBeLeftAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	must.Succeed(t, coordinationv1.AddToScheme(scheme))
	l := &loop{
		cfg: Config{Namespace: "n", Observer: NopObserver{}}, homeConfig: &rest.Config{Host: server.URL}, scheme: scheme,
		failures: newHomeFailures(logr.Discard()), clock: clock{start: time.Now()}, mail: newMailbox[driver.Event](),
		say: func() string { return "" }, ctx: t.Context(),
	}
	h, err := l.newHomeClient("a", logr.Discard())
	must.Succeed(t, err)
	before := h.clock.now()
	h.write(driver.Write{Number: 1, Patience: time.Minute, Effect: ownership.SealLease{Base: 1, ID: "b"}})
	l.beside.Wait()
	all := l.mail.take()
	if len(all) != 1 {
		t.Fatalf("%v: want one answer", all)
	}
	w, ok := all[0].(driver.Written)
	if !ok || w.After != 7*time.Second || w.At.Mono < before.Mono || w.At.Mono > h.clock.now().Mono {
		t.Errorf("%+v, sent at %v", all[0], before)
	}
}

// always is a transport that gives every request the same kind of answer.
type always func() *http.Response

func (a always) RoundTrip(*http.Request) (*http.Response, error) { return a(), nil }

func TestAWatchThatBeginsAgainIsTold(t *testing.T) {
	const leases, shards = "https://home/leases", "https://home/shards"
	status, told := http.StatusOK, 0
	w := &watchRestarts{begun: map[string]bool{}, again: func() { told++ }, next: always(func() *http.Response {
		return &http.Response{StatusCode: status, Body: http.NoBody}
	})}
	for i, step := range []struct {
		url    string
		status int
		told   int
	}{
		{leases, 200, 0}, // a list
		{leases, 200, 0},
		{leases + "?watch=true", 500, 0}, // it hasn't begun
		{leases + "?watch=true", 200, 0},
		{shards + "?watch=true", 200, 0},
		{leases, 200, 0},
		{leases + "?watch=true", 410, 0},
		{leases + "?watch=true", 200, 1},
		{shards + "?watch=true", 200, 2},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, step.url, nil)
		must.Succeed(t, err)
		status = step.status
		res, err := w.RoundTrip(req)
		must.Succeed(t, err)
		res.Body.Close()
		if told != step.told {
			t.Errorf("step %d, %s: told %d times, want %d", i, step.url, told, step.told)
		}
	}
}

func TestALapseEndsTheRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Observer: NopObserver{}}
		l := &loop{
			cfg: cfg, ctx: t.Context(), homeClient: homeOn(t.Context(), hangs(), func(f func()) { go f() }), report: &report{},
			shards: &engager{cfg: cfg, log: logr.Discard(), ctx: t.Context(), roster: newRoster(cfg), put: func(driver.Event) {},
				spawn: func(f func()) { go f() }},
		}
		l.do(driver.Write{Number: 1, Patience: time.Minute, Effect: ownership.SealLease{Base: 1, ID: "b"}})
		synctest.Wait()
		l.do(driver.Stop{})
		synctest.Wait()
		expect.Equal(t, "ended", []uint64{1}, l.homeClient.numbers())
	})
}

func TestReconcilesOfAClusterInTroubleAreNotWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		trouble error
		waits   time.Duration
	}{
		"a cluster that serves":  {nil, 20 * time.Second},
		"one that can't be used": {errors.New("no answer"), 0},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			id := keyspace.ShardID{Cluster: "west"}
			cfg := Config{Observer: NopObserver{}, DrainTimeout: 20 * time.Second}
			drained := make(chan driver.Event, 1)
			g := &engager{
				cfg: cfg, log: logr.Discard(), ctx: t.Context(), roster: newRoster(cfg),
				put: func(e driver.Event) { drained <- e }, spawn: func(f func()) { go f() },
				judge: &clusterJudge{
					clusters: newClusterSet(logr.Discard(), 0, kubeconfig.Limits{}),
					verdicts: map[keyspace.ClusterName]*clusterVerdict{"west": {trouble: c.trouble}},
				},
			}
			holds := func() bool { return true }
			e := &engagement{id: id, ctx: t.Context(), gate: engage.NewGate(t.Context(), id, "", "", holds)}
			g.roster.put(e.name(), e)
			e.gate.Open(1)
			waited := time.Duration(-1)
			go e.gate.Run(t.Context(), &engage.Traffic{}, func(ctx context.Context) {
				began := time.Now()
				<-ctx.Done()
				waited = time.Since(began)
			})
			synctest.Wait()
			g.drain(driver.Drain{ID: id})
			<-drained
			if waited != c.waits {
				t.Errorf("its reconcile is cancelled after %v, want %v", waited, c.waits)
			}
		})
	}
}

// lapses counts what it is told of.
type lapses struct {
	NopObserver
	told int
}

func (l *lapses) Lapsed(protocol.Incarnation, string) { l.told++ }

func TestOnePauseIsToldAsOneLapse(t *testing.T) {
	told := &lapses{}
	cfg := Config{Observer: told}
	g := &engager{cfg: cfg, log: logr.Discard(), ctx: t.Context(), roster: newRoster(cfg), spawn: func(func()) {}}
	for i, blank := range []bool{false, true} {
		if g.stop(driver.Stop{Blank: blank}); told.told != 1 {
			t.Errorf("after %d ends, %d lapses are told", i+1, told.told)
		}
	}
}

// A key that waits for a day would take room for a day, though another replica has its shard.
func TestKeysThatWaitLeaveTheQueueWithTheirShard(t *testing.T) {
	for name, end := range map[string]func(*engager, keyspace.ShardID){
		"closed": (*engager).close,
		"lapsed": func(g *engager, _ keyspace.ShardID) { g.stop(driver.Stop{}) },
	} {
		bubble.Run(t, name, func(t *testing.T) {
			cfg := Config{Observer: NopObserver{}}
			g := &engager{cfg: cfg, log: logr.Discard(), ctx: t.Context(), roster: newRoster(cfg),
				put: func(driver.Event) {}, spawn: func(f func()) { go f() }}
			g.roster.guards.Add(1)
			q := fairqueue.New(fairqueue.Options[mcreconcile.Request]{
				Limiter: workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request](),
				Tenant:  func(mcreconcile.Request) (cluster, namespace string) { return "west", "" },
				Part:    func(r mcreconcile.Request) string { return string(r.ClusterName) },
			})
			defer q.ShutDown()
			must.Succeed(t, g.roster.addSource(t.Context(), &kindSource{}, q))
			id := keyspace.ShardID{Cluster: "west"}
			ctx, cancel := context.WithCancel(t.Context())
			e := &engagement{id: id, ctx: ctx, cancel: cancel,
				gate: engage.NewGate(ctx, id, "", "", func() bool { return true })}
			g.roster.put(e.name(), e)
			q.AddAfter(mcreconcile.Request{ClusterName: e.name()}, 24*time.Hour)
			q.AddAfter(mcreconcile.Request{ClusterName: "east"}, 24*time.Hour)
			end(g, id)
			time.Sleep(25 * time.Hour)
			if n := q.Len(); n != 1 {
				t.Errorf("a day later %d keys are ready, want the other shard's", n)
			}
		})
	}
}
