package engage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// A reflector would pause for half a minute after some failures, and know nothing of the server's return until then.
func TestAServerThatServesAgainIsListedAndWatchedSoon(t *testing.T) {
	refusals := []error{
		apierrors.NewInternalError(errors.New("etcd is away")), apierrors.NewTooManyRequests("later", 1),
		apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("roles aren't there yet")), syscall.ECONNREFUSED,
	}
	for _, refusal := range refusals {
		synctest.Test(t, func(t *testing.T) {
			const pause = 100 * time.Millisecond
			back := time.Now().Add(20 * time.Second)
			refused := func() error {
				if time.Now().Before(back) {
					return refusal
				}
				return nil
			}
			told := 0
			lw := toolscache.ToListerWatcherWithContext(Live(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return emptyList(), refused()
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					if err := refused(); apierrors.IsTooManyRequests(err) {
						return nil, err
					}
					return watch.NewFake(), nil
				},
			}, pause, func(error) { told++ }))
			if apierrors.IsTooManyRequests(refusal) {
				if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil || time.Since(back) > 2*pause {
					t.Errorf("watched %v after its return: %v", time.Since(back), err)
				}
				if told < 50 {
					t.Errorf("told %d times that the watch is refused", told)
				}
				told = 0
				back = back.Add(20 * time.Second)
			}
			if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil || time.Since(back) > 2*pause ||
				told < 50 {
				t.Errorf("%v: listed %v after its return, told %d times: %v", refusal, time.Since(back), told, err)
			}
		})
	}
	missing := apierrors.NewNotFound(corev1.Resource("pods"), "")
	lw := toolscache.ToListerWatcherWithContext(Live(
		listing(func(context.Context, metav1.ListOptions) error { return missing }), time.Minute, func(error) {}))
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a kind that isn't there: %v", err)
	}
}

func TestAListOfHomeThatIsLostIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tried, told := time.Now(), 0, 0
		lw := toolscache.ToListerWatcherWithContext(Live(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
				switch tried++; tried {
				case 1:
				case 2: // as any JSON object decodes
					return &corev1.PodList{}, nil
				default:
					return emptyList(), nil
				}
				<-ctx.Done()
				return nil, &url.Error{Op: "Get", Err: ctx.Err()}
			},
		}, time.Second, func(error) { told++ }))
		_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		if took := time.Since(began); err != nil || told != 2 || took > listLost+3*time.Second {
			t.Errorf("listed after %v (%v), told %d times", took, err, told)
		}
	})
}

// A server that knows nothing of shardSelector sends everything; only what is in the shard may get through.
func TestObjectsOutsideTheShardAreDroppedOnArrival(t *testing.T) {
	var in, out *corev1.Pod
	for i := 0; in == nil || out == nil; i++ {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint("uid-", i))}}
		if quarter.Contains(string(pod.UID)) {
			in = pod
		} else {
			out = pod
		}
	}
	var asked []string
	source := watch.NewFake()
	inner := &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			asked = append(asked, opts.ShardSelector)
			return &corev1.PodList{ListMeta: emptyList().ListMeta, Items: []corev1.Pod{*in, *out}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			asked = append(asked, opts.ShardSelector)
			return source, nil
		},
	}
	traffic := &Traffic{}
	f := &filter{shards: selector{text: quarter.Prefix.Selector()}, traffic: traffic,
		keep: func(o metav1.Object) bool { return quarter.Contains(string(o.GetUID())) }}
	lw := toolscache.ToListerWatcherWithContext(f.wrap(inner))

	list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{Limit: 500})
	must.Succeed(t, err)
	if items := list.(*items).Items; len(items) != 1 || items[0].(client.Object).GetUID() != in.UID {
		t.Errorf("listed %d items, want the one in the shard", len(items))
	}
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	if w != source {
		t.Error("the watch has another between")
	}
	for _, o := range []client.Object{out, out, out, in} {
		if taken, belongs, err := f.take(o); err != nil || belongs != (o == in) || (belongs && taken != o) {
			t.Errorf("%s: took %v: %v %v", o.GetName(), taken, belongs, err)
		}
	}
	for _, selector := range asked {
		if selector != quarter.Prefix.Selector() {
			t.Errorf("the server was asked for %q", selector)
		}
	}
	if traffic.Kept.Load() != 2 || traffic.Discarded.Load() != 4 || traffic.ServerSide() {
		t.Errorf("kept %d, discarded %d, server side %v; want 2, 4, false", traffic.Kept.Load(), traffic.Discarded.Load(),
			traffic.ServerSide())
	}
}

