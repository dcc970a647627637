package shard

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/must"
)

// timed is a shard that is open, with a source whose objects say in an annotation for what they wait.
type timed struct {
	*kindSource
	e      *engagement
	store  *informer.Store
	events *watch.RaceFreeFakeWatcher
	q      priorityqueue.PriorityQueue[mcreconcile.Request]
	began  time.Time
}

const dueIn = "due"

func waits(name, due string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n",
		Annotations: map[string]string{dueIn: due}}}
}

// listed has its lists taken for what they are.
type listed struct{ *toolscache.ListWatch }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// run keeps a store of ConfigMaps, with these at first and what the watch brings.
func run(ctx context.Context, store *informer.Store, there []corev1.ConfigMap, events watch.Interface) {
	store.Run(ctx, listed{&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return &corev1.ConfigMapList{Items: there, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}}, &corev1.ConfigMap{})
}

// newTimed needs a bubble.
func newTimed(t *testing.T, there ...corev1.ConfigMap) *timed {
	ctx, cancel := context.WithCancel(t.Context())
	r := &timed{events: watch.NewRaceFreeFake(), q: priorityqueue.New[mcreconcile.Request]("test"), began: time.Now()}
	r.store = informer.New(informer.Config{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaced: true})
	wanted := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetAnnotations()["refused"] == "" })
	r.kindSource = &kindSource{keys: ownKey, filter: wanted, queue: r.q, due: func(o client.Object) time.Time {
		if after, err := time.ParseDuration(o.GetAnnotations()[dueIn]); err == nil {
			return r.began.Add(after)
		}
		return time.Time{}
	}}
	id := keyspace.ShardID{Cluster: "west"}
	r.e = &engagement{id: id, ctx: ctx, cancel: cancel,
		gate: engage.NewGate(ctx, id, "test", "me", func() bool { return true })}
	r.e.alarms(r.kindSource).store = func() *informer.Store { return r.store }
	go run(ctx, r.store, there, r.events)
	synctest.Wait()
	must.Succeed(t, r.attach(r.e, r.store))
	r.e.gate.Open(1)
	r.backfill(r.e, r.store.All())
	t.Cleanup(func() {
		r.e.shut()
		r.events.Stop()
		r.q.ShutDown()
		synctest.Wait()
	})
	return r
}

// until returns the keys that come until then, each with when it came.
func (r *timed) until(end time.Duration) string {
	var all []string
	took := make(chan struct{})
	stop := time.After(end - time.Since(r.began))
	go func() {
		defer close(took)
		for {
			req, shutdown := r.q.Get()
			if shutdown || req.Name == "stop" {
				r.q.Done(req)
				return
			}
			all = append(all, fmt.Sprintf("%s@%s", req.Name, time.Since(r.began).Round(time.Millisecond)))
			r.q.Done(req)
		}
	}()
	<-stop
	stopping := mcreconcile.Request{}
	stopping.Name = "stop"
	r.q.Add(stopping)
	<-took
	return strings.Join(all, " ")
}

func (r *timed) expect(t *testing.T, end time.Duration, want string) {
	t.Helper()
	if got := r.until(end); got != want {
		t.Errorf("until %s: got %q, want %q", end, got, want)
	}
}

// What a shard's caches hold is enqueued at the time that it is due, the longest overdue first, and otherwise behind
// what is live.
func TestBackfillKeepsToWhatIsDueWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, *waits("untimed", ""), *waits("later", "1m"), *waits("soon", "1s"), *waits("overdue", "-1s"),
			*waits("long overdue", "-1h"))
		event := waits("event", "")
		r.enqueue(r.e, event, live)
		synctest.Wait()
		if r.q.Len() != 4 {
			t.Errorf("%d keys are ready, want all that have no time to wait for", r.q.Len())
		}
		r.expect(t, time.Hour, "long overdue@0s overdue@0s event@0s untimed@0s soon@1s later@1m0s")
	})
}

