package at

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// trimmedView is a view as caches that trim show it.
func trimmedView(view view) view {
	view.At = view.At.DeepCopy()
	_, _ = Trim(view.At) // never fails
	if view.Pod != nil {
		view.Pod = view.Pod.DeepCopy()
		_, _ = Trim(view.Pod)
	}
	return view
}

// huge fills what an At's owner may fill.
func huge(at *cnatv1alpha1.At) {
	at.Spec.Command = strings.Repeat("x", 32<<10)
	at.Spec.Image = strings.Repeat("i", 1024)
	at.Annotations = map[string]string{"a": strings.Repeat("a", 250<<10), CopiedPrefix + "duration": "1s"}
	at.Labels = map[string]string{CopiedPrefix + "outcome": "fail"}
	for i := range 500 {
		at.Labels[fmt.Sprint("label-", i)] = strings.Repeat("l", 63)
	}
	at.Finalizers = []string{strings.Repeat("f", 1<<10)}
}

func TestACacheKeepsLittleOfAnAtAndOfItsPod(t *testing.T) {
	at := anAt(huge, running)
	pod := newPod(at, RestrictedPods())
	pod.Annotations = at.Annotations
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Message: strings.Repeat("m", 1<<20),
		Conditions: make([]corev1.PodCondition, 100)}
	view := trimmedView(view{At: at, Pod: pod})
	for _, object := range []client.Object{view.At, view.Pod} {
		if kept, err := json.Marshal(object); err != nil || len(kept) > 2<<10 {
			t.Errorf("%T: %d bytes are kept (%v)", object, len(kept), err)
		}
	}
	again := trimmedView(view)
	expect.Equal(t, "trimming twice makes a difference", view, again)
	for _, other := range []any{&corev1.Secret{}, "tombstone", nil} {
		if got, err := Trim(other); err != nil || got != other {
			t.Errorf("%v became %v, %v", other, got, err)
		}
	}
}

func TestPredicatesSeeWhatIsTrimmedAsTheySeeTheWhole(t *testing.T) {
	r := newBench(t).subject
	for name, view := range map[string]view{
		"pending": {At: anAt(huge), Pod: aPod()}, "running": {At: anAt(huge, running), Pod: aPod(podDeleted(due))},
		"done":     {At: anAt(huge, done), Pod: aPod(ended(corev1.PodSucceeded, 0, due))},
		"done ttl": {At: anAt(huge, done, ttl(1)), Pod: aPod(ended(corev1.PodFailed, 1, due))},
	} {
		less := trimmedView(view)
		if !Due(view.At).Equal(Due(less.At)) {
			t.Errorf("%s: due at %v, of the whole %v", name, Due(less.At), Due(view.At))
		}
		for _, pair := range [][2]client.Object{{view.At, less.At}, {view.Pod, less.Pod}} {
			only := r.AtEvents()
			if _, ok := pair[0].(*corev1.Pod); ok {
				only = PodEvents()
			}
			if whole, trimmed := only.Create(event.CreateEvent{Object: pair[0]}),
				only.Create(event.CreateEvent{Object: pair[1]}); whole != trimmed {
				t.Errorf("%s: %T passes: %v, of the whole: %v", name, pair[0], trimmed, whole)
			}
		}
	}
}

// trimming is a bench whose cache trims, and which counts what is read from the API server.
type trimming struct {
	*bench
	cached, live client.Client
	reads        int
	blind        bool // the answers to writes lack what the cache left out
}

func (b *trimming) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return b, nil
}
func (b *trimming) GetClient() client.Client    { return b.cached }
func (b *trimming) GetAPIReader() client.Reader { return b.live }

func newTrimming(t *testing.T, objects ...client.Object) *trimming {
	t.Helper()
	b := &trimming{bench: newBench(t, objects...)}
	b.cached = interceptor.NewClient(b.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object,
			options ...client.GetOption) error {
			err := c.Get(ctx, key, into, options...)
			_, _ = Trim(into) // never fails
			return err
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, obj client.Object,
			options ...client.SubResourceUpdateOption) error {
			err := c.SubResource(name).Update(ctx, obj, options...)
			switch {
			case err != nil:
				return err
			case b.blind:
				_, _ = Trim(obj) // never fails
				return nil
			}
			return c.Get(ctx, client.ObjectKeyFromObject(obj), obj) // as an API server answers
		},
	})
	b.live = interceptor.NewClient(b.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object,
			options ...client.GetOption) error {
			b.reads++
			return c.Get(ctx, key, into, options...)
		},
	})
	subject, err := NewReconciler(Config{Clusters: b, Clock: b.clock})
	must.Succeed(t, err)
	b.subject = subject
	return b
}

// once makes the first write of a kind fail, before or after the API server has done it.
func once(kind string, after bool) func(string, func() error) error {
	failed := false
	return func(this string, commit func() error) error {
		if this != kind || failed {
			return commit()
		}
		failed = true
		if after {
			_ = commit() // the test finds out
		}
		return errTimeout
	}
}

func TestAPodHasTheWholeCommandThoughCachesHaveNone(t *testing.T) {
	for name, c := range map[string]struct {
		at    *cnatv1alpha1.At
		fault func(kind string, commit func() error) error
		reads int
	}{
		"a claim's answer brings it":  {at: anAt(huge), reads: 0},
		"a claim that is renewed":     {at: anAt(huge, running), reads: 2},
		"a claim whose reply is lost": {at: anAt(huge), fault: once("status", true), reads: 3},
		"a creation that fails once":  {at: anAt(huge), fault: once("create", false), reads: 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTrimming(t, c.at)
			b.fault = c.fault
			pod := &corev1.Pod{}
			for range 3 {
				if _, err := b.reconcile(); err == nil {
					break
				}
				b.clock.Step(2 * cacheGrace)
			}
			key := client.ObjectKey{Namespace: c.at.Namespace, Name: PodName(c.at)}
			must.Succeed(t, b.client.Get(t.Context(), key, pod))
			want := newPod(c.at, RestrictedPods())
			expect.Equal(t, "Pod", want.Spec, pod.Spec)
			expect.Equal(t, "labels and annotations", []map[string]string{want.Labels, want.Annotations},
				[]map[string]string{pod.Labels, pod.Annotations})
			if b.reads != c.reads {
				t.Errorf("%d reads of the API server, want %d", b.reads, c.reads)
			}
			expect.Equal(t, "the At has lost something", c.at.Spec, b.at(t).Spec)
		})
	}
}

// An answer without what a cache left out, as of a proxy in between, doesn't lead to a Pod without a command.
func TestAPodIsNeverMadeOfWhatACacheLeftOut(t *testing.T) {
	b := newTrimming(t, anAt(huge))
	b.blind = true
	for range 2 {
		mustReconcile(t, b)
	}
	pod := &corev1.Pod{}
	must.Succeed(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: anAt().Namespace, Name: PodName(anAt())}, pod))
	if got := len(pod.Spec.Containers[0].Command[2]); got != 32<<10 {
		t.Errorf("the command has %d bytes", got)
	}
	if b.reads != 1 {
		t.Errorf("%d reads of the API server, want 1", b.reads)
	}
}