// A watch that goes on where it ended would show nothing of what a restored cluster holds.
func TestAServerThatWasAwayIsListedAnewSinceItsClusterMayHaveBeenRestored(t *testing.T) {
	bubble.Run(t, "a shard's cache", func(t *testing.T) { isListedAnew(t, everything().wrap) })
	bubble.Run(t, "another one", func(t *testing.T) {
		isListedAnew(t, func(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
			return Live(lw, 2*time.Second, func(error) {})
		})
	})
}

func isListedAnew(t *testing.T, wrap func(toolscache.ListerWatcher) toolscache.ListerWatcher) {
	held := podList("9", "kept@9", "lost@8")
	var mu sync.Mutex // guards the server's state: held and the next three
	refused, attempts := false, 0
	var running *watch.FakeWatcher
	inner := &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if held.ResourceVersion == "5" && opts.ResourceVersion != "" {
				return nil, apierrors.NewTimeoutError("Too large resource version", 1) // as an API server answers
			}
			return held.DeepCopy(), nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			attempts++
			if refused {
				return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
			}
			running = watch.NewFake()
			return running, nil
		},
	}
	informer := toolscache.NewSharedIndexInformer(wrap(inner), &corev1.Pod{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer synctest.Wait()
	defer cancel()
	go informer.RunWithContext(ctx)
	time.Sleep(time.Second)

	// The server goes, for a while; the cluster that comes back knows a version that the cache has left behind.
	mu.Lock()
	refused, attempts = true, 0
	running.Stop()
	mu.Unlock()
	time.Sleep(10 * time.Second)
	mu.Lock()
	if attempts < 3 || attempts > 10 {
		t.Errorf("%d attempts in 10 s", attempts)
	}
	held, refused = podList("5", "kept@4", "new@5"), false
	mu.Unlock()
	time.Sleep(20 * time.Second)
	expect.Equal(t, "the cache", []string{"kept@4", "new@5"}, podsIn(informer.GetStore()))
}

// balanced is an API server that is restored while no connection is refused, since a load balancer takes them all.
type balanced struct {
	late  time.Duration // how long an answer takes
	mu    sync.Mutex    // guards all below
	held  corev1.PodList
	ends  []any // what the next attempts to watch end with: an error, or a status
	lists int
	now   *io.PipeWriter // the present watch's
}

func (b *balanced) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.late > 0 {
		if err := sleep(req.Context(), b.late); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
	if !watches(req) {
		b.lists++
		body, err := json.Marshal(&b.held)
		res.Body = io.NopCloser(bytes.NewReader(body))
		return res, err
	}
	if len(b.ends) > 0 {
		end := b.ends[0]
		b.ends = b.ends[1:]
		if err, ok := end.(error); ok {
			return nil, err
		}
		res.StatusCode, res.Body = end.(int), http.NoBody
		if res.StatusCode == http.StatusServiceUnavailable {
			res.Header.Set("Retry-After", "1")
		}
		return res, nil
	}
	body, now := io.Pipe()
	context.AfterFunc(req.Context(), func() { _ = now.CloseWithError(req.Context().Err()) })
	res.Body, b.now = body, now
	return res, nil
}

// say sends something by the present watch.
func (b *balanced) say(t *testing.T, event string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := io.WriteString(b.now, event)
	must.Succeed(t, err)
}

// restore ends the watch. The next ones fail so, and then the server holds less than before.
func (b *balanced) restore(ends []any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.ends, b.lists = podList("5", "kept@4", "new@5"), ends, 0
	_ = b.now.Close()
}

func emptyList() *corev1.PodList { return new(podList("1")) }

// listing gives empty lists, and watches by which nothing comes. Both fail as ask does.
func listing(ask func(context.Context, metav1.ListOptions) error) *toolscache.ListWatch {
	return listWatch(func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
		return emptyList(), ask(ctx, opts)
	}, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		return watch.NewFake(), ask(ctx, opts)
	})
}

