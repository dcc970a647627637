package run

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

func TestARunInClustersOfOthersLeavesNothingBehind(t *testing.T) {
	o := options(t)
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, Bare: true, Untold: true,
		Direct: true, Tenure: o.Tenure})
	home, west := f.Planes.Cluster(homeCluster).Kubeconfig(), f.Planes.Cluster("west").Kubeconfig()
	o.ControlPlane = ""
	o.Kubeconfigs = map[string]string{homeCluster: home, "west": west}
	r := carryOut(t, o, smoke, "compare=[]", "unwitnessed=a test")
	if res := r.Results; !r.Valid || res.Objects != 20 || res.Lost != 0 || res.QueueLatency == nil {
		t.Errorf("valid %v %v, %d objects, %d lost, queue latency %v; want all of 20", r.Valid, r.Reasons, res.Objects,
			res.Lost, res.QueueLatency)
	}
	if r.Results.APIWrites != nil || r.Results.Violations != nil {
		t.Error("figures of audit logs that nobody has")
	}
	for cluster := range o.Kubeconfigs {
		list := &corev1.NamespaceList{}
		must.Succeed(t, f.Client(cluster).List(t.Context(), list))
		for _, n := range list.Items {
			ours := strings.HasPrefix(n.Name, "tenure-bench-") || n.Name == firstRound || n.Name == "warm-up"
			if ours && n.DeletionTimestamp == nil { // no controller manager finishes the deletion here
				t.Errorf("namespace %s is left in cluster %s", n.Name, cluster)
			}
		}
	}
}

func TestANamespaceThatWasThereStaysThere(t *testing.T) {
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "preload"}}
	refusing := interceptor.Funcs{Create: func(ctx context.Context, inner client.WithWatch, obj client.Object,
		opts ...client.CreateOption) error {
		if obj.GetName() == "preload" { // API servers ask their policies before they look whether the name is taken
			return apierrors.NewForbidden(corev1.Resource("namespaces"), "preload", errors.New("a policy"))
		}
		return inner.Create(ctx, obj, opts...)
	}}
	west := fake.NewClientBuilder().WithScheme(lab.Scheme()).WithObjects(theirs).WithInterceptorFuncs(refusing).Build()
	s := &site{foreign: &foreign{made: map[string][]string{}}, admins: map[string]client.Client{"west": west}}
	if err := s.addNamespace(t.Context(), "west", "preload"); err == nil {
		t.Error("a namespace that is there counts as made")
	}
	must.Succeed(t, s.addNamespace(t.Context(), "west", "round-001"))
	must.Succeed(t, s.clean())
	left := &corev1.NamespaceList{}
	if err := west.List(t.Context(), left); err != nil || len(left.Items) != 1 || left.Items[0].Name != "preload" {
		t.Errorf("%v are left, %v", left.Items, err)
	}
}

func TestAFolderThatHoldsSomethingIsNoFolderForARun(t *testing.T) {
	s, err := scenario.Read("at-burst", nil)
	must.Succeed(t, err)
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "r1.log"), nil, 0o600))
	if _, err := Run(t.Context(), s, Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Error(err)
	}
}

func TestAStepInClustersOfOthersNeedsNoPlanes(t *testing.T) {
	f := &fleet{site: &site{}}
	if err := f.do(t.Context(), scenario.Kill); err == nil || err.Error() != "no replica is left" {
		t.Error(err)
	}
}

func TestWhatClustersOfOthersCannotDoIsRefused(t *testing.T) {
	home := map[string]string{homeCluster: "a", "west": "b"}
	for name, c := range map[string]struct {
		scenario    string
		set         []string
		kubeconfigs map[string]string
		want        string
	}{
		"no home":        {"at-steady", nil, map[string]string{"west": "b"}, "home=FILE"},
		"only home":      {"at-steady", nil, map[string]string{homeCluster: "a"}, "workload"},
		"no reason":      {"at-burst", []string{"compare=[]"}, home, "--unwitnessed"},
		"own planes":     {"at-burst", []string{"unwitnessed=why not"}, nil, "is judged"},
		"left alone":     {"many-clusters", nil, nil, ""},
		"references":     {"at-burst", nil, home, "compare=[]"},
		"pauses":         {"dead-cluster", nil, home, "paused"},
		"Deployments":    {"deploy-fanout", nil, home, "Ats only"},
		"what is served": {"at-burst", []string{"compare=[]", "unwitnessed=not ours"}, home, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := scenario.Read(c.scenario, c.set)
			must.Succeed(t, err)
			got, err := Options{Kubeconfigs: c.kubeconfigs}.uses(s)
			if c.want == "" && (err != nil || len(c.kubeconfigs) > 0 && got.Fleet.Clusters != 1) {
				t.Errorf("got %d clusters, %v; want 1", got.Fleet.Clusters, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestAnotherBuildIsMeasuredWithItsHooks(t *testing.T) {
	dir := t.TempDir()
	tenure := filepath.Join(dir, "tenure")
	for _, file := range []string{tenure, tenure + "-lab"} {
		must.Succeed(t, os.WriteFile(file, nil, 0o755))
	}
	for _, want := range []string{tenure + "-lab", tenure} { // without the other there is but one
		o := Options{Tenure: tenure, ControlPlane: "x"}
		if err := o.Locate(); err != nil || o.Hooked != want {
			t.Errorf("got %s, %v, want %s", o.Hooked, err, want)
		}
		must.Succeed(t, os.RemoveAll(tenure+"-lab"))
	}
}

// The error names the logs.
func TestTheLogsOfARunThatFailedStay(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := scenario.Read("at-burst", nil)
	must.Succeed(t, err)
	_, err = Run(t.Context(), s, Options{ControlPlane: "/bin/false", Tenure: "/bin/true", Progress: io.Discard})
	if err == nil {
		t.Fatal("a run without servers is no error")
	}
	_, rest, found := strings.Cut(err.Error(), "--- end of ")
	if !found {
		t.Fatalf("no log is named: %v", err)
	}
	if _, err := os.Stat(strings.TrimSuffix(strings.Fields(rest)[0], ":")); err != nil {
		t.Error(err)
	}
}
