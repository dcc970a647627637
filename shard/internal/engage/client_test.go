package engage

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// sent records what a fenced client hands on.
type sent struct {
	created *corev1.Pod
	updated client.Object
	patch   string
	applied string
	status  string
	delete  client.DeleteOptions
	evicted *policyv1.Eviction
	bound   bool
	part    client.Object // what the update of a subresource sends
}

func newTestClient(t *testing.T) (client.Client, *sent) {
	t.Helper()
	g, _ := newTestGate(t)
	g.Open(9)
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), cnatv1alpha1.AddToScheme(scheme)))
	s := &sent{}
	inner := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			s.created = obj.(*corev1.Pod)
			return nil
		},
		Update: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.UpdateOption) error {
			s.updated = obj
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch,
			_ ...client.PatchOption) error {
			data, err := patch.Data(obj)
			s.patch = string(data)
			return err
		},
		Apply: func(_ context.Context, _ client.WithWatch, obj runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			data, err := json.Marshal(obj)
			s.applied = string(data)
			return err
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if body := (&client.SubResourcePatchOptions{}).ApplyOptions(opts).SubResourceBody; body != nil {
				obj = body
			}
			data, err := patch.Data(obj)
			s.status = string(data)
			return err
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, obj client.Object,
			opts ...client.SubResourceUpdateOption) error {
			if s.part = (&client.SubResourceUpdateOptions{}).ApplyOptions(opts).SubResourceBody; s.part == nil {
				s.part = obj
			}
			return nil
		},
		SubResourceApply: func(_ context.Context, _ client.Client, _ string, obj runtime.ApplyConfiguration,
			_ ...client.SubResourceApplyOption) error {
			data, err := json.Marshal(obj)
			s.status = string(data)
			return err
		},
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _ client.Object, body client.Object,
			_ ...client.SubResourceCreateOption) error {
			s.evicted, _ = body.(*policyv1.Eviction)
			s.bound = s.evicted == nil
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			s.delete.ApplyOptions(opts)
			return nil
		},
	}).Build()
	return &fencedClient{Client: inner, gate: g, owned: isPod}, s
}

func isPod(obj runtime.Object) bool { _, pod := obj.(*corev1.Pod); return pod }

// owner is the UID of an At, and ownerSlot the slot of what it owns.
const owner types.UID = "2b0bb7d4-4a5a-4f3a-9c56-0a2a3e0c8f11"

var ownerSlot = keyspace.SlotOf(string(owner)).String()

// ownedBy is the metadata of an object that an At owns.
func ownedBy(uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: "p", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "At", Name: "a", UID: uid, Controller: new(true)}}}
}

// As controllerutil.CreateOrUpdate does, whose callers often write the labels anew.
func TestAnOwnedObjectKeepsItsSlotWhenItsLabelsAreReplaced(t *testing.T) {
	c, s := newTestClient(t)
	read := &corev1.Pod{ObjectMeta: ownedBy(owner)}
	read.UID, read.ResourceVersion, read.Labels = "u", "41", map[string]string{keyspace.SlotLabel: ownerSlot}
	changed := read.DeepCopy()
	changed.Labels = map[string]string{"app": "web"}
	must.Succeed(t, c.Patch(t.Context(), changed, client.MergeFrom(read)))
	if want := `{"metadata":{"labels":{"app":"web"},"resourceVersion":"41"}}`; s.patch != want {
		t.Errorf("patch: got %s, want %s", s.patch, want)
	}
	changed.Labels = map[string]string{"app": "web"}
	if err := c.Update(t.Context(), changed); err != nil || s.updated.GetLabels()[keyspace.SlotLabel] != ownerSlot {
		t.Errorf("update: labels %v (%v)", s.updated.GetLabels(), err)
	}
	other := &corev1.ConfigMap{ObjectMeta: read.ObjectMeta}
	other.Labels = nil
	if err := c.Update(t.Context(), other); err != nil || len(s.updated.GetLabels()) > 0 {
		t.Errorf("a kind that isn't owned is labelled: %v (%v)", s.updated.GetLabels(), err)
	}
}

