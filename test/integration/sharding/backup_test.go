package sharding

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// TestAWorkloadClusterThatIsRestoredFromABackupIsServedAsItIsThen takes a workload cluster back by seconds under load.
// Its planes are its own: commands run twice there, which no witness of the shared ones should see.
func TestAWorkloadClusterThatIsRestoredFromABackupIsServedAsItIsThen(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west"}, LeaseDuration: 10 * time.Second, ShardsPerCluster: shardsOfCluster, Direct: true,
	})
	labtest.Replicas(t, f, "v1", "v2")
	labtest.Settle(t, f, patience)
	const namespace = "restored"
	west := f.Client("west")
	must.Succeed(t, lab.AddNamespace(t.Context(), west, namespace))
	made := 0
	create := func(n int, after time.Duration) {
		t.Helper()
		for range n {
			a := labtest.At(namespace, fmt.Sprint("at-", made), time.Now().Add(after))
			must.Succeed(t, west.Create(t.Context(), a))
			made++
		}
	}
	load := func(d time.Duration) {
		t.Helper()
		for began := time.Now(); time.Since(began) < d; time.Sleep(100 * time.Millisecond) {
			create(2, 3*time.Second)
		}
	}
	phases := func() map[cnatv1alpha1.AtPhase]int {
		t.Helper()
		list := &cnatv1alpha1.AtList{}
		must.Succeed(t, west.List(t.Context(), list, client.InNamespace(namespace)))
		n := map[cnatv1alpha1.AtPhase]int{}
		for i := range list.Items {
			n[list.Items[i].Status.Phase]++
		}
		return n
	}
	load(5 * time.Second)
	const later = 16 * time.Second
	create(10, later) // not begun before the snapshot, which takes seconds on a slow machine, and begun before the restore
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	plane := f.Planes.Cluster("west")
	must.Succeed(t, plane.Snapshot(t.Context(), snapshot))
	held := phases()
	begun := held[cnatv1alpha1.AtRunning] + held[cnatv1alpha1.AtPending]
	if held[cnatv1alpha1.AtPending] == 0 {
		t.Fatalf("the backup has no At that runs again: the test would test nothing (%v)", held)
	}
	load(later)
	lost := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("at-", made-1)}}
	must.Succeed(t, plane.Restore(t.Context(), snapshot, 0))
	if err := west.Get(t.Context(), client.ObjectKeyFromObject(lost), lost); !apierrors.IsNotFound(err) {
		t.Fatalf("At %s was made after the backup, and is there: %v", lost.Name, err)
	}
	back := time.Now()
	t.Logf("of %d Ats the backup has about %v", made, held)
	made = 1000 // names that were lost may be used again; these are others
	create(20, 3*time.Second)
	labtest.Eventually(t, "all that there is now is DONE", func() error {
		if time.Since(back) > 10*time.Second {
			nudge(t, west, namespace)
		}
		if n := phases(); n[cnatv1alpha1.AtDone] < 20+held[cnatv1alpha1.AtDone] || len(n) > 1 {
			return fmt.Errorf("phases: %v", n)
		}
		return nil
	})
	t.Logf("all are DONE %v after the cluster was back", time.Since(back).Round(time.Millisecond))
	pods, events := &corev1.PodList{}, &eventsv1.EventList{}
	for _, list := range []client.ObjectList{pods, events} {
		must.Succeed(t, west.List(t.Context(), list, client.InNamespace(namespace)))
	}
	// An At that was begun in the backup, and whose Pod wasn't there yet, may be brought to its end by a cache that still
	// shows that Pod's: it had ended.
	if done := phases()[cnatv1alpha1.AtDone]; len(pods.Items) > done || len(pods.Items) < done-begun {
		t.Errorf("%d Pods for %d Ats, of which %d had begun at most", len(pods.Items), done, begun)
	}
	told := 0
	for i := range events.Items {
		if events.Items[i].Reason == at.ReasonRestored {
			told++
		}
	}
	t.Logf("%d owners were told that their command runs again", told)
	if told == 0 {
		t.Error("nobody was told that a command runs again")
	}
	lapsed(t, f.Replicas()...)
}

// TestAClusterThatIsAddedAfterHomeWentBackIsServedAtOnce restores home, without raising its revision, from before what
// the replicas have seen of its Secrets.
func TestAClusterThatIsAddedAfterHomeWentBackIsServedAtOnce(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west", "east"}, Untold: true, Bare: true, LeaseDuration: lease, ShardsPerCluster: 2,
		Direct: true,
	})
	must.Succeed(t, f.AddCluster(t.Context(), "west", "west"))
	labtest.Replica(t, f, "v1")
	awaitServed(t, f, "west", patience)
	snapshot := filepath.Join(t.TempDir(), "home.db")
	home := f.Planes.Cluster(lab.Home)
	must.Succeed(t, home.Snapshot(t.Context(), snapshot))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: "west"}}
	for i := range 1000 { // more than is written to home before the test is over
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"aged":"%d"}}}`, i))
		must.Succeed(t, f.Client(lab.Home).Patch(t.Context(), secret, patch))
	}
	must.Succeed(t, home.Restore(t.Context(), snapshot, 0))
	began := time.Now()
	must.Succeed(t, f.AddCluster(t.Context(), "east", "east"))
	awaitServed(t, f, "east", patience)
	t.Logf("served %v after home was back", time.Since(began).Round(100*time.Millisecond))
}

// awaitServed waits until some shard of a cluster has a holder.
func awaitServed(t *testing.T, f *lab.Fleet, cluster string, within time.Duration) {
	t.Helper()
	labtest.Within(t, within, "cluster "+cluster+" is served", func() error {
		shards := &tenurev1alpha1.ShardList{}
		if err := f.Client(lab.Home).List(t.Context(), shards, client.InNamespace(lab.Namespace)); err != nil {
			return err
		}
		for i := range shards.Items {
			if s := &shards.Items[i]; s.Spec.Cluster == cluster && s.Status.Holder != "" {
				return nil
			}
		}
		return fmt.Errorf("none of %d records is a held one of it", len(shards.Items))
	})
}

// nudge changes Pods that don't end though they should have: kwok, which plays the kubelet, gives one up for good when
// its write is refused, and looks at it again when it changes.
func nudge(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	pods := &corev1.PodList{}
	must.Succeed(t, c.List(t.Context(), pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Annotations["nudged"] != "" {
			continue
		}
		t.Logf("nudging Pod %s, which is %s", p.Name, p.Status.Phase)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"nudged":"once"}}}`))
		must.Succeed(t, c.Patch(t.Context(), p, patch))
	}
}