// After an API server's restart a real change must not wait behind all that is as it was.
func TestWhatIsListedAnewUnchangedIsEnqueuedBehindWhatIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t)
		at := func(name, due, version string) *corev1.ConfigMap {
			o := waits(name, due)
			o.ResourceVersion = version
			return o
		}
		for _, name := range []string{"a", "b", "c"} {
			r.updated(r.e, at(name, "", "7"), at(name, "", "7"))
		}
		r.updated(r.e, at("overdue", "-1s", "7"), at("overdue", "-1s", "7"))
		r.updated(r.e, at("later", "1m", "7"), at("later", "1m", "7"))
		r.updated(r.e, at("new", "", "7"), at("new", "", "8"))
		r.updated(r.e, at("c", "", "7"), at("c", "", "9"))
		r.updated(r.e, at("unversioned", "", ""), at("unversioned", "", ""))
		r.expect(t, time.Second, "overdue@0s new@0s c@0s unversioned@0s a@0s b@0s")
	})
}

func TestWhatWaitsIsEnqueuedWhenItsTimeComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, *waits("moved", "1h"), *waits("earlier", "3h"), *waits("deleted", "1h"), *waits("freed", "1h"),
			*waits("stays", "1h"))
		r.events.Add(waits("new", "2h"))
		r.events.Modify(waits("moved", "2h"))
		r.events.Modify(waits("moved", "4h"))
		r.events.Modify(waits("earlier", "30m"))
		r.events.Modify(waits("stays", "1h"))
		r.events.Delete(waits("deleted", "1h"))
		r.events.Modify(waits("freed", ""))
		r.expect(t, time.Minute, "deleted@0s freed@0s") // their reconcilers may have something to clean up
		r.expect(t, 10*time.Hour, "earlier@30m0s stays@1h0m0s new@2h0m0s moved@4h0m0s")
	})
}

// A time may be in what a predicate leaves out of account, such as in a status.
func TestATimeIsKeptToThatAChangeWhichIsRefusedHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := waits("refused", "1h")
		refused.Annotations["refused"] = "yes"
		r := newTimed(t, *waits("later", "1h"), *waits("earlier", "1h"), *waits("over", "1h"), *waits("freed", "1h"),
			*waits("stays", "1h"), *refused)
		r.filter = predicate.And(r.filter, predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
		refused = refused.DeepCopy()
		refused.Annotations[dueIn] = "3h"
		for _, o := range []*corev1.ConfigMap{waits("later", "2h"), waits("earlier", "30m"), waits("over", "-1s"),
			waits("freed", ""), waits("stays", "1h"), refused} {
			r.events.Modify(o)
		}
		r.expect(t, 10*time.Hour, "over@0s earlier@30m0s stays@1h0m0s later@2h0m0s")
	})
}

func TestNothingWakesForAShardThatIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, *waits("one", "1h"), *waits("other", "2h"))
		r.e.gate.Shut()
		r.expect(t, 90*time.Minute, "")
		r.e.forgetAlarms()
		r.e.gate.Open(2) // as of a shard that is kept after all
		r.backfill(r.e, r.store.All())
		r.expect(t, 3*time.Hour, "one@1h30m0s other@2h0m0s")
		r.events.Add(waits("too late", "5h"))
		synctest.Wait()
		r.e.shut()
		r.e.alarms(r.kindSource).set(alarm{at: time.Now().Add(time.Minute).UnixNano()})
		if left := r.e.alarms(r.kindSource).left(); left > 0 {
			t.Errorf("%d alarms are left", left)
		}
	})
}

// Objects that change their minds all the time leave no more alarms behind than there are objects.
func TestAlarmsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, *waits("restless", "1h"), *waits("still", "2h"))
		most := 0
		for i := range 10000 {
			r.events.Modify(waits("restless", fmt.Sprintf("%ds", 5000+i)))
			synctest.Wait()
			most = max(most, r.e.alarms(r.kindSource).left())
		}
		if most > 100 {
			t.Errorf("%d alarms for 2 objects", most)
		}
		r.expect(t, 5*time.Hour, "still@2h0m0s restless@4h9m59s")
	})
}

func TestAnObjectThatIsRefusedGetsNoAlarmWhereOthersPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := waits("refused", "1h")
		refused.Annotations["refused"] = "yes"
		r := newTimed(t, *refused, *waits("restless", "2h"), *waits("moved", "90m"))
		r.events.Modify(waits("moved", "150m"))
		for i := range 100 {
			r.events.Modify(waits("restless", fmt.Sprintf("%ds", 8000+i)))
		}
		r.expect(t, 4*time.Hour, "restless@2h14m59s moved@2h30m0s")
	})
}