// Programs often have one map for an object's labels, its selector and its template.
func TestASlotIsWrittenIntoTheObjectsLabelsAlone(t *testing.T) {
	c, s := newTestClient(t)
	labels := map[string]string{"app": "web"}
	pod := &corev1.Pod{ObjectMeta: ownedBy(owner), Spec: corev1.PodSpec{NodeSelector: labels}}
	pod.Labels = labels
	must.Succeed(t, c.Create(t.Context(), pod))
	pod.UID, pod.ResourceVersion, pod.Labels = "u", "41", labels
	must.Succeed(t, c.Update(t.Context(), pod))
	if len(labels) != 1 || s.updated.GetLabels()[keyspace.SlotLabel] != ownerSlot {
		t.Errorf("the program's map is %v, the object has %v", labels, s.updated.GetLabels())
	}
}

func TestAFixedTextThatMayTakeTheSlotOfAnOwnedObjectIsRefused(t *testing.T) {
	for _, c := range []struct {
		of      types.PatchType
		text    string
		refused bool
	}{
		{types.MergePatchType, `{"metadata":{"labels":null}}`, true},
		{types.MergePatchType, `{"metadata":{"labels":{"app":null}}}`, true},
		{types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`, false},
		{types.ApplyPatchType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`, true},
	} {
		fenced, _ := newTestClient(t)
		pod := &corev1.Pod{ObjectMeta: ownedBy(owner)}
		pod.UID, pod.ResourceVersion = "u", "41"
		err := fenced.Patch(t.Context(), pod, client.RawPatch(c.of, []byte(c.text)))
		if errors.Is(err, ErrUnfenceable) != c.refused {
			t.Errorf("%s: %v, want it refused: %v", c.text, err, c.refused)
		}
	}
}

// The API server refuses a name of theirs, and keeps none of them.
func TestAReviewNeedsNoName(t *testing.T) {
	c, s := newTestClient(t)
	if err := c.Create(t.Context(), &corev1.Pod{}); err != nil || s.created == nil {
		t.Errorf("what has neither a name nor generateName isn't left to the API server: %v", err)
	}
}

func TestWhatIsCreatedForAnOwnerGetsTheOwnersSlot(t *testing.T) {
	c, s := newTestClient(t)
	for by, meta := range map[string]metav1.ObjectMeta{
		"an owner reference": ownedBy(owner),
		"a copy":             {Namespace: "n", Name: "p", Annotations: map[string]string{OwnerUIDAnnotation: string(owner)}},
	} {
		must.Succeed(t, c.Create(t.Context(), &corev1.Pod{ObjectMeta: meta}))
		if got := s.created.Labels[keyspace.SlotLabel]; got != ownerSlot {
			t.Errorf("slot label by %s: got %q, want %q", by, got, ownerSlot)
		}
	}
}

// An owned object from before the program was sharded has no slot, so no shard sees it, and every reconcile of its
// owner would try to create it.
func TestWhatIsThereAlreadyForTheSameOwnerGetsItsSlot(t *testing.T) {
	owned := func() *corev1.Pod { return &corev1.Pod{ObjectMeta: ownedBy(owner)} }
	labelled := owned()
	labelled.Labels = map[string]string{keyspace.SlotLabel: "another"}
	dry := []client.CreateOption{client.DryRunAll}
	for name, c := range map[string]struct {
		there client.Object // nil: it has gone by then
		made  client.Object
		opts  []client.CreateOption
		want  string // its slot afterwards
	}{
		"the same owner": {owned(), owned(), nil, ownerSlot},
		"another owner":  {&corev1.Pod{ObjectMeta: ownedBy("other")}, owned(), nil, ""},
		"a slot":         {labelled, owned(), nil, "another"},
		"a kind that isn't owned": {&corev1.ConfigMap{ObjectMeta: ownedBy(owner)},
			&corev1.ConfigMap{ObjectMeta: ownedBy(owner)}, nil, ""},
		"made without an owner": {owned(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}, nil, ""},
		"a dry run":        {owned(), owned(), dry, ""},
		"nothing any more": {nil, owned(), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fenced, inner, patch := crowded(t, c.there)
			err := fenced.Create(t.Context(), c.made, c.opts...)
			if !apierrors.IsAlreadyExists(err) {
				t.Errorf("got %v, want that it exists", err)
			}
			if blind := metav1.GetControllerOf(c.made) == nil; blind != strings.Contains(err.Error(), "SetControllerRef") {
				t.Errorf("got %v, is it to say what the object lacks? %v", err, blind)
			}
			want := ""
			if c.want == ownerSlot { // by the version that was read
				want = `{"metadata":{"labels":{"` + keyspace.SlotLabel + `":"` + ownerSlot + `"},"resourceVersion":"999"}}`
			}
			if *patch != want {
				t.Errorf("patch: got %s, want %s", *patch, want)
			}
			if c.there == nil {
				return
			}
			must.Succeed(t, inner.Get(t.Context(), client.ObjectKeyFromObject(c.there), c.there))
			if got := c.there.GetLabels()[keyspace.SlotLabel]; got != c.want {
				t.Errorf("slot label: got %q, want %q", got, c.want)
			}
		})
	}
	fenced, inner, _ := crowded(t, nil)
	fenced.live = interceptor.NewClient(inner, interceptor.Funcs{Get: func(context.Context, client.WithWatch,
		client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("it is away")
	}})
	if err := fenced.Create(t.Context(), owned()); !apierrors.IsAlreadyExists(err) ||
		!strings.Contains(err.Error(), "it is away") {
		t.Errorf("got %v, want that it exists, and why it has no slot", err)
	}
}

