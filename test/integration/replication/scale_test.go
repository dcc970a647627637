package replication

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

// The size at which the project promises what is tested here is 2000:
//
//	go test ./test/integration/replication -run OneCreatePerCopy -v -sources 2000
var scale = flag.Int("sources", 60, "Deployments that TestOneCreatePerCopyAndNoWriteWhenNothingChanged replicates to "+
	"three clusters")

// TestOneCreatePerCopyAndNoWriteWhenNothingChanged counts writes in the API servers' audit logs. The clusters are API
// servers only: without a Deployment controller nothing rolls out, and every write to a copy is ours.
func TestOneCreatePerCopyAndNoWriteWhenNothingChanged(t *testing.T) {
	clusters := []string{"east", "north", "west"}
	f := startFleet(t, lab.Options{Workloads: clusters, Bare: true,
		LeaseDuration: 10 * time.Second}, "r1", "r2", "r3") // a busy machine alone makes nobody lapse
	labtest.Within(t, time.Minute, "convergence", func() error { return sourcesHeld(t.Context(), f) })
	began := time.Now()
	createSources(t, f.Client(lab.Home), *scale)
	created := time.Since(began)
	within := time.Minute + time.Duration(*scale)*200*time.Millisecond
	labtest.Within(t, within, "convergence", func() error { return copied(t.Context(), f, clusters, *scale) })
	converged := time.Since(began)
	labtest.Within(t, within, "convergence", func() error { return reported(t.Context(), f, *scale) })
	labtest.Within(t, within, "no write is under way", func() error { return allReconciled(t.Context(), f, *scale) })

	writes := map[string]map[audit.Outcome]int{}
	for _, cluster := range append([]string{lab.Home}, clusters...) {
		writes[cluster] = written(t, f, cluster)
	}
	for _, cluster := range clusters {
		onceEach(t, f, cluster, *scale)
		n := writes[cluster]
		if n[audit.Committed] > *scale || n[audit.Committed]+n[audit.Unknown] < *scale {
			t.Errorf("%s: %d writes for %d copies, want one each", cluster, n[audit.Committed], *scale)
		}
	}
	t.Logf("%d Deployments in %d clusters: sources made in %.1f s, all copies there after %.1f s; writes per copy: 1 in "+
		"its cluster, %.2f to the source",
		*scale, len(clusters), created.Seconds(), converged.Seconds(),
		float64(writes[lab.Home][audit.Committed])/float64(*scale*len(clusters)))

	// Other processes, with nothing in memory, look at everything.
	for _, r := range f.Alive() {
		r.Kill()
	}
	labtest.Replicas(t, f, "r4", "r5", "r6")
	labtest.Within(t, within, "convergence", func() error { return allReconciled(t.Context(), f, *scale) })
	for cluster, before := range writes {
		if after := written(t, f, cluster); !maps.Equal(after, before) {
			t.Errorf("%s: %v writes, want %v as before, since nothing had changed", cluster, after, before)
		}
	}
}

func createSources(t *testing.T, home client.Client, n int) {
	t.Helper()
	labtest.InParallel(t, n, func(i int) error { return home.Create(t.Context(), newSource(i)) })
}

// copied returns an error that names a cluster that doesn't have n copies.
func copied(ctx context.Context, f *lab.Fleet, clusters []string, n int) error {
	for _, cluster := range clusters {
		list := &appsv1.DeploymentList{}
		if err := f.Client(cluster).List(ctx, list, client.InNamespace("default")); err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("%s has %d of %d copies", cluster, len(list.Items), n)
		}
	}
	return nil
}

// reported returns an error until n sources show all of their copies. Before that, more writes follow.
func reported(ctx context.Context, f *lab.Fleet, n int) error {
	list := &appsv1.DeploymentList{}
	if err := f.Client(lab.Home).List(ctx, list, client.InNamespace("default")); err != nil {
		return err
	}
	shown := 0
	for _, d := range list.Items {
		c := labtest.Condition(&d, replication.ConditionReplicated)
		if strings.HasSuffix(c.Message, "east 0/1, north 0/1, west 0/1") {
			shown++
		}
	}
	if shown != n {
		return fmt.Errorf("%d of %d sources show all their copies", shown, n)
	}
	return nil
}

// written counts our writes to Deployments by their outcome, as far as an API server's log shows it.
func written(t *testing.T, f *lab.Fleet, cluster string) map[audit.Outcome]int {
	t.Helper()
	n := map[audit.Outcome]int{}
	for _, e := range auditLog(t, f, cluster) {
		if e.Ours() && e.Mutating() {
			n[e.Outcome()]++
		}
	}
	return n
}

// allReconciled returns an error until the living replicas have reconciled n times and have nothing left to do.
func allReconciled(ctx context.Context, f *lab.Fleet, n int) error {
	done, waiting := 0.0, 0.0
	for _, r := range f.Alive() {
		m, err := r.Metrics(ctx)
		if err != nil {
			return err
		}
		for name, to := range map[string]*float64{
			"controller_runtime_reconcile_total": &done, "workqueue_depth": &waiting,
			"controller_runtime_active_workers": &waiting,
		} {
			value, err := m.Sum(name, map[string]string{"controller": "replication"})
			if err != nil {
				return err
			}
			*to += value
		}
	}
	if int(done) < n || waiting > 0 {
		return fmt.Errorf("%v of %d sources were looked at again, %v wait", done, n, waiting)
	}
	return nil
}