// podsIn names the Pods of a cache, with their versions.
func podsIn(store toolscache.Store) (all []string) {
	for _, obj := range store.List() {
		all = append(all, obj.(*corev1.Pod).Name+"@"+obj.(*corev1.Pod).ResourceVersion)
	}
	slices.Sort(all)
	return all
}

func podList(version string, pods ...string) (list corev1.PodList) {
	list.APIVersion, list.Kind, list.ResourceVersion = "v1", "PodList", version
	for _, p := range pods {
		name, version, _ := strings.Cut(p, "@")
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n",
			UID: types.UID(name), ResourceVersion: version}})
	}
	return list
}

// client-go repeats attempts to watch that fail in certain ways by itself, and then watches as if nothing had been.
func TestAServerThatWasAwayBehindALoadBalancerIsListedAnew(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for name, c := range map[string]struct {
		ends []any
		anew bool
	}{
		"it wasn't away":          {nil, false},
		"a lost connection":       {[]any{reset}, true},
		"as many as are repeated": {slices.Repeat([]any{io.EOF}, 11), true},
		"more than are repeated":  {slices.Repeat([]any{io.EOF}, 13), true},
		"timeouts":                {[]any{os.ErrDeadlineExceeded, os.ErrDeadlineExceeded}, true},
		"what is no timeout":      {[]any{errors.New("the certificate is another's")}, true},
		"nothing behind it":       {[]any{http.StatusServiceUnavailable, http.StatusServiceUnavailable}, true},
		"it is busy, then":        {[]any{syscall.ECONNREFUSED, http.StatusTooManyRequests}, true},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := &balanced{held: podList("9", "kept@9", "lost@8")}
			store := watched(t, server)
			time.Sleep(time.Second)
			server.restore(c.ends)
			time.Sleep(2 * time.Minute)
			want, lists := []string{"kept@9", "lost@8"}, 0
			if c.anew {
				want, lists = []string{"kept@4", "new@5"}, 1
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if diff := cmp.Diff(want, podsIn(store)); diff != "" || server.lists != lists {
				t.Errorf("listed %d times, want %d; the cache (-want +got):\n%s", server.lists, lists, diff)
			}
		})
	}
}

// Traffic may be turned over to a restored control plane without a moment in which nobody answers.
func TestAClusterWhoseWatchesEndedInOrderIsListedAnewIfItIsSilentThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &balanced{held: podList("9", "kept@9", "lost@8")}
		store := watched(t, server)
		time.Sleep(time.Second)
		server.say(t, bookmark(9))
		server.restore(nil)
		time.Sleep(time.Hour)
		server.mu.Lock()
		defer server.mu.Unlock()
		if diff := cmp.Diff([]string{"kept@4", "new@5"}, podsIn(store)); diff != "" || server.lists != 1 {
			t.Errorf("listed %d times in an hour, want once; the cache (-want +got):\n%s", server.lists, diff)
		}
	})
}