func TestWhatIsInTheWayAndIsNotSeenIsExplained(t *testing.T) {
	at := metav1.ObjectMeta{Namespace: "n", Name: "p"}
	orphan := at
	orphan.Labels = map[string]string{keyspace.SlotLabel: "00"} // the test's gate is of west/01, slots 40 to 7f
	going := orphan
	now := metav1.Now()
	going.DeletionTimestamp, going.Finalizers = &now, []string{"a/b"}
	seen := at
	seen.Labels = map[string]string{keyspace.SlotLabel: "40"}
	for name, c := range map[string]struct {
		there     metav1.ObjectMeta
		explained bool
	}{"an orphan": {orphan, true}, "nobody's": {at, true}, "seen, or soon": {seen, false}, "going": {going, false}} {
		fenced, _, patch := crowded(t, &corev1.Pod{ObjectMeta: c.there})
		err := fenced.Create(t.Context(), &corev1.Pod{ObjectMeta: ownedBy("u")})
		if !apierrors.IsAlreadyExists(err) || strings.Contains(err.Error(), "GetAPIReader") != c.explained || *patch != "" {
			t.Errorf("%s: got %v, patch %q", name, err, *patch)
		}
	}
}

// crowded is a client of a cluster in which every name is taken: at first, by an object that is there. patch is what
// the client patches an object with.
func crowded(t *testing.T, there client.Object) (_ *fencedClient, inner client.WithWatch, patch *string) {
	t.Helper()
	g, _ := newTestGate(t)
	patch = new(string)
	with := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			return apierrors.NewAlreadyExists(corev1.Resource("pods"), obj.GetName())
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			data, err := p.Data(obj)
			if err != nil {
				return err
			}
			*patch = string(data)
			return inner.Patch(ctx, obj, p, opts...)
		},
	})
	if there != nil {
		with = with.WithObjects(there)
	}
	inner = with.Build()
	return &fencedClient{Client: inner, live: inner, gate: g, owned: isPod}, inner, patch
}

