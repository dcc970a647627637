package cycles

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestWhatIsWrittenDoesNotDependOnHowTheAnswerIsRead(t *testing.T) {
	real, connection := connected(t)
	gate := engage.NewGate(t.Context(), keyspace.ShardID{Cluster: "west"}, "tenure/test", "writer-1",
		func() bool { return true })
	shard, err := engage.Open(connection, gate, &engage.Traffic{}, engage.Options{
		Kinds: []engage.Kind{{Object: &cnatv1alpha1.At{}}, {Object: &corev1.Pod{}, Owned: true}},
	})
	must.Succeed(t, err)
	gate.Open(1)
	reconciles, over := make(chan context.Context), make(chan struct{})
	defer close(over)
	go gate.Run(t.Context(), &engage.Traffic{}, func(ctx context.Context) { reconciles <- ctx; <-over })
	ctx := <-reconciles
	c, live := shard.GetClient(), real.GetAPIReader()

	at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: cnatv1alpha1.AtSpec{
		Schedule: time.Now().UTC().Format(time.RFC3339), Command: "true",
	}}
	if err := c.Create(ctx, at, engage.AnswerUnread{}); err != nil || at.UID != "" {
		t.Fatalf("creating an At: %v; its UID is %q, and wasn't to be read", err, at.UID)
	}
	if err := c.Create(ctx, at, engage.AnswerUnread{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it again: %v", err)
	}
	must.Succeed(t, live.Get(ctx, client.ObjectKeyFromObject(at), at))
	at.ManagedFields = nil // as a cache has it
	before := at.DeepCopy()
	at.Status.Phase = cnatv1alpha1.AtRunning
	if err := c.Status().Update(ctx, at); err != nil || at.ResourceVersion == before.ResourceVersion {
		t.Fatalf("a status whose answer is read: %v, version %s", err, at.ResourceVersion)
	}
	there := &cnatv1alpha1.At{}
	must.Succeed(t, live.Get(ctx, client.ObjectKeyFromObject(at), there))
	there.ManagedFields = nil
	expect.Equal(t, "the answer isn't what is there", there, at)
	done := at.DeepCopy()
	done.Status.Phase = cnatv1alpha1.AtDone
	err = c.Status().Update(ctx, done, engage.AnswerUnread{})
	if err != nil || done.ResourceVersion != at.ResourceVersion {
		t.Fatalf("a status whose answer isn't read: %v, version %s", err, done.ResourceVersion)
	}
	if err := live.Get(ctx, client.ObjectKeyFromObject(at), there); err != nil ||
		there.Status.Phase != cnatv1alpha1.AtDone || there.Status.Epoch != 1 {
		t.Errorf("%v; the status that is there is %+v", err, there.Status)
	}
	if err := c.Status().Update(ctx, done, engage.AnswerUnread{}); !apierrors.IsConflict(err) {
		t.Errorf("writing it again, with the version of before: %v, want a conflict", err)
	}
	invalid := there.DeepCopy()
	invalid.Status.Phase = "SLEEPING"
	if err := c.Status().Update(ctx, invalid, engage.AnswerUnread{}); !apierrors.IsInvalid(err) {
		t.Errorf("a phase that there isn't: %v", err)
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	if err := real.GetClient().Create(ctx, account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}}}
	if err := c.Create(ctx, pod, engage.AnswerUnread{}, client.DryRunAll); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	for range 2 {
		err = c.Create(ctx, pod, engage.AnswerUnread{})
	}
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating a Pod for the second time: %v", err)
	}
	made := &corev1.Pod{}
	err = live.Get(ctx, client.ObjectKeyFromObject(pod), made)
	if err != nil || made.Spec.Containers[0].Image != "busybox" {
		t.Errorf("%v; the Pod that is there has %+v", err, made.Spec.Containers)
	}
}
