package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

const namespace = lab.Namespace

// fleet is a home cluster, a workload cluster, and the tenure binary for commands.
type fleet struct {
	*lab.Fleet
	t          *testing.T
	home, west client.Client
	tenure     string
	replicas   map[string]*lab.Replica
}

// newFleet installs what a fleet needs, and starts no replica.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	// As before Kubernetes 1.34: clients list, and then watch.
	return fleetOf(t, lab.Options{Workloads: []string{"west"}, Gates: map[string]bool{"WatchList": false}})
}

// newBareFleet installs nothing in the workload clusters, and home knows of none.
func newBareFleet(t *testing.T, workloads ...string) *fleet {
	t.Helper()
	// Replicas have no race detector here: other tests run them with it.
	return fleetOf(t, lab.Options{Workloads: workloads, Untold: true, Empty: true, Bare: true, Tenure: labtest.Tenure(t)})
}

func fleetOf(t *testing.T, options lab.Options) *fleet {
	t.Helper()
	f := &fleet{t: t, replicas: map[string]*lab.Replica{}, tenure: labtest.Tenure(t)} // commands are short
	// A busy machine alone makes nobody lapse.
	options.Direct, options.LeaseDuration = true, 10*time.Second
	f.Fleet = labtest.Fleet(t, options)
	f.home, f.west = f.Client(lab.Home), f.Client("west")
	return f
}

func (f *fleet) create(c client.Client, obj client.Object) {
	f.t.Helper()
	must.Succeed(f.t, c.Create(f.t.Context(), obj))
}

// start starts a replica process.
func (f *fleet) start(name string, args ...string) {
	f.t.Helper()
	f.replicas[name] = labtest.Replica(f.t, f.Fleet, name, args...)
}

// leave lets a replica leave in order.
func (f *fleet) leave(name string) {
	f.t.Helper()
	must.Succeed(f.t, f.replicas[name].Leave(f.t.Context(), labtest.Patience))
}

// account makes a service account with a role in the replicas' namespace, and returns its kubeconfig once home knows
// that it may list something.
func (f *fleet) account(name, role, lists string) string {
	f.t.Helper()
	f.create(f.home, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	f.create(f.home, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	})
	f.may("system:serviceaccount:"+namespace+":"+name, "list", lists)
	kubeconfig, err := f.Planes.Cluster(lab.Home).ServiceAccountKubeconfig(f.t.Context(), namespace, name)
	must.Succeed(f.t, err)
	return kubeconfig
}

// readsMetrics lets an account read the metrics, and waits until home knows that: replicas remember whom it refused.
func (f *fleet) readsMetrics(account string) {
	f.t.Helper()
	f.create(f.home, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenure-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	})
	f.may("system:serviceaccount:"+namespace+":"+account, "get", "/metrics")
}

// may waits until home knows that a user may do something: of a binding it hears a moment later.
func (f *fleet) may(user, verb, what string) {
	f.t.Helper()
	labtest.Eventually(f.t, "home knows of the binding", func() error {
		return labtest.Allowed(f.t.Context(), f.home, true, user, verb, what, namespace)
	})
}

// ask runs a subcommand as the admin and returns its output and exit code.
func (f *fleet) ask(args ...string) (string, int) {
	f.t.Helper()
	return f.askAs(f.Planes.Cluster(lab.Home).Kubeconfig(), args...)
}

func (f *fleet) askAs(kubeconfig string, args ...string) (string, int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, f.tenure, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return out.String() + errs.String(), command.ProcessState.ExitCode()
}

// says runs a subcommand as the admin and returns its output, which has to hold some texts and no token.
func (f *fleet) says(code int, line string, wants ...string) string {
	f.t.Helper()
	out, got := f.ask(strings.Fields(line)...)
	flat := flatten(out)
	missing := slices.DeleteFunc(wants, func(want string) bool { return strings.Contains(flat, want) })
	if got != code || len(missing) > 0 || strings.Contains(out, "eyJ") {
		f.t.Fatalf("tenure %s: exit code %d, want %d, %q, and no token\n%s", line, got, code, missing, out)
	}
	return out
}

// flatten undoes the wrapping of lines.
func flatten(out string) string { return strings.Join(strings.Fields(out), " ") }

// status asks for the state of everything.
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
	if err := lab.Eventually(f.t.Context(), labtest.Patience, func() error {
		if !holds() {
			return errors.New("it doesn't hold")
		}
		return nil
	}); err != nil {
		out, _ := f.ask("status")
		f.t.Fatalf("%s: %v\n%s", what, err, out)
	}
}

// settled reports whether so many replicas hold everything.
func (f *fleet) settled(replicas int) func() bool {
	return func() bool {
		state, code := f.status()
		return code == 0 && state.Totals.Replicas == replicas && state.Totals.Held == 8 && state.Totals.Moving == 0 &&
			len(state.Moves) == 0
	}
}
