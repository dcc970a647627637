// Package replication tests the replication of Deployments by sharded replicas, as processes with the rights of config/.
package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/localplane"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/fleet"
)

const sources = 24

var targets = []string{"west", "east"}

func TestShardedReplicasKeepDeploymentsInAllClusters(t *testing.T) {
	f := startFleet(t)
	ctx := t.Context()
	home := f.Client(fleet.Home)
	for i := range sources {
		if err := home.Create(ctx, newSource(i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 90*time.Second, func() error { return converged(ctx, f, sources) })

	t.Run("each copy was created once", func(t *testing.T) {
		for _, target := range targets {
			if n := creates(t, f, target); n != sources {
				t.Errorf("%s: %d committed creates of copies, want %d", target, n, sources)
			}
		}
	})
	t.Run("a copy that is deleted, or scaled by hand, is restored at once", func(t *testing.T) {
		repaired(t, f, "a deleted copy", func() error {
			return f.Client("west").Delete(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name(1)}})
		})
		repaired(t, f, "a copy scaled by hand", func() error {
			d := &appsv1.Deployment{}
			if err := f.Client("east").Get(ctx, client.ObjectKey{Namespace: "default", Name: name(2)}, d); err != nil {
				return err
			}
			d.Spec.Replicas = ptr.To[int32](0)
			return f.Client("east").Update(ctx, d)
		})
	})
	t.Run("the source says so when it is replicated", func(t *testing.T) {
		eventually(t, 30*time.Second, func() error {
			d := &appsv1.Deployment{}
			if err := home.Get(ctx, client.ObjectKey{Namespace: "default", Name: name(3)}, d); err != nil {
				return err
			}
			for _, c := range d.Status.Conditions {
				if c.Type == "Replicated" && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions are %v", d.Status.Conditions)
		})
	})
	t.Run("what a killed replica left half done is completed by the next holder", func(t *testing.T) {
		for i := sources; i < 2*sources; i++ {
			if err := home.Create(ctx, newSource(i)); err != nil {
				t.Fatal(err)
			}
			if i == sources+sources/2 {
				f.Alive()[0].Kill()
			}
		}
		eventually(t, 90*time.Second, func() error { return converged(ctx, f, 2*sources) })
		for _, target := range targets {
			// The one copy that was deleted above was made again.
			if n := creates(t, f, target); n < 2*sources || n > 2*sources+1 {
				t.Errorf("%s: %d committed creates of copies, want one each", target, n)
			}
		}
	})
	t.Run("deleting the source cleans up every copy", func(t *testing.T) {
		if err := home.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		eventually(t, 60*time.Second, func() error {
			for _, cluster := range append([]string{fleet.Home}, targets...) {
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

func startFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Options{Workloads: targets, ShardsPerCluster: 4, TmpfsData: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, r := range f.Replicas() {
				text, _ := os.ReadFile(r.LogPath)
				t.Logf("the end of the log of %s:\n%s", r.Name, tail(string(text), 30))
			}
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	binary, err := localplane.FindBinary()
	if err != nil {
		t.Fatal(err)
	}
	root, err := fleet.Root()
	if err != nil {
		t.Fatal(err)
	}
	apply := exec.CommandContext(t.Context(), binary, "kubectl", "--kubeconfig", f.Planes.Cluster(fleet.Home).Kubeconfig(), "apply", "-k", filepath.Join(root, "config/replication"))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("installing config/replication: %v\n%s", err, out)
	}
	for _, r := range []string{"r1", "r2"} {
		if _, err := f.StartReplica(r, "--deployment-source=home"); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func name(i int) string { return fmt.Sprint("web-", i) }

func newSource(i int) *appsv1.Deployment {
	labels := map[string]string{"app": name(i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name(i),
			Labels:      map[string]string{replication.LabelReplicate: "true"},
			Annotations: map[string]string{replication.AnnotationClusters: "*"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

// converged reports what keeps the first n sources from being available in every target.
func converged(ctx context.Context, f *fleet.Fleet, n int) error {
	for _, target := range targets {
		for i := range n {
			d := &appsv1.Deployment{}
			if err := f.Client(target).Get(ctx, client.ObjectKey{Namespace: "default", Name: name(i)}, d); err != nil {
				return err
			}
			if *d.Spec.Replicas != 1 || d.Status.AvailableReplicas != 1 {
				return fmt.Errorf("%s in %s wants %d replicas and has %d available", name(i), target, *d.Spec.Replicas, d.Status.AvailableReplicas)
			}
		}
	}
	return nil
}

// repaired makes a drift and waits until it is gone.
func repaired(t *testing.T, f *fleet.Fleet, what string, drift func() error) {
	t.Helper()
	if err := drift(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	eventually(t, 30*time.Second, func() error { return specs(t.Context(), f) })
	t.Logf("%s was repaired %v after its commit at the latest", what, time.Since(start).Round(time.Millisecond))
}

// specs reports a copy that isn't there or isn't as it should be, whatever its Pods do.
func specs(ctx context.Context, f *fleet.Fleet) error {
	for _, target := range targets {
		for i := range sources {
			d := &appsv1.Deployment{}
			err := f.Client(target).Get(ctx, client.ObjectKey{Namespace: "default", Name: name(i)}, d)
			if err == nil && *d.Spec.Replicas != 1 {
				err = errors.New("scaled")
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// creates counts the writes that made a copy, by the API server's own audit log.
func creates(t *testing.T, f *fleet.Fleet, target string) int {
	t.Helper()
	text, err := os.ReadFile(f.Planes.Cluster(target).AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"resource":"deployments"`) && strings.Contains(line, `"userAgent":"tenure/`) &&
			strings.Contains(line, `"responseStatus":{"metadata":{},"code":201}`) {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, within time.Duration, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := fleet.Eventually(ctx, within, try); err != nil {
		if apierrors.IsNotFound(err) {
			t.Fatalf("not within %v: missing: %v", within, err)
		}
		t.Fatalf("not within %v: %v", within, err)
	}
}