// What is about to ring isn't lost where the alarms are made anew just then.
func TestAlarmsThatAreNearSurviveOthersThatPileUp(t *testing.T) {
	for _, left := range []time.Duration{1999 * time.Millisecond, 1500 * time.Millisecond, 1001 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := newTimed(t, *waits("soon", "1h"), *waits("restless", "2h"))
			time.Sleep(time.Hour - left)
			for i := range 100 {
				r.events.Modify(waits("restless", fmt.Sprintf("%ds", 8000+i)))
			}
			synctest.Wait()
			r.expect(t, 4*time.Hour, "soon@1h0m0s restless@2h14m59s")
		})
	}
}

// Timers don't notice that the clock was put forward. So the clock is read now and then, however far off the first time
// is.
func TestAlarmsReadTheClockEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTimed(t, *waits("far off", "10h"))
		a := r.e.alarms(r.kindSource)
		var looked atomic.Int32
		synctest.Wait()
		a.mu.Lock() // orders the change before what the timer does
		of := a.store
		a.store = func() *informer.Store { looked.Add(1); return of() }
		a.mu.Unlock()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if looked.Load() < 10 {
			t.Errorf("in ten minutes it has looked %d times at what is due", looked.Load())
		}
		r.expect(t, 11*time.Hour, "far off@10h0m0s")
	})
}

func TestATimeVeryFarOffIsNoneInThePast(t *testing.T) {
	for _, due := range []time.Time{time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		if !far(due) || nanos(due) < time.Now().UnixNano() {
			t.Errorf("%v is at %d", due, nanos(due))
		}
	}
}

// What an At costs that waits, with all that knows of it: its shard's cache and its alarm.
func TestAnAtThatWaitsTakesLittleMemory(t *testing.T) {
	const many, most = 100_000, 300
	began := time.Now()
	fill := func() apiruntime.Object {
		list := &cnatv1alpha1.AtList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for i := range many {
			one := cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprint("team-", i%50), Name: fmt.Sprint("nightly-report-", i), UID: uuid.NewUUID(),
				ResourceVersion: strconv.Itoa(100_000 + i), Generation: 1, CreationTimestamp: metav1.Unix(began.Unix(), 0),
			}}
			one.Spec.Schedule = began.Add(time.Hour + time.Duration(i*7919%many)*time.Second).UTC().Format(time.RFC3339)
			one.Status.Phase = cnatv1alpha1.AtPending
			list.Items = append(list.Items, one)
		}
		return list
	}
	ctx, cancel := context.WithCancel(t.Context())
	events := watch.NewRaceFreeFake()
	before := heapInUse()
	store := informer.New(informer.Config{
		Kind: cnatv1alpha1.GroupVersion.WithKind("At"), Namespaced: true,
		Pack: func(o client.Object) informer.Packed { return at.Pack(o) },
	})
	ended, watched := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(ended)
		store.Run(ctx, listed{&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (apiruntime.Object, error) { return fill(), nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				watched <- struct{}{}
				return events, nil
			},
		}}, &cnatv1alpha1.At{})
	}()
	defer func() { <-ended }()
	defer cancel()
	must.Succeed(t, store.AwaitSync(ctx))
	<-watched // nobody holds the list any more
	s := &kindSource{keys: ownKey, filter: predicate.And[client.Object](),
		due: func(o client.Object) time.Time { return at.Due(o.(*cnatv1alpha1.At)) }}
	e := &engagement{ctx: ctx}
	e.alarms(s).store = func() *informer.Store { return store }
	s.backfill(e, store.All())
	defer e.forgetAlarms()
	each := int(heapInUse()-before) / many
	t.Logf("%d bytes each", each)
	if each > most || store.Len() != many || e.alarms(s).left() != many {
		t.Errorf("%d Ats and %d alarms, %d bytes each; want %d, at most %d each", store.Len(),
			e.alarms(s).left(), each, many, most)
	}
}

// left is how many alarms there are.
func (a *alarms) left() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.times)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
