package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Canaries: secrets that are planted where a replica meets them, and must never come out of it.
const (
	canaryToken   = "canary-token-7f3a9c"
	canaryCommand = "canary-command-51be20"
	canaryHeader  = "canary-header-c40d11"
	canaryCA      = "canary-ca-9e6612"
)

// tracedFleet is planes, a Jaeger and replicas that send their traces to it.
type tracedFleet struct {
	home, west *localplane.Plane
	jaeger     *localjaeger.Jaeger
	binary     string
	logs       []string // files
}

func startTracedFleet(t *testing.T) *tracedFleet {
	t.Helper()
	f := &tracedFleet{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var err error
	if f.jaeger, err = localjaeger.Start(ctx, localjaeger.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.jaeger.Stop(); err != nil {
			t.Error(err)
		}
	})
	planes, err := localplane.Start(ctx, localplane.Config{TmpfsData: true, Clusters: []localplane.ClusterConfig{
		{Name: "home"}, {Name: "west", Workload: true, ExtraAPIServerArgs: f.jaeger.APIServerArgs()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	f.home, f.west = planes.Cluster("home"), planes.Cluster("west")
	for plane, folder := range map[*localplane.Plane]string{f.home: "config/crd", f.west: "config/workload"} {
		if out, err := kubectl(t, plane, "", "apply", "-k", fromRoot(t, folder)); err != nil {
			t.Fatalf("installing %s: %v\n%s", folder, err, out)
		}
		if out, err := kubectl(t, plane, "", "wait", "--for=condition=Established", "crd/ats.cnat.programming-kubernetes.info"); err != nil {
			t.Fatalf("waiting for the CRD: %v\n%s", err, out)
		}
	}
	if f.binary, err = lab.Build(ctx, t.TempDir(), "tenure", lab.RaceDetector); err != nil {
		t.Fatal(err)
	}
	f.addClusters(t)
	return f
}

// addClusters makes west known, and a cluster that can't be reached, whose kubeconfig holds a canary.
func (f *tracedFleet) addClusters(t *testing.T) {
	t.Helper()
	c := f.homeClient(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenure-system"}}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(f.west.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	broken := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
		"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:9","insecure-skip-tls-verify":true}}],
		"users":[{"name":"x","user":{"token":%q,"username":""}}],
		"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}]}`, canaryToken)
	bad := strings.Replace(broken, `"insecure-skip-tls-verify":true`, `"certificate-authority-data":"`+canaryCA+`!"`, 1)
	for name, content := range map[string][]byte{"west": kubeconfig, "away": []byte(broken), "unreadable": []byte(bad)} {
		err := c.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "tenure-system", Name: name, Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
			},
			Data: map[string][]byte{"kubeconfig": content},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (f *tracedFleet) homeClient(t *testing.T) client.Client {
	t.Helper()
	scheme := newScheme(t)
	if err := tenurev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(f.home.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tracedReplica is one replica process.
type tracedReplica struct {
	name    string
	metrics string // address
	log     string
	cmd     *exec.Cmd
	done    chan error
}

// start runs a replica; environment is added to that which sends traces to Jaeger.
func (f *tracedFleet) start(t *testing.T, name string, environment ...string) *tracedReplica {
	t.Helper()
	r := &tracedReplica{name: name, metrics: freeAddress(t), log: filepath.Join(t.TempDir(), name+".log"), done: make(chan error, 1)}
	f.logs = append(f.logs, r.log)
	out, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r.cmd = exec.Command(f.binary, "--home-kubeconfig="+f.home.Kubeconfig(), "--replica="+name, "--lease-duration=5s",
		"--metrics-bind-address="+r.metrics, "--health-probe-bind-address=0", "--log-level=debug", "--shards-per-cluster=4")
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + canaryHeader}, f.jaeger.Environment()...)
	r.cmd.Env = append(r.cmd.Env, environment...)
	r.cmd.Stdout, r.cmd.Stderr = out, out
	if err := localplane.StartChild(r.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended already
		r.stopped(t, 10*time.Second)
		if t.Failed() {
			content, _ := os.ReadFile(r.log)
			t.Logf("log of %s ends:\n%s", name, content[max(0, len(content)-3000):])
		}
	})
	return r
}

// stop asks the replica to leave, and waits for it.
func (r *tracedReplica) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.stopped(t, 20*time.Second); err != nil {
		t.Errorf("%s ended: %v", r.name, err)
	}
}

func (r *tracedReplica) stopped(t *testing.T, within time.Duration) error {
	t.Helper()
	select {
	case err := <-r.done:
		r.done <- err // for who asks again
		return err
	case <-time.After(within):
		t.Fatalf("%s doesn't end", r.name)
		return nil
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addresses, err := localplane.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addresses[0]
}

// createAts makes Ats of one spec.
func createAts(t *testing.T, c client.Client, namespace, name string, n int, spec cnatv1alpha1.AtSpec) {
	t.Helper()
	for i := range n {
		at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%03d", name, i)}, Spec: spec}
		if err := c.Create(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitDone waits until all Ats of a namespace are DONE.
func awaitDone(t *testing.T, c client.Client, namespace string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d Ats are DONE", n), func() bool {
		var list cnatv1alpha1.AtList
		if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		done := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == cnatv1alpha1.AtDone {
				done++
			}
		}
		return done == n
	})
}