func TestWritesThatNoPreconditionCanProtectAreRefused(t *testing.T) {
	c, s := newTestClient(t)
	unread := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	read := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "41"}}
	untyped := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "RUNNING"},
		"metadata": map[string]any{"namespace": "n", "name": "a", "resourceVersion": "41"}}}
	untyped.SetGroupVersionKind(cnatv1alpha1.GroupVersion.WithKind("At"))
	scale := client.WithSubResourceBody(&autoscalingv1.Scale{})
	cases := map[string]error{
		"create by generateName": c.Create(t.Context(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", GenerateName: "p-"}}),
		"update without version":      c.Update(t.Context(), unread),
		"merge patch without version": c.Patch(t.Context(), unread, client.MergeFrom(unread.DeepCopy())),
		"raw patch of a status that is to tell the epoch": c.Status().Patch(t.Context(),
			&cnatv1alpha1.At{ObjectMeta: read.ObjectMeta},
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"RUNNING"}}`))),
		"json patch":             c.Patch(t.Context(), unread, client.RawPatch(types.JSONPatchType, []byte("[]"))),
		"status without version": c.Status().Update(t.Context(), unread),
		"delete by name":         c.Delete(t.Context(), unread),
		"delete by name, gently": c.Delete(t.Context(), unread,
			client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{}),
		"delete all":                  c.DeleteAllOf(t.Context(), unread),
		"scale without version":       c.SubResource("scale").Update(t.Context(), unread, scale),
		"scale patch without version": c.SubResource("scale").Patch(t.Context(), unread, client.MergeFrom(unread), scale),
		"eviction by name":            c.SubResource("eviction").Create(t.Context(), unread, &policyv1.Eviction{}),
		"eviction by name, gently": c.SubResource("eviction").Create(t.Context(), unread, &policyv1.Eviction{
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}}),
		"eviction without its type": c.SubResource("eviction").Create(t.Context(), read, &unstructured.Unstructured{}),
		"applied status that is to tell the epoch": c.Status().Apply(t.Context(),
			client.ApplyConfigurationFromUnstructured(untyped)),
		"untyped status that is to tell the epoch": c.Status().Update(t.Context(), untyped),
	}
	for name, err := range cases {
		if !errors.Is(err, ErrUnfenceable) {
			t.Errorf("%s: got %v, want ErrUnfenceable", name, err)
		}
	}
	expect.Equal(t, "something was sent", &sent{}, s, cmp.AllowUnexported(sent{}))
}

func TestPatchesAndDeletesAreConditionalOnTheVersionThatWasRead(t *testing.T) {
	c, s := newTestClient(t)
	read := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "41"}}
	changed := read.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	must.Succeed(t, c.Patch(t.Context(), changed, client.MergeFrom(read)))
	if want := `{"metadata":{"labels":{"a":"b"},"resourceVersion":"41"}}`; s.patch != want {
		t.Errorf("patch: got %s, want %s", s.patch, want)
	}
	must.Succeed(t, c.Patch(t.Context(), read.DeepCopy(), client.MergeFrom(read)))
	if s.patch != "{}" {
		t.Errorf("a patch without a change: got %s, want {}", s.patch)
	}
	must.Succeed(t, c.Delete(t.Context(), read))
	if p := s.delete.Preconditions; p == nil || *p.UID != "u" || *p.ResourceVersion != "41" {
		t.Errorf("preconditions of the delete: got %v, want UID u and version 41", p)
	}
	*s = sent{}
	read.ResourceVersion = ""
	must.Succeed(t, c.Delete(t.Context(), read, client.GracePeriodSeconds(1)))
	if p := s.delete.Preconditions; p == nil || *p.UID != "u" || p.ResourceVersion != nil {
		t.Errorf("preconditions of the delete without a version: got %v, want UID u", p)
	}
	if s.delete.GracePeriodSeconds == nil {
		t.Error("the caller's own options are lost")
	}
	for name, none := range map[string]client.DeleteOption{
		"an option": client.Preconditions{}, "options": &client.DeleteOptions{Preconditions: &metav1.Preconditions{}},
	} {
		*s = sent{}
		must.Succeed(t, c.Delete(t.Context(), read, none))
		if p := s.delete.Preconditions; p == nil || p.UID == nil || *p.UID != "u" {
			t.Errorf("%s without preconditions: %v, want UID u", name, p)
		}
	}
	read.UID = ""
	version := "40" // the caller's own precondition stays as it is
	must.Succeed(t, c.Delete(t.Context(), read, client.Preconditions{ResourceVersion: &version}))
	if p := s.delete.Preconditions; p == nil || p.UID != nil || *p.ResourceVersion != "40" {
		t.Errorf("preconditions of a delete with the caller's own: got %v, want version 40", p)
	}
}

// What a subresource is sent may be another object than the one that was read.
func TestWritesOfSubresourcesAreConditionalOnTheVersionThatWasRead(t *testing.T) {
	c, s := newTestClient(t)
	read := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "41"}}
	for own, want := range map[string]string{"": "41", "40": "40"} {
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{ResourceVersion: own}}
		must.Succeed(t, c.SubResource("scale").Update(t.Context(), read, client.WithSubResourceBody(scale)))
		if got := s.part.GetResourceVersion(); s.part != client.Object(scale) || got != want {
			t.Errorf("update with version %q: sent a %T of version %q, want the scale of %s", own, s.part, got, want)
		}
		before := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{ResourceVersion: own}}
		scale = before.DeepCopy()
		scale.Spec.Replicas = 2
		must.Succeed(t, c.SubResource("scale").Patch(t.Context(), read, client.MergeFrom(before),
			client.WithSubResourceBody(scale)))
		if want := `{"metadata":{"resourceVersion":"` + want + `"},"spec":{"replicas":2}}`; s.status != want {
			t.Errorf("patch with version %q: got %s, want %s", own, s.status, want)
		}
	}
	if err := c.SubResource("binding").Create(t.Context(), read, &corev1.Binding{}); err != nil || !s.bound {
		t.Errorf("a Pod can't be bound: %v", err)
	}
	status := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	if err := c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(status)); err != nil ||
		!strings.Contains(s.status, `"kind":"Pod"`) {
		t.Errorf("a status that tells no epoch can't be applied: %v", err)
	}
}

// By then, another object may have the name.
func TestAnEvictionIsOfThePodThatWasRead(t *testing.T) {
	c, s := newTestClient(t)
	read := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", ResourceVersion: "41"}}
	seconds, other := int64(1), types.UID("other")
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &seconds}}
	must.Succeed(t, c.SubResource("eviction").Create(t.Context(), read, eviction))
	if p := s.evicted.DeleteOptions.Preconditions; p == nil || *p.UID != "u" || *p.ResourceVersion != "41" {
		t.Errorf("preconditions: got %v, want UID u and version 41", p)
	}
	if s.evicted.DeleteOptions.GracePeriodSeconds == nil || eviction.DeleteOptions.Preconditions != nil {
		t.Error("the caller's own options are lost, or changed")
	}
	eviction.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &other} // stays as it is
	must.Succeed(t, c.SubResource("eviction").Create(t.Context(), read, eviction))
	if p := s.evicted.DeleteOptions.Preconditions; *p.UID != other || p.ResourceVersion != nil {
		t.Errorf("preconditions with the caller's own: got %v, want UID other", p)
	}
}

// A float64 has 53 bits for it.
func TestLargeIntegersAreSentAsTheyAre(t *testing.T) {
	c, s := newTestClient(t)
	const large = 1<<53 + 1
	read := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", ResourceVersion: "41"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"n":9007199254740993}}`))
	must.Succeed(t, c.Patch(t.Context(), read, patch))
	if want := `{"metadata":{"resourceVersion":"41"},"spec":{"n":9007199254740993}}`; s.patch != want {
		t.Errorf("patch: got %s, want %s", s.patch, want)
	}
	if c.Patch(t.Context(), read, client.RawPatch(types.MergePatchType, []byte("null"))) == nil {
		t.Error("a patch that is null is sent")
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Account",
		"metadata": map[string]any{"namespace": "n", "name": "a"}, "spec": map[string]any{"n": int64(large)}}}
	must.Succeed(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied)))
	if !strings.Contains(s.applied, `"spec":{"n":9007199254740993}`) {
		t.Errorf("applied: %s", s.applied)
	}
	if n, _, err := unstructured.NestedInt64(applied.Object, "spec", "n"); err != nil || n != large {
		t.Errorf("the caller gets back %d, %v; want %d", n, err, large)
	}
}

