package localplane

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tenure-dev/tenure/test/must"
)

func TestARestoredPlaneForgetsWhatCameAfterTheSnapshot(t *testing.T) {
	plane := startPlanes(t, Config{Clusters: oneBareCluster, TmpfsData: true}).Cluster("home")
	second, err := plane.StartSecond(t.Context())
	must.Succeed(t, err)
	client, err := kubernetes.NewForConfig(plane.RESTConfig())
	must.Succeed(t, err)
	other, err := kubernetes.NewForConfig(second.RESTConfig())
	must.Succeed(t, err)
	maps, throughSecond := client.CoreV1().ConfigMaps("default"), other.CoreV1().ConfigMaps("default")
	// version of the object, -1 if it isn't there.
	version := func(name string) int {
		t.Helper()
		m, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return -1
		}
		must.Succeed(t, err)
		return versionOf(t, m)
	}
	makeMap := func(name string) int {
		t.Helper()
		m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		must.Succeed(t, err)
		return versionOf(t, m)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	before := makeMap("before")
	must.Succeed(t, plane.Snapshot(t.Context(), snapshot))
	for _, c := range []struct {
		after  string
		bump   uint64
		rising bool
	}{{"after", 0, false}, {"after-again", 1_000_000, true}} {
		lost := makeMap(c.after)
		for i := range 30 { // the servers write, too, when they start
			lost = makeMap(fmt.Sprint(c.after, "-", i))
		}
		logged := auditLog(t, plane)
		asked := time.Now()
		must.Succeed(t, plane.Restore(t.Context(), snapshot, c.bump))
		t.Logf("restored in %v", time.Since(asked))
		if got := version("before"); got != before {
			t.Errorf("what was in the snapshot has version %d, want %d", got, before)
		}
		if got := version(c.after); got != -1 {
			t.Errorf("%s, made after the snapshot, is there with version %d", c.after, got)
		}
		if now := makeMap("now-" + c.after); now > lost != c.rising {
			t.Errorf("bumped by %d: the next version after %d is %d", c.bump, lost, now)
		}
		if _, err := throughSecond.Get(t.Context(), "now-"+c.after, metav1.GetOptions{}); err != nil {
			t.Errorf("through the second API server: %v", err)
		}
		if c.rising {
			w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.Itoa(lost)})
			if err == nil {
				e := <-w.ResultChan()
				w.Stop()
				err = apierrors.FromObject(e.Object)
			}
			if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				t.Errorf("a watch from version %d, which is marked as compacted, got %v", lost, err)
			}
		}
		if now := auditLog(t, plane); !bytes.HasPrefix(now, logged) || len(now) == len(logged) {
			t.Error("the audit log didn't go on")
		}
		times := plane.Restored()
		if last := times[len(times)-1]; last.Before(asked) || last.After(time.Now()) {
			t.Errorf("noted at %v, asked for at %v", last, asked)
		}
	}
}

func versionOf(t *testing.T, m *corev1.ConfigMap) int {
	t.Helper()
	n, err := strconv.Atoi(m.ResourceVersion)
	must.Succeed(t, err)
	return n
}

func auditLog(t *testing.T, plane *Plane) []byte {
	t.Helper()
	content, err := os.ReadFile(plane.AuditLog())
	must.Succeed(t, err)
	return content
}
