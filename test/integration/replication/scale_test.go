package replication

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
)

// The size at which the project promises what is tested here is 2000:
//
//	go test ./test/integration/replication -run OneCreatePerCopy -v -sources 2000
var scale = flag.Int("sources", 60, "Deployments that TestOneCreatePerCopyAndNoWriteWhenNothingChanged replicates to three clusters")

// TestOneCreatePerCopyAndNoWriteWhenNothingChanged counts writes in the API servers' audit logs. The clusters are API
// servers only: without a Deployment controller nothing rolls out, and every write to a copy is ours.
func TestOneCreatePerCopyAndNoWriteWhenNothingChanged(t *testing.T) {
	clusters := []string{"east", "north", "west"}
	f := startFleet(t, lab.Options{Workloads: clusters, Bare: true}, "r1", "r2", "r3")
	eventually(t, time.Minute, func() error { return sourcesHeld(t.Context(), f) })
	began := time.Now()
	createSources(t, f.Client(lab.Home), *scale)
	created := time.Since(began)
	within := time.Minute + time.Duration(*scale)*200*time.Millisecond
	eventually(t, within, func() error { return copied(t.Context(), f, clusters, *scale) })
	converged := time.Since(began)
	eventually(t, within, func() error { return reported(t.Context(), f, *scale) })

	writes := map[string]int{}
	for _, cluster := range append([]string{lab.Home}, clusters...) {
		writes[cluster] = committed(t, f, cluster)
	}
	for _, cluster := range clusters {
		onceEach(t, f, cluster, *scale)
		if writes[cluster] != *scale {
			t.Errorf("%s: %d writes for %d copies, want one each", cluster, writes[cluster], *scale)
		}
	}
	t.Logf("%d Deployments in %d clusters: sources made in %.1f s, all copies there after %.1f s; writes per copy: 1 in its cluster, %.2f to the source",
		*scale, len(clusters), created.Seconds(), converged.Seconds(), float64(writes[lab.Home])/float64(*scale*len(clusters)))

	// Other processes, with nothing in memory, look at everything.
	for _, r := range f.Alive() {
		r.Kill()
	}
	startReplicas(t, f, "r4", "r5", "r6")
	eventually(t, within, func() error { return allReconciled(f, *scale) })
	for cluster, before := range writes {
		if after := committed(t, f, cluster); after != before {
			t.Errorf("%s: %d writes when nothing had changed", cluster, after-before)
		}
	}
}

func createSources(t *testing.T, home client.Client, n int) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := home.Create(t.Context(), newSource(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if group.Wait(); t.Failed() {
		t.FailNow()
	}
}

// copied says which cluster doesn't have n copies.
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

// reported says which source doesn't show all of its copies yet: then more writes are to come.
func reported(ctx context.Context, f *lab.Fleet, n int) error {
	list := &appsv1.DeploymentList{}
	if err := f.Client(lab.Home).List(ctx, list, client.InNamespace("default")); err != nil {
		return err
	}
	shown := 0
	for _, d := range list.Items {
		for _, c := range d.Status.Conditions {
			if c.Type == replication.ConditionReplicated && strings.HasSuffix(c.Message, "east 0/1, north 0/1, west 0/1") {
				shown++
			}
		}
	}
	if shown != n {
		return fmt.Errorf("%d of %d sources show all their copies", shown, n)
	}
	return nil
}

// committed counts our writes to Deployments that an API server didn't refuse.
func committed(t *testing.T, f *lab.Fleet, cluster string) int {
	t.Helper()
	n := 0
	for _, e := range auditLog(t, f, cluster) {
		if e.Ours() && e.Resource == "deployments" && e.Code < 300 &&
			(e.Verb == "create" || e.Verb == "update" || e.Verb == "patch" || e.Verb == "delete") {
			n++
		}
	}
	return n
}

// allReconciled says what is missing until the living replicas have reconciled n times and have nothing left to do.
func allReconciled(f *lab.Fleet, n int) error {
	done, waiting := 0, 0
	for _, r := range f.Alive() {
		text, err := scrape(r)
		if err != nil {
			return err
		}
		done += sum(text, `controller_runtime_reconcile_total{controller="replication"`)
		waiting += sum(text, `workqueue_depth{controller="replication"`) + sum(text, `controller_runtime_active_workers{controller="replication"`)
	}
	if done < n || waiting > 0 {
		return fmt.Errorf("%d of %d sources were looked at again, %d wait", done, n, waiting)
	}
	return nil
}

func scrape(r *lab.Replica) (string, error) {
	reply, err := http.Get("http://" + r.Metrics + "/metrics")
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return string(text), err
}

// sum adds up the samples that begin so.
func sum(metrics, prefix string) int {
	total := 0.0
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, prefix) {
			value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64) // a replica's own metrics are well-formed
			total += value
		}
	}
	return int(total)
}