// The connection to it, or to a load balancer before it, may end in many ways. client-go resumes after some of them.
func TestAClusterWhoseWatchWasCutIsListedAnew(t *testing.T) {
	op := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for end, lists := range map[error]int{
		io.EOF: 0, io.ErrUnexpectedEOF: 1, op(syscall.ECONNRESET): 1, op(syscall.ETIMEDOUT): 1,
		op(os.ErrDeadlineExceeded): 1, errors.New("http2: client connection lost"): 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &balanced{held: podList("9", "kept@9", "lost@8")}
			watched(t, server)
			time.Sleep(time.Second)
			server.say(t, bookmark(9))
			time.Sleep(time.Second)
			server.mu.Lock()
			server.held, server.lists = podList("5", "kept@4", "new@5"), 0
			must.Succeed(t, server.now.CloseWithError(end))
			server.mu.Unlock()
			for v := 10; v < 20; v++ { // it has caught up at once, so the resumed watch isn't silent
				time.Sleep(time.Minute)
				server.say(t, bookmark(v))
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if server.lists != lists {
				t.Errorf("%v: listed %d times, want %d", end, server.lists, lists)
			}
		})
	}
}

// A proxy before it may end each stream after half a minute. A list after each of them would cost much, and a
// reflector's pauses before lists double.
func TestAClusterWhoseWatchesAreCutAgainAndAgainIsListedRarelyAndWatchedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &balanced{held: podList("9", "kept@9", "lost@8")}
		store := watched(t, server)
		began, version := time.Now(), 9
		cut := func() {
			version++
			for until := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				server.mu.Lock()
				stream := server.now
				server.mu.Unlock()
				if _, err := io.WriteString(stream, bookmark(version)); err == nil {
					must.Succeed(t, stream.CloseWithError(syscall.ECONNRESET))
					return
				} else if time.Now().After(until) {
					t.Fatalf("nothing is watched for 2 s after %v", time.Since(began))
				}
			}
		}
		for range 40 {
			time.Sleep(30 * time.Second)
			cut()
		}
		server.mu.Lock()
		if server.lists < 7 || server.lists > 11 {
			t.Errorf("listed %d times in 20 minutes", server.lists)
		}
		server.mu.Unlock()
		time.Sleep(2 * cutsApart)
		cut()
		time.Sleep(10 * time.Second)
		server.mu.Lock()
		server.held = podList("5", "kept@4", "new@5")
		server.mu.Unlock()
		cut()
		time.Sleep(cutsApart)
		expect.Equal(t, "it was restored as its stream was cut; the cache", []string{"kept@4", "new@5"}, podsIn(store))
	})
}

// Whoever cuts streams may not answer for long after that. The list is overdue then.
func TestAListThatIsOwedComesHoweverLateTheServerIsBack(t *testing.T) {
	for name, end := range map[string]any{
		"nobody is there": syscall.ECONNREFUSED, "it is busy": http.StatusTooManyRequests,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			server := &balanced{late: 10 * time.Millisecond, held: podList("9", "kept@9", "lost@8")}
			store := watched(t, server)
			cut := func(ends ...any) {
				time.Sleep(10 * time.Second)
				server.say(t, bookmark(9))
				server.mu.Lock()
				defer server.mu.Unlock()
				server.ends = ends
				must.Succeed(t, server.now.CloseWithError(syscall.ECONNRESET))
			}
			cut()
			cut(slices.Repeat([]any{end}, 1000)...)
			time.Sleep(2 * cutsApart)
			server.mu.Lock()
			if n := len(server.ends); n == 0 || n == 1000 {
				t.Fatalf("%d attempts to watch are left to fail", n)
			}
			server.held, server.ends = podList("5", "kept@4", "new@5"), nil
			server.mu.Unlock()
			time.Sleep(10 * time.Second)
			expect.Equal(t, "the cache", []string{"kept@4", "new@5"}, podsIn(store))
		})
	}
}

