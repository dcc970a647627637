package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	manyAts = flag.Int("many-ats", 3000, "how many `Ats` of 32 KiB a replica has to bear")
	memory  = flag.Int("memory", 200, "`MiB` that it may take: 512 with 30,000 Ats")
)

// Users decide how many Ats they create, and how large, with 32 KiB and more each. A replica must get by with its
// memory limit while it fills its caches, takes over another replica's shards, and sees all Ats change.
func TestAReplicaBearsManyLargeAts(t *testing.T) {
	const bits, due = 32 << 10, 20
	tenure := labtest.Tenure(t)
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west"}, Bare: true, Direct: true, Tenure: tenure,
		LeaseDuration: 10 * time.Second, ShardsPerCluster: 16, // a busy machine alone makes nobody lapse
		Environment: []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", *memory*9/10)},
		// Bodies in audit logs would be gigabytes, and nobody reads them here.
		Planes: localplane.Config{Prepare: func(string) ([]string, error) {
			return []string{"--audit-log-path=/dev/null"}, nil
		}},
	})
	west := f.Client("west")
	command := "true #" + strings.Repeat("x", bits-6)
	create := func(n int, name string, schedule time.Time) {
		labtest.InParallel(t, n, func(i int) error {
			at := labtest.At(metav1.NamespaceDefault, fmt.Sprintf("%s-%05d", name, i), schedule)
			at.Spec.Command = command
			at.Annotations = map[string]string{"example.com/note": command[:1<<10]}
			return west.Create(t.Context(), at)
		})
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	must.Succeed(t, west.Create(t.Context(), account)) // a bare cluster has no controller that makes it
	create(*manyAts-due, "later", time.Now().Add(24*time.Hour))

	first := labtest.Replica(t, f, "m1")
	holdsAll := func(r *lab.Replica, all int) {
		t.Helper()
		labtest.Within(t, 5*time.Minute, r.Name+" holds all Ats", func() error {
			m, err := r.Metrics(t.Context())
			if err != nil {
				return err
			}
			if _, n := m.Count("tenure_shard_objects", nil); int(n) != all {
				return fmt.Errorf("%v of %d", n, all)
			}
			return nil
		})
	}
	holdsAll(first, *manyAts-due)
	tell(t, first, "fills its caches")

	second := labtest.Replica(t, f, "m2")
	labtest.Settle(t, f, labtest.Patience)
	create(due, "now", time.Now()) // each Pod has the whole command, though no cache has
	labtest.Eventually(t, "Ats that are due have their Pods", func() error {
		pods := &corev1.PodList{}
		if err := west.List(t.Context(), pods, client.InNamespace(metav1.NamespaceDefault)); err != nil ||
			len(pods.Items) < due {
			return fmt.Errorf("%d of %d Pods (%v)", len(pods.Items), due, err)
		}
		for _, pod := range pods.Items {
			if got := pod.Spec.Containers[0].Command[2]; got != command {
				return fmt.Errorf("the command of Pod %s has %d bytes of %d", pod.Name, len(got), len(command))
			}
		}
		return nil
	})
	labtest.InParallel(t, *manyAts/10, func(i int) error { // each change is an event with the whole At
		at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: fmt.Sprintf("later-%05d", i)}}
		return west.Patch(t.Context(), at, client.RawPatch(client.Merge.Type(),
			[]byte(`{"metadata":{"labels":{"changed":"true"}}}`)))
	})
	ats := &cnatv1alpha1.AtList{}
	must.Succeed(t, west.List(t.Context(), ats, client.MatchingLabels{"changed": "true"}, client.Limit(10)))
	for i := range ats.Items {
		if ats.Items[i].Spec.Command != command {
			t.Errorf("the command of %s has %d bytes of %d", ats.Items[i].Name, len(ats.Items[i].Spec.Command), len(command))
		}
	}
	tell(t, first, "shares them")
	first.Kill()
	create(1, "last", time.Now().Add(24*time.Hour))
	holdsAll(second, *manyAts+1)
	tell(t, second, "takes all of them over")

	// One that has hardly more memory than it takes to run at all says so, and serves its part all the same.
	poor := filepath.Join(t.TempDir(), "tenure")
	script := fmt.Sprintf("#!/bin/sh\nGOMEMLIMIT=12MiB exec %s \"$@\"\n", tenure)
	must.Succeed(t, os.WriteFile(poor, []byte(script), 0o755))
	third, err := f.StartReplicaOf(poor, "m3")
	must.Succeed(t, err)
	labtest.Settle(t, f, labtest.Patience)
	for r, short := range map[*lab.Replica]bool{second: false, third: true} {
		m, err := r.Metrics(t.Context())
		must.Succeed(t, err)
		_, needed := m.Count("tenure_memory_needed_ratio", nil)
		_, held := m.Count("tenure_shards_served", nil)
		t.Logf("%s needs %.2f of its memory and serves %v shards", r.Name, needed, held)
		if held == 0 || needed <= 0 || needed > 0.8 != short {
			t.Errorf("short of memory should be: %v", short)
		}
	}
	if log, err := os.ReadFile(third.LogPath); err != nil || !strings.Contains(string(log), "memory is short") {
		t.Errorf("it doesn't say that it has too little memory (%v)", err)
	}
}

// tell logs what a replica's process took at most, by the kernel's own account, and checks it.
func tell(t *testing.T, r *lab.Replica, when string) {
	t.Helper()
	must.Succeed(t, r.DiedByItself())
	status := labtest.Memory(t, r)
	t.Logf("%s, %d Ats of 32 KiB: %s took %d MiB at most, has %d MiB", when, *manyAts, r.Name,
		status.VmHWM>>20, status.VmRSS>>20)
	if most := status.VmHWM >> 20; most > uint64(*memory) {
		t.Errorf("%s took %d MiB when it %s, more than %d", r.Name, most, when, *memory)
	}
}