func TestStatusWritesAreStampedWithTheEpoch(t *testing.T) {
	c, s := newTestClient(t)
	read := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", ResourceVersion: "41"}}
	changed := read.DeepCopy()
	changed.Status.Phase = "RUNNING"
	must.Succeed(t, c.Status().Patch(t.Context(), changed, client.MergeFrom(read)))
	if want := `{"metadata":{"resourceVersion":"41"},"status":{"epoch":9,"phase":"RUNNING"}}`; s.status != want {
		t.Errorf("status patch: got %s, want %s", s.status, want)
	}
	body := &cnatv1alpha1.At{}
	must.Succeed(t, c.Status().Update(t.Context(), read, client.WithSubResourceBody(body)))
	if body.Status.Epoch != 9 || read.Status.Epoch != 0 {
		t.Errorf("epoch %d is sent, and %d is in the object that isn't", body.Status.Epoch, read.Status.Epoch)
	}
}

// A tenure that is over may have a fresh cache: what it reads there must not lend it the epoch of the next.
func TestAStatusThatALaterTenureHasWrittenIsNotWritten(t *testing.T) {
	c, s := newTestClient(t)
	read := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", ResourceVersion: "41"}}
	read.Status.Epoch = 10
	changed := read.DeepCopy()
	changed.Status.Phase = "RUNNING"
	for name, err := range map[string]error{
		"patch":  c.Status().Patch(t.Context(), changed, client.MergeFrom(read)),
		"update": c.Status().Update(t.Context(), changed),
	} {
		if !errors.Is(err, ErrFenced) {
			t.Errorf("%s: got %v, want ErrFenced", name, err)
		}
	}
	if s.status != "" {
		t.Errorf("sent %q, want nothing", s.status)
	}
}