func bookmark(version int) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`,
		version)
}

// watched is a shard's cache of Pods, filled through its fence until the test's end.
func watched(t *testing.T, server http.RoundTripper) toolscache.Store {
	fence := openFence(t, server)
	c := &Cluster{
		scheme: clientgoscheme.Scheme, codecs: clientgoscheme.Codecs,
		config: &rest.Config{Host: "http://west", QPS: -1},
		http:   &http.Client{Transport: fence},
	}
	from, err := c.source(form{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")},
		&meta.RESTMapping{Resource: corev1.SchemeGroupVersion.WithResource("pods")})
	must.Succeed(t, err)
	f := everything()
	f.traffic = fence.traffic
	informer := toolscache.NewSharedIndexInformer(f.wrap(from), &corev1.Pod{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() { informer.RunWithContext(ctx); close(ended) }()
	return informer.GetStore()
}

// A cache that is filled by a list is warm sooner than one that gets each object as a watch event.
func TestCachesAreFilledByAListAndNotByAWatch(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}}
	streamed := make(chan bool, 1)
	inner := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{ListMeta: emptyList().ListMeta, Items: []corev1.Pod{*pod}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			streamed <- opts.SendInitialEvents != nil
			return watch.NewFake(), nil
		},
	}
	informer := toolscache.NewSharedIndexInformer(everything().wrap(inner), &corev1.Pod{}, 0, nil)
	go informer.RunWithContext(t.Context())
	if <-streamed {
		t.Fatal("the server was asked to send what there is as watch events")
	}
	<-informer.HasSyncedChecker().Done()
	if keys := informer.GetStore().ListKeys(); len(keys) != 1 {
		t.Errorf("the cache holds %v, want one Pod", keys)
	}
}

func TestAClusterIsAskedForAFewListsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		f := &filter{traffic: &Traffic{}}
		lw := toolscache.ToListerWatcherWithContext(f.wrap(listing(func(context.Context, metav1.ListOptions) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		})))
		began := time.Now()
		var lists sync.WaitGroup
		for range 5 * listsAtOnce {
			lists.Go(func() {
				if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := lw.ListWithContext(impatient, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a list whose time was over while it waited: %v", err)
		}
		lists.Wait()
		if took := time.Since(began); most.Load() != listsAtOnce || took != 5*time.Second {
			t.Errorf("%d lists at a time, %v in all; want %d, 5s", most.Load(), took, listsAtOnce)
		}
	})
}

// A proxy answers so to what it doesn't like of a request, whatever it asks for.
func TestABadRequestOfAProxyDoesNotEndTheUseOfFieldSelectors(t *testing.T) {
	refusals := 1
	f := everything()
	f.fields.text = "status.over!=true"
	fields := &f.fields
	lw := toolscache.ToListerWatcherWithContext(f.wrap(listing(func(context.Context, metav1.ListOptions) error {
		if refusals--; refusals == 0 {
			return apierrors.NewGenericServerResponse(400, "get", schema.GroupResource{}, "", "too large", 0, true)
		}
		return nil
	})))
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("what a proxy refused counts as listed")
	}
	if fields.unknown.Load() {
		t.Error("the API server counts as one that doesn't know the fields")
	}
}

// What is finished is left out where the API server knows the fields, and there only.
func TestFieldSelectorsLeaveOutWhatIsFinished(t *testing.T) {
	for name, c := range map[string]struct {
		fields *selector
		knows  bool
		want   []string // asked for by two lists and a watch
	}{
		"a primary kind": {&selector{text: "status.over!=true"}, true,
			[]string{"status.over!=true", "status.over!=true", "status.over!=true"}},
		"an owned kind": {&selector{text: "status.over!=true", listsOnly: true}, true,
			[]string{"status.over!=true", "status.over!=true", ""}},
		"an old API server": {&selector{text: "status.over!=true"}, false,
			[]string{"status.over!=true", "", "status.over!=true", "", ""}},
		"nothing is left out": {&selector{}, true, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			ask := func(_ context.Context, opts metav1.ListOptions) error {
				asked = append(asked, opts.FieldSelector)
				if opts.FieldSelector != "" && !c.knows {
					return apierrors.NewBadRequest("field label not supported: status.over")
				}
				return nil
			}
			f := everything()
			f.fields.text, f.fields.listsOnly = c.fields.text, c.fields.listsOnly
			lw := toolscache.ToListerWatcherWithContext(f.wrap(listing(ask)))
			for range 2 {
				_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
				must.Succeed(t, err)
			}
			w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
			must.Succeed(t, err)
			w.Stop()
			expect.Equal(t, "asked for", c.want, asked)
		})
	}
}

// An API server may answer 400 to what it doesn't know of a request. What arrives is checked anyway.
func TestAClusterIsServedThatRefusesASelector(t *testing.T) {
	for name, c := range map[string]struct {
		knows    func(shards, fields bool, watches bool) bool
		list, on string // the selectors that are asked for by a list and a watch, and by the next list and watch
	}{
		"it knows both":                {func(bool, bool, bool) bool { return true }, "sf|sf", "sf|sf"},
		"no shardSelector":             {func(s, _, _ bool) bool { return !s }, "sf f|f", "sf f|f"},
		"not these fields":             {func(_, f, _ bool) bool { return !f }, "sf f s|s", "sf f s|s"},
		"neither":                      {func(s, f, _ bool) bool { return !s && !f }, "sf f s -|-", "sf f s -|-"},
		"no shardSelector, in watches": {func(s, _, w bool) bool { return !w || !s }, "sf|sf f", "sf|sf f"},
		"neither, in watches":          {func(s, f, w bool) bool { return !w || !s && !f }, "sf|sf f s -", "sf|sf f s -"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			var asked []string
			ask := func(watches bool) func(context.Context, metav1.ListOptions) error {
				return func(_ context.Context, opts metav1.ListOptions) error {
					shards, fields := opts.ShardSelector != "", opts.FieldSelector != ""
					asked = append(asked, map[bool]string{true: "s"}[shards]+map[bool]string{true: "f"}[fields])
					if asked[len(asked)-1] == "" {
						asked[len(asked)-1] = "-"
					}
					if !c.knows(shards, fields, watches) {
						return apierrors.NewBadRequest("unknown")
					}
					return nil
				}
			}
			inner := listing(ask(false))
			inner.WatchFuncWithContext = listing(ask(true)).WatchFuncWithContext
			f := everything()
			f.shards.text, f.fields.text = quarter.Prefix.Selector(), "status.over!=true"
			lw := toolscache.ToListerWatcherWithContext(f.wrap(inner))
			for _, want := range []string{c.list, c.on} {
				asked = nil
				_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
				must.Succeed(t, err)
				asked = append(asked, "|")
				for range 2 { // the second follows without a list
					w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
					must.Succeed(t, err)
					w.Stop()
					time.Sleep(shortWatch)
				}
				_, again, _ := strings.Cut(want, "|")
				expect.Equal(t, "asked for", strings.Replace(want, "|", " | ", 1)+" "+again, strings.Join(asked, " "))
			}
			if f.failing.Load() != nil {
				t.Error("it counts as failing")
			}
		})
	}
}

// Planned moves wait for the watches of home: a few that end soon must not cost a pause.
func TestAFewShortWatchesAreFollowedByAnotherOneAtOnce(t *testing.T) {
	bubble.Run(t, "", func(t *testing.T) {
		const most = time.Second
		h := &streamHistory{}
		short := func() time.Duration {
			h.begins()
			time.Sleep(shortWatch / 10)
			return h.pause(most)
		}
		for _, since := range []string{"the beginning", "a list", "a longer watch"} {
			for range freeWatches {
				expect.Equal(t, "pause after a short watch since "+since, time.Duration(0), short())
			}
			for least := firstWatchPause; least < most; least *= 2 {
				if pause := short(); pause < least || pause > 2*least {
					t.Errorf("since %s: a pause of %v, want %v to twice that", since, pause, least)
				}
			}
			for range 100 {
				if pause := short(); pause < most || pause > 2*most {
					t.Errorf("since %s: a pause of %v in the end, want %v to twice that", since, pause, most)
				}
			}
			if since == "the beginning" {
				h.forget()
				continue
			}
			h.begins()
			time.Sleep(shortWatch)
			expect.Equal(t, "pause after a longer watch", time.Duration(0), h.pause(most))
		}
	})
}

// onePod is a server with one Pod. The function makes the streams of its watches, from the requests' contexts.
func onePod(events func(context.Context) io.ReadCloser) servers {
	return func(req *http.Request) (*http.Response, error) {
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
		if watches(req) {
			res.Body = events(req.Context())
			return res, nil
		}
		list := podList("9", "there@9")
		body, err := json.Marshal(&list)
		res.Body = io.NopCloser(bytes.NewReader(body))
		return res, err
	}
}

// A reflector makes no pause after a watch that ended in order, if anything came by it.
func TestWatchesThatEndAtOnceAreNotBegunAgainAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		lasts       time.Duration
		least, most int // watches in five minutes
	}{
		"they end at once":    {0, 40, 70},
		"within a second":     {shortWatch / 2, 40, 70},
		"after a short while": {2 * shortWatch, 149, 151},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			var begun atomic.Int32
			watched(t, onePod(func(context.Context) io.ReadCloser {
				stream, end := io.Pipe()
				go func() {
					_, _ = io.WriteString(end, bookmark(int(10+begun.Add(1))))
					if begun.Load() < 1000 { // or no time would pass
						time.AfterFunc(c.lasts, func() { _ = end.Close() })
					}
				}()
				return stream
			}))
			time.Sleep(5 * time.Minute)
			if n := int(begun.Load()); n < c.least || n > c.most {
				t.Errorf("%d watches in five minutes, want %d to %d", n, c.least, c.most)
			}
		})
	}
}

// Something between may hold a watch open although its server has gone.
func TestAWatchThatNobodyEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new",` +
			`"namespace":"n","uid":"new","resourceVersion":"10"}}}` + "\n"
		var begun atomic.Int32
		store := watched(t, onePod(func(ctx context.Context) io.ReadCloser {
			hold := &drip{dripping{24 * time.Hour, 1}, ctx}
			if begun.Add(1) == 1 {
				return hold
			}
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(event), hold), hold}
		}))
		time.Sleep(15 * time.Minute) // a reflector asks for ten at most
		if _, there, _ := store.GetByKey("n/new"); !there || begun.Load() < 2 {
			t.Errorf("%d watches in a quarter of an hour; the cache has %v", begun.Load(), store.ListKeys())
		}
	})
}

