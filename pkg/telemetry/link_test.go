package telemetry

import (
	"context"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stampedPod is a kind whose status names the trace that last wrote it.
type stampedPod struct {
	corev1.Pod
	trace string
}

func (p *stampedPod) StampTrace(id string)   { p.trace = id }
func (p *stampedPod) WrittenInTrace() string { return p.trace }

// oneObject is a cluster with one object, which changes its version at each write.
type oneObject struct {
	client.Client
	version, trace string
}

func (c *oneObject) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetUID("uid")
	into.SetResourceVersion(c.version)
	if s, ok := into.(*stampedPod); ok {
		s.trace = c.trace
	}
	return nil
}

func (c *oneObject) Create(_ context.Context, obj client.Object, opts ...client.CreateOption) error {
	if slices.Contains(opts, client.CreateOption(unread{})) {
		return nil
	}
	obj.SetUID("uid")
	return c.write(obj)
}

// unread is an option for writes that leave the object as it was sent.
type unread struct{}

func (unread) ApplyToCreate(*client.CreateOptions)                       {}
func (unread) ApplyToSubResourceUpdate(*client.SubResourceUpdateOptions) {}
func (unread) AnswerUnread()                                             {}

func (c *oneObject) write(obj client.Object) error {
	c.version += "1"
	obj.SetResourceVersion(c.version)
	if s, ok := obj.(*stampedPod); ok {
		c.trace = s.trace
	}
	return nil
}

func (c *oneObject) SubResource(string) client.SubResourceClient { return oneStatus{of: c} }

type oneStatus struct {
	client.SubResourceClient
	of *oneObject
}

func (s oneStatus) Update(_ context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if slices.Contains(opts, client.SubResourceUpdateOption(unread{})) {
		return nil
	}
	return s.of.write(obj)
}

func TestLinksLeadToWhoCreatedAndLastWroteWhatIsRead(t *testing.T) {
	cluster := &oneObject{}
	mine, other := newWrites(), newWrites()
	reconcile := func(memory writes) (*flight, *linkedClient) {
		id := newTraceID()
		f := &flight{traceID: id, root: rootOf(id), sampled: true}
		return f, &linkedClient{Client: cluster, flight: f, writes: memory}
	}
	wantLinks := func(f *flight, want ...*flight) {
		t.Helper()
		var got []trace.SpanContext
		for _, l := range f.links {
			got = append(got, l.SpanContext)
		}
		if len(got) != len(want) {
			t.Fatalf("%d links, want %d", len(got), len(want))
		}
		for i := range want {
			if !got[i].Equal(want[i].context()) {
				t.Errorf("link %d leads to %v, want %v", i, got[i], want[i].context())
			}
		}
	}
	ctx := context.Background()

	maker, c := reconcile(mine)
	pod := &corev1.Pod{}
	if err := c.Create(ctx, pod, unread{}); err != nil || len(pod.Annotations) > 0 {
		t.Fatalf("%v, annotations %v; want none", err, pod.Annotations)
	}
	_ = cluster.write(pod) // somebody else's
	writer, c := reconcile(mine)
	stamped := &stampedPod{}
	_ = c.Get(ctx, client.ObjectKey{}, stamped)
	wantLinks(writer, maker)
	if err := c.Status().Update(ctx, stamped, unread{}); err != nil || cluster.trace != writer.traceID.String() {
		t.Fatalf("%v, the status names trace %q, want %s", err, cluster.trace, writer.traceID)
	}

	same, c := reconcile(mine)
	_ = c.Get(ctx, client.ObjectKey{}, &stampedPod{})
	wantLinks(same, maker, writer)

	elsewhere, c := reconcile(other) // another replica, which knows only what the status says
	_ = c.Get(ctx, client.ObjectKey{}, &stampedPod{})
	wantLinks(elsewhere, writer)
	cluster.trace = "nonsense"
	elsewhere, c = reconcile(other)
	_ = c.Get(ctx, client.ObjectKey{}, &stampedPod{})
	wantLinks(elsewhere)
}
