package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

const namespace = "tenure-system"

// fleet is a home cluster, a workload cluster, and the tenure binary.
type fleet struct {
	t          *testing.T
	planes     *localplane.Planes
	home, west client.Client
	tenure     string
	replicas   map[string]*replica
}

type replica struct {
	command *exec.Cmd
	metrics string
	done    chan struct{}
}

// newFleet installs what a fleet needs, and starts no replica.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, replicas: map[string]*replica{}}
	var err error
	if f.tenure, err = lab.Build(t.Context(), t.TempDir(), "tenure", lab.RaceDetector); err != nil {
		t.Fatal(err)
	}
	f.planes, err = localplane.Start(t.Context(), localplane.Config{
		TmpfsData: true, Clusters: []localplane.ClusterConfig{{Name: "home"}, {Name: "west", Workload: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	f.home = f.install("home", "tenure.dev_shards.yaml")
	f.west = f.install("west", "cnat.programming-kubernetes.info_ats.yaml")
	kubeconfig, err := os.ReadFile(f.planes.Cluster("west").Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	f.create(f.home, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	f.create(f.home, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "west", Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	})
	return f
}

// install puts a CRD into a cluster and returns a client of it.
func (f *fleet) install(cluster, crd string) client.Client {
	f.t.Helper()
	config := f.planes.Cluster(cluster).RESTConfig()
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join("../../config/crd", crd)}, ErrorIfPathMissing: true}); err != nil {
		f.t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), cnatv1alpha1.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)); err != nil {
		f.t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fleet) create(c client.Client, obj client.Object) {
	f.t.Helper()
	if err := c.Create(f.t.Context(), obj); err != nil {
		f.t.Fatal(err)
	}
}

// start starts a replica process.
func (f *fleet) start(name string, args ...string) {
	f.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	r := &replica{metrics: listener.Addr().String(), done: make(chan struct{})}
	listener.Close()
	r.command = exec.Command(f.tenure, append([]string{
		"--home-kubeconfig", f.planes.Cluster("home").Kubeconfig(), "--replica", name, "--lease-duration", "4s",
		"--metrics-bind-address", r.metrics, "--health-probe-bind-address", "0",
	}, args...)...)
	var log bytes.Buffer // read only when the process has ended
	r.command.Stderr = &log
	if err := localplane.StartChild(r.command); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.command.Wait() // how it ended, its test knows
	}()
	f.replicas[name] = r
	f.t.Cleanup(func() {
		f.end(name, syscall.SIGKILL)
		if f.t.Failed() {
			text := log.String()
			f.t.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
}

// end signals a replica and waits for its end.
func (f *fleet) end(name string, signal syscall.Signal) {
	r := f.replicas[name]
	_ = r.command.Process.Signal(signal) // one that has ended already is what we want
	<-r.done
}

// ask runs a subcommand and returns its output and exit code.
func (f *fleet) ask(args ...string) (string, int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, f.tenure, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+f.planes.Cluster("home").Kubeconfig())
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return out.String() + errs.String(), command.ProcessState.ExitCode()
}

// fleet asks for the state of everything.
func (f *fleet) status() (state console.Fleet, code int) {
	f.t.Helper()
	out, code := f.ask("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &state); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	return state, code
}

// await waits until something holds.
func (f *fleet) await(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			out, _ := f.ask("status")
			f.t.Fatalf("not within a minute: %s\n%s", what, out)
		}
	}
}

// settled reports whether so many replicas hold everything.
func (f *fleet) settled(replicas int) func() bool {
	return func() bool {
		state, code := f.status()
		return code == 0 && state.Totals.Replicas == replicas && state.Totals.Held == 8 && state.Totals.Moving == 0 && len(state.Moves) == 0
	}
}

// addAts makes Ats that are due after the given time.
func (f *fleet) addAts(prefix string, n int, in time.Duration) {
	f.t.Helper()
	due := time.Now().Add(in).UTC().Format(time.RFC3339)
	for i := range n {
		f.create(f.west, &cnatv1alpha1.At{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(prefix, i)}, Spec: cnatv1alpha1.AtSpec{Schedule: due, Command: "true"},
		})
	}
}