func TestAnOptionalKindThatMayBeListedAndNotWatchedIsListedRarelyAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		f := everything()
		f.optional = true
		i := &informing{Store: informer.New(informer.Config{}), filter: f, example: &corev1.Pod{}, from: f.wrap(listWatch(
			func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
				lists++
				return emptyList(), nil
			}, func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("not you"))
			}))}
		go i.Run(t.Context(), i.from, i.example)
		const passed = 10 * time.Minute
		time.Sleep(passed)
		synctest.Wait()
		if why := i.behind(time.Time{}, time.Minute); lists > int(passed/forbiddenPause) || why == "" {
			t.Errorf("listed %d times, and it is said: %q", lists, why)
		}
	})
}

// Of the clusters that copies might be sent to, some are for something else.
func TestAClusterMayRefuseTheListsOfAnOptionalKind(t *testing.T) {
	for _, optional := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			fence := openFence(t, &answering{status: http.StatusForbidden})
			refused := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("its role is another"))
			f := &filter{traffic: fence.traffic, optional: optional}
			lw := toolscache.ToListerWatcherWithContext(f.wrap(listing(func(ctx context.Context, _ metav1.ListOptions) error {
				_, err := send(ctx, fence, http.MethodGet, "http://west/api/v1/pods")
				return errors.Join(err, refused)
			})))
			began := time.Now()
			var lists sync.WaitGroup
			for range 2 * fewAnswers { // of so many shards
				lists.Go(func() {
					if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second)
			state, cause := fence.traffic.Breaker.State()
			lists.Wait()
			took := time.Since(began)
			if optional && (state != protocol.ClusterClosed || took < forbiddenPause) {
				t.Errorf("the cluster is %s (%s), and would be asked again after %v", state, cause, took)
			}
			if !optional && (state != protocol.ClusterLimited || took > time.Second) {
				t.Errorf("what is needed was refused: the cluster is %s; asked again after %v", state, took)
			}
		})
	}
}
