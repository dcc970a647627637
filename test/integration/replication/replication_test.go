// Package replication tests the replication of Deployments by sharded replicas, as processes with the rights of
// config/.
package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

const sources = 24

var targets = []string{"west", "east"}

func TestShardedReplicasKeepDeploymentsInAllClusters(t *testing.T) {
	f := startFleet(t, lab.Options{Workloads: targets}, "r1", "r2")
	ctx := t.Context()
	home := f.Client(lab.Home)
	createSources(t, home, sources)
	labtest.Within(t, 90*time.Second, "convergence", func() error { return converged(ctx, f, sources) })

	t.Run("each copy was created once", func(t *testing.T) {
		for _, target := range targets {
			onceEach(t, f, target, sources)
		}
	})
	t.Run("drift is repaired at once", func(t *testing.T) { driftsAreRepaired(t, f) })
	t.Run("what a killed replica left half done is completed by the next holder", func(t *testing.T) {
		victim := holderOfSources(t, f)
		for i := sources; i < 2*sources; i++ {
			must.Succeed(t, home.Create(ctx, newSource(i)))
			if i == sources+sources/2 {
				victim.Kill()
			}
		}
		labtest.Within(t, 90*time.Second, "convergence", func() error { return converged(ctx, f, 2*sources) })
		for _, target := range targets {
			onceEach(t, f, target, 2*sources)
		}
	})
	t.Run("what is removed while a cluster is away is cleaned up when it is back",
		func(t *testing.T) { removedWhileAway(t, f) })
	t.Run("deleting the source cleans up every copy", func(t *testing.T) {
		must.Succeed(t, home.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace("default")))
		labtest.Within(t, 60*time.Second, "convergence", func() error {
			for _, cluster := range append([]string{lab.Home}, targets...) {
				list := &appsv1.DeploymentList{}
				if err := f.Client(cluster).List(ctx, list, client.InNamespace("default")); err != nil {
					return err
				}
				if len(list.Items) > 0 {
					return fmt.Errorf("%s still has %d Deployments", cluster, len(list.Items))
				}
			}
			return nil
		})
	})
}

// sourceShards are the records of the shards that sources are in.
func sourceShards(ctx context.Context, f *lab.Fleet) ([]tenurev1alpha1.Shard, error) {
	list := &tenurev1alpha1.ShardList{}
	err := f.Client(lab.Home).List(ctx, list, client.InNamespace(lab.Namespace))
	return slices.DeleteFunc(list.Items, func(s tenurev1alpha1.Shard) bool {
		return s.Spec.Cluster != lab.Home || s.Spec.Layout != nil
	}), err
}

// sourcesHeld says which shard of sources isn't held yet.
func sourcesHeld(ctx context.Context, f *lab.Fleet) error {
	shards, err := sourceShards(ctx, f)
	if err == nil && len(shards) == 0 {
		err = errors.New("there are no shards of sources")
	}
	for _, s := range shards {
		if s.Status.Phase != tenurev1alpha1.ShardHeld {
			err = fmt.Errorf("%s is %s", lab.ShardName(&s), s.Status.Phase)
		}
	}
	return err
}

// holderOfSources is the replica that holds most of the shards that sources are in.
func holderOfSources(t *testing.T, f *lab.Fleet) *lab.Replica {
	t.Helper()
	shards, err := sourceShards(t.Context(), f)
	must.Succeed(t, err)
	held := map[string]int{}
	for _, s := range shards {
		held[lab.ReplicaOf(s.Status.Holder)]++
	}
	holder := slices.MaxFunc(f.Alive(), func(a, b *lab.Replica) int { return held[a.Name] - held[b.Name] })
	if held[holder.Name] == 0 {
		t.Fatalf("no living replica holds a shard of the sources: %v", held)
	}
	return holder
}

func startFleet(t *testing.T, options lab.Options, replicas ...string) *lab.Fleet {
	t.Helper()
	options.ShardsPerCluster, options.Replication, options.Flags = 4, true, []string{"--deployment-source=home"}
	f := labtest.Fleet(t, options)
	for _, target := range options.Workloads {
		must.Succeed(t, lab.OpenNamespace(t.Context(), f.Client(target), "default", replication.TargetConfined))
	}
	labtest.Replicas(t, f, replicas...)
	return f
}

func name(i int) string { return fmt.Sprint("web-", i) }

func newSource(i int) *appsv1.Deployment {
	d := labtest.Deployment("default", name(i))
	d.Labels["team"] = "shop"
	return d
}

// converged reports what keeps the first n sources from being available in every target.
func converged(ctx context.Context, f *lab.Fleet, n int) error {
	for _, target := range targets {
		for i := range n {
			d := &appsv1.Deployment{}
			if err := f.Client(target).Get(ctx, client.ObjectKey{Namespace: "default", Name: name(i)}, d); err != nil {
				return err
			}
			if *d.Spec.Replicas != 1 || d.Status.AvailableReplicas != 1 {
				return fmt.Errorf("%s in %s wants %d replicas and has %d available", name(i), target, *d.Spec.Replicas,
					d.Status.AvailableReplicas)
			}
		}
	}
	return nil
}

// onceEach checks by the API server's own audit log that the copies of the first n sources were each created once,
// and once more for each time that somebody deleted them. The log shows no success if the client was killed before
// the reply, so in that case there may be one fewer.
func onceEach(t *testing.T, f *lab.Fleet, target string, n int) {
	t.Helper()
	creates, unknown, deletes := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range auditLog(t, f, target) {
		ours, code := e.Ours(), e.Code
		switch {
		case e.Resource != "deployments":
		case ours && code == http.StatusCreated:
			creates[e.Name]++
		case ours && (code == 0 || code >= 499):
			unknown[e.Name]++
		case !ours && e.Verb == "delete" && code == http.StatusOK:
			deletes[e.Name]++
		}
	}
	for i := range n {
		got, want := creates[name(i)], 1+deletes[name(i)]
		if got > want || got+unknown[name(i)] < want {
			t.Errorf("%s: %d committed creates of the copy of %s and %d of unknown outcome, want %d", target, got, name(i),
				unknown[name(i)], want)
		}
	}
	if len(creates) > n {
		t.Errorf("%s: copies of %d names were created, want %d", target, len(creates), n)
	}
}

// auditLog is what an API server logged about Deployments.
func auditLog(t *testing.T, f *lab.Fleet, cluster string) []audit.Event {
	t.Helper()
	return labtest.Audited(t, f.Planes.Cluster(cluster), (*audit.Event).IsDeployment)
}
