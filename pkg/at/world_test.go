package at

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/must"
)

// world is an API server with one At and at most its Pod. It keeps every version
// of both, so that a cache can show any of them.
type world struct {
	ats   []*cnatv1alpha1.At
	pods  []*corev1.Pod // nil: not there
	rv    int
	clock *clocktesting.FakeClock

	// made counts the Pods made, lost those deleted while the At was RUNNING,
	// writes the writes committed.
	made, lost, writes int
	// broken are violations of what must always hold.
	broken []string
}

func newWorld(at *cnatv1alpha1.At) *world {
	w := &world{clock: clocktesting.NewFakeClock(due), pods: []*corev1.Pod{nil}}
	w.putAt(at)
	return w
}

func (w *world) at() *cnatv1alpha1.At { return w.ats[len(w.ats)-1] }
func (w *world) pod() *corev1.Pod     { return w.pods[len(w.pods)-1] }

func (w *world) putAt(at *cnatv1alpha1.At) {
	w.rv++
	at = at.DeepCopy()
	at.ResourceVersion = strconv.Itoa(w.rv)
	w.ats = append(w.ats, at)
}

// updateStatus is the API server's: compare-and-swap, and phases go forward.
func (w *world) updateStatus(at *cnatv1alpha1.At) error {
	live := w.at()
	if at.ResourceVersion != live.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "ats"}, at.Name, nil)
	}
	if live.Status.Phase == cnatv1alpha1.AtDone && at.Status.Phase != cnatv1alpha1.AtDone {
		w.broken = append(w.broken, "an At that was DONE was sent back")
	}
	w.writes++
	next := live.DeepCopy()
	next.Status = at.Status
	w.putAt(next)
	at.ResourceVersion = w.at().ResourceVersion
	return nil
}

func (w *world) createPod(pod *corev1.Pod) error {
	if w.pod() != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, pod.Name)
	}
	w.writes++
	w.made++
	if w.at().Status.Phase != cnatv1alpha1.AtRunning {
		w.broken = append(w.broken, "a Pod was made while the At was "+string(w.at().Status.Phase))
	}
	if diff := cmp.Diff(newPod(w.at(), RestrictedPods()).Spec, pod.Spec); diff != "" {
		w.broken = append(w.broken, "a Pod isn't what its At says (-want +got):\n"+diff)
	}
	if w.clock.Now().Before(due) {
		w.broken = append(w.broken, "a Pod was made before its time")
	}
	if w.made > 1+w.lost {
		w.broken = append(w.broken, "a Pod was made again though none was lost")
	}
	made := pod.DeepCopy()
	made.UID = types.UID("pod-" + strconv.Itoa(w.made))
	made.Status.Phase = corev1.PodRunning
	w.pods = append(w.pods, made)
	return nil
}

func (w *world) finishPod(phase corev1.PodPhase) {
	if pod := w.pod(); pod != nil && pod.Status.Phase == corev1.PodRunning {
		pod = pod.DeepCopy()
		pod.Status.Phase = phase
		w.pods = append(w.pods, pod)
	}
}

func (w *world) deletePod() {
	if w.pod() == nil {
		return
	}
	if w.at().Status.Phase == cnatv1alpha1.AtRunning {
		w.lost++
	}
	w.pods = append(w.pods, nil)
}

// replica is a process: a Reconciler with its memory, and caches that show some
// earlier version of At and Pod, each its own.
type replica struct {
	world           *world
	reconciler      *Reconciler
	atSeen, podSeen int
	// before runs before each live read, and write carries out a write or doesn't; nil: it does.
	before func()
	write  func(kind string, commit func() error) error
	// cached is called after each read of an At from the cache.
	cached func()
	// busy is set during a reconcile.
	busy bool
}

func newReplica(w *world) *replica {
	r := &replica{world: w, before: func() {}, cached: func() {}}
	r.restart()
	return r
}

// restart is a new process: the memory is gone.
func (r *replica) restart() {
	reconciler, err := NewReconciler(Config{Clusters: r, Clock: r.world.clock, Unread: unread{}})
	if err != nil {
		panic(err)
	}
	r.reconciler = reconciler
}

func (r *replica) reconcile() (ctrl.Result, error) {
	return r.reconciler.Reconcile(context.Background(), testRequest)
}

// reconciles is a replica of these tests, or a bench.
type reconciles interface{ reconcile() (ctrl.Result, error) }

func mustReconcile(t *testing.T, r reconciles) {
	t.Helper()
	_, err := r.reconcile()
	must.Succeed(t, err)
}

// mustFail reconciles while a request fails.
func mustFail(t *testing.T, r reconciles) {
	t.Helper()
	if _, err := r.reconcile(); err == nil {
		t.Fatal("that a request fails is no error")
	}
}

func (r *replica) send(kind string, commit func() error) error {
	if r.write == nil {
		return commit()
	}
	return r.write(kind, commit)
}

// unread is an option for writes whose answer isn't read.
type unread struct{}

func (unread) ApplyToCreate(*client.CreateOptions)                       {}
func (unread) ApplyToSubResourceUpdate(*client.SubResourceUpdateOptions) {}

// catchUp makes the caches show what is.
func (r *replica) catchUp() { r.atSeen, r.podSeen = len(r.world.ats)-1, len(r.world.pods)-1 }

func (r *replica) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return worldCluster{replica: r}, nil
}

type worldCluster struct {
	cluster.Cluster
	replica *replica
}

func (c worldCluster) GetClient() client.Client { return worldClient{replica: c.replica} }
func (c worldCluster) GetAPIReader() client.Reader {
	return worldClient{replica: c.replica, live: true}
}
func (c worldCluster) GetEventRecorder(string) recorder.EventRecorder { return &events.FakeRecorder{} }

type worldClient struct {
	client.Client
	replica *replica
	live    bool
}

func (c worldClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	w, atIndex, podIndex := c.replica.world, c.replica.atSeen, c.replica.podSeen
	if c.live {
		c.replica.before()
		atIndex, podIndex = len(w.ats)-1, len(w.pods)-1
	}
	switch into := into.(type) {
	case *cnatv1alpha1.At:
		w.ats[atIndex].DeepCopyInto(into)
		if !c.live {
			_, _ = Trim(into) // never fails
			c.replica.cached()
		}
	case *corev1.Pod:
		pod := w.pods[podIndex]
		if pod == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
		}
		pod.DeepCopyInto(into)
		if !c.live {
			_, _ = Trim(into) // never fails
		}
	}
	return nil
}

func (c worldClient) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	pod := obj.(*corev1.Pod).DeepCopy()
	return c.replica.send("create", func() error { return c.replica.world.createPod(pod) })
}

func (c worldClient) Status() client.SubResourceWriter { return worldStatus{replica: c.replica} }

type worldStatus struct {
	client.SubResourceWriter
	replica *replica
}

func (s worldStatus) Update(_ context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	sent := obj.(*cnatv1alpha1.At).DeepCopy()
	return s.replica.send("status", func() error {
		err := s.replica.world.updateStatus(sent)
		if err == nil && !slices.Contains(opts, client.SubResourceUpdateOption(unread{})) { // unless the reply is lost
			s.replica.world.at().DeepCopyInto(obj.(*cnatv1alpha1.At))
		}
		return err
	})
}
