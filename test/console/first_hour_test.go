package console

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// newcomer plays a new user, who has three clusters in which nothing is installed, tenure and kubectl, and types
// what pages say.
type newcomer struct {
	t        *testing.T
	planes   *localplane.Planes
	folder   string // of the kubeconfigs home.yaml, west.yaml and east.yaml, and of config/
	path     string // where tenure and kubectl are
	replicas []*lab.Replica
	started  int // how often replicas were
}

var hour = []string{lab.Home, "west", "east"}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	root, err := lab.Root()
	must.Succeed(t, err)
	n := &newcomer{t: t, folder: t.TempDir(), path: t.TempDir()}
	built, err := filepath.Abs(labtest.Tenure(t))
	must.Succeed(t, err)
	binary, err := localplane.FindBinary()
	must.Succeed(t, err)
	// Home has controllers, but no nodes: the replicas' Pods stay pending, and processes take their place.
	n.planes = labtest.Planes(t, localplane.ClusterConfig{Name: lab.Home, Workload: true, NoNodes: true},
		localplane.ClusterConfig{Name: "west", Workload: true}, localplane.ClusterConfig{Name: "east", Workload: true})
	script := fmt.Sprintf("#!/bin/sh\nexec %q kubectl --cache-dir %q \"$@\"\n", binary, filepath.Join(n.path, "cache"))
	errs := []error{
		os.Symlink(built, filepath.Join(n.path, "tenure")),
		os.WriteFile(filepath.Join(n.path, "kubectl"), []byte(script), 0o700),
		os.Symlink(filepath.Join(root, "config"), filepath.Join(n.folder, "config")),
	}
	for _, name := range hour {
		errs = append(errs, os.Symlink(n.planes.Cluster(name).Kubeconfig(), filepath.Join(n.folder, name+".yaml")))
	}
	must.Succeed(t, errors.Join(errs...))
	return n
}

// namesOfTheHour are what stands for the names in lines of pages.
var namesOfTheHour = strings.NewReplacer("at/NAME", "at/example-at", "deployment/NAME", "deployment/everywhere",
	"NAMESPACE", "default",
	"--cluster CLUSTER", "--cluster east", "--cluster C", "--cluster east")

// begins types what the README says first, which leads to an At in a second cluster.
func (n *newcomer) begins() {
	n.t.Helper()
	lines := commands(n.t, "README.md", "apply -k config/development")
	if len(lines) != 5 {
		n.t.Fatalf("the README needs %d commands: %q", len(lines), lines)
	}
	for i, line := range lines {
		n.types(line)
		if i == 0 {
			n.start()
		}
	}
}

// rolloutStatus is in a line that waits for a rollout.
const rolloutStatus = "rollout status"

// types types a line into a shell, and fails if that does.
func (n *newcomer) types(line string) {
	n.t.Helper()
	if strings.Contains(line, rolloutStatus) {
		defer n.playNodes()()
	}
	began := time.Now()
	out, err := n.shell(line)
	if err != nil && strings.HasPrefix(line, "tenure status") { // a machine that is busy may make a replica late
		labtest.Eventually(n.t, line+" is content", func() error { out, err = n.shell(line); return err })
	}
	n.t.Logf("$ %s\n%s(%.1fs)", line, out, time.Since(began).Seconds())
	must.Succeed(n.t, err)
}

// typesForEach types a line. If it names west, it first types the line for east as well.
func (n *newcomer) typesForEach(line string) {
	n.t.Helper()
	if strings.Contains(line, "west") {
		n.types(strings.ReplaceAll(line, "west", "east"))
	}
	n.types(line)
}

// shell runs a line in a shell, and returns what it writes.
func (n *newcomer) shell(line string) (string, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 3*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", line)
	shell.Dir = n.folder
	shell.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") }),
		"PATH="+n.path+":"+os.Getenv("PATH"), "KUBECONFIG=home.yaml")
	out, err := shell.CombinedOutput()
	return string(out), err
}

// start starts the processes that nodes would start for the Deployment's Pods. flags are those that its manifest
// has in addition.
func (n *newcomer) start(flags ...string) {
	n.t.Helper()
	n.started++
	kubeconfig, err := n.planes.Cluster(lab.Home).ServiceAccountKubeconfig(n.t.Context(), lab.Namespace, lab.Account)
	must.Succeed(n.t, err)
	for i := range 3 {
		name := fmt.Sprintf("tenure-%d-%d", n.started, i)
		r, err := lab.StartProgram(lab.Program{
			Name: name, Binary: filepath.Join(n.path, "tenure"),
			LogPath: filepath.Join(n.planes.Dir(), name+".log"), Addresses: 1,
			Args: func(addresses []string) []string {
				return append([]string{
					"--home-kubeconfig", kubeconfig, "--replica", name, "--metrics-bind-address", addresses[0],
					"--health-probe-bind-address", "0",
					"--cluster-removal-grace=1s", // the default would only make the test longer
				}, flags...)
			},
		})
		must.Succeed(n.t, err)
		n.replicas = append(n.replicas, r)
		n.t.Cleanup(func() { r.Kill() })
	}
}

// rolls starts replicas in the place of those that run, as the Deployment's new Pods do.
func (n *newcomer) rolls(flags ...string) {
	n.t.Helper()
	before := n.replicas
	n.replicas = nil
	n.start(flags...)
	labtest.Leave(n.t, before...)
}

// playNodes writes the status of the Deployment's Pods, as nodes would, until it is stopped.
func (n *newcomer) playNodes() (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	done, c := make(chan struct{}), labtest.Client(n.t, n.planes.Cluster(lab.Home))
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			pods := &corev1.PodList{}
			_ = c.List(ctx, pods, client.InNamespace(lab.Namespace)) // if it fails, the next one may not
			for i := range pods.Items {
				pod := &pods.Items[i]
				if pod.Status.Phase == corev1.PodPending {
					pod.Status.Phase = corev1.PodRunning
					pod.Status.Conditions = append(pod.Status.Conditions,
						corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
					_ = c.Status().Update(ctx, pod)
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// elsewhere installs what replicas in another cluster than home need, as the page about installing says, and takes it
// away.
func (n *newcomer) elsewhere(name string) {
	n.t.Helper()
	c := labtest.Client(n.t, n.planes.Cluster(name))
	labtest.Eventually(n.t, "the namespace that was removed is gone from "+name, func() error {
		err := c.Get(n.t.Context(), client.ObjectKey{Name: lab.Namespace}, &corev1.Namespace{})
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
	page, err := os.ReadFile("../../docs/install.md")
	must.Succeed(n.t, err)
	kubeconfig := regexp.MustCompile("(?s)```yaml\n(apiVersion: v1\nkind: Config.*?)```").FindSubmatch(page)
	if kubeconfig == nil {
		n.t.Fatal("docs/install.md has no kubeconfig for replicas elsewhere")
	}
	home := n.planes.Cluster(lab.Home).RESTConfig()
	text := strings.NewReplacer("https://home.example.com:6443", home.Host,
		"certificate-authority-data: ...", "certificate-authority-data: "+base64.StdEncoding.EncodeToString(home.CAData),
		"/etc/tenure/home/token", "token").Replace(string(kubeconfig[1]))
	must.Succeed(n.t, errors.Join(os.WriteFile(filepath.Join(n.folder, "kubeconfig"), []byte(text), 0o600),
		os.Symlink(n.planes.Cluster(name).Kubeconfig(), filepath.Join(n.folder, "remote.yaml"))))
	for _, line := range commands(n.t, "docs/install.md", "apply -k config/remote") {
		n.types(line)
	}
	n.types("kubectl --kubeconfig kubeconfig -n tenure-system get leases -o name") // as a replica there reads home
	n.types("kubectl --kubeconfig remote.yaml delete -k config/remote")
}

// commands returns the commands of the first block of a page that contains a text, without their comments.
func commands(t *testing.T, page, has string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	must.Succeed(t, err)
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(block[1], has) {
			continue
		}
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " #")
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	t.Fatalf("%s has no block of commands with %q", page, has)
	return nil
}

// comeLate are what Kubernetes makes in its own namespaces when it first needs them.
var comeLate = []string{"serviceaccounts", "configmaps", "leases"}

// everything is every object of a cluster, with its finalizers, but for events, which Kubernetes keeps for an hour, and
// for what may come late.
func everything(ctx context.Context, config *rest.Config) (map[string]bool, error) {
	config.WarningHandlerWithContext = rest.NoWarnings{}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := kinds.ServerPreferredResourcesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || kind.Name == "events" || kind.Name == "componentstatuses" {
				continue
			}
			found, err := objects.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for _, o := range found.Items {
				if strings.HasPrefix(o.Namespace, "kube-") && slices.Contains(comeLate, kind.Name) {
					continue
				}
				all[fmt.Sprintf("%s.%s %s/%s %q", kind.Name, version.Group, o.Namespace, o.Name, o.Finalizers)] = true
			}
		}
	}
	return all, nil
}

// settled are all objects of a cluster once Kubernetes has made those of its own.
func (n *newcomer) settled(name string) (all map[string]bool) {
	n.t.Helper()
	plane := n.planes.Cluster(name)
	labtest.Eventually(n.t, "cluster "+name+" has what Kubernetes makes", func() error {
		namespaces := &corev1.NamespaceList{}
		c := labtest.Client(n.t, plane)
		if err := c.List(n.t.Context(), namespaces); err != nil {
			return err
		}
		for _, ns := range namespaces.Items {
			if err := c.Get(n.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"},
				&corev1.ServiceAccount{}); err != nil {
				return err
			}
		}
		before := len(all)
		var err error
		if all, err = everything(n.t.Context(), plane.RESTConfig()); err == nil && len(all) != before {
			err = fmt.Errorf("%d objects, a moment ago %d", len(all), before)
		}
		return err
	})
	if len(all) < 50 {
		n.t.Fatalf("cluster %s has only %d objects", name, len(all))
	}
	return all
}

// The README's first five commands lead from nothing to an At in a second cluster, the next pages to an upgrade, to a
// Deployment that is copied, to what is looked at and set on the way, to a token that is rotated, back to the version
// before, and to replicas elsewhere. The page about installing leaves nothing behind.
func TestAnHourFromNothingToAnAtInASecondClusterAndBack(t *testing.T) {
	n := newNewcomer(t)
	before := map[string]map[string]bool{}
	for _, name := range hour {
		before[name] = n.settled(name)
	}

	began := time.Now()
	n.begins()
	t.Logf("%.1fs from nothing to the first At in a second cluster", time.Since(began).Seconds())
	if labtest.Kubectl(t, n.planes.Cluster("east"), "get", "pods", "-A", "-o", "name") == "" {
		t.Error("an At is done, and there is no Pod of it")
	}
	if installed, err := everything(t.Context(), n.planes.Cluster(lab.Home).RESTConfig()); err != nil ||
		len(added(before[lab.Home], installed)) < 30 {
		t.Errorf("home has %d objects more: what was installed isn't seen (%v)", len(added(before[lab.Home], installed)), err)
	}

	for _, line := range commands(t, "docs/upgrade.md", "tenure status") {
		n.types(line)
	}

	for _, line := range commands(t, "docs/replication.md", "config/replication/home") {
		n.typesForEach(line)
		if strings.Contains(line, "config/replication/home") {
			n.rolls("--deployment-source=home")
		}
	}
	if out, err := n.shell(`tenure cluster add local --context "$(kubectl config current-context)"`); err == nil ||
		!strings.Contains(out, "serve this cluster as home already") {
		t.Errorf("home, which is served, is added as another cluster: %v\n%s", err, out)
	}
	if copied := labtest.Kubectl(t, n.planes.Cluster("east"), "get", "deployment", "everywhere", "-o",
		"name"); copied == "" {
		t.Error("a Deployment is replicated, and there is no copy of it")
	}
	for page, has := range map[string]string{
		"docs/operate.md": "tenure plan", "docs/troubleshoot.md": "tenure why", "docs/tune.md": "annotate",
		"docs/clusters.md": "cluster rotate",
	} {
		for _, line := range commands(t, page, has) {
			if line != "tenure page" { // it needs the Pods, and has a test of its own
				n.types(namesOfTheHour.Replace(line))
			}
		}
	}
	n.types(commands(t, "docs/clusters.md", "dry-run")[0])
	n.types("kubectl --kubeconfig home.yaml delete deployment everywhere")
	if left := labtest.Kubectl(t, n.planes.Cluster("east"), "get", "deployments", "-n", "default", "-o",
		"name"); left != "" {
		t.Errorf("the Deployment is deleted, and there is still %s", left)
	}

	for _, line := range commands(t, "docs/upgrade.md", "rollout undo") {
		n.types(line)
		if !strings.Contains(line, rolloutStatus) {
			n.rolls()
		}
	}

	for _, line := range commands(t, "docs/install.md", "cluster remove") {
		line = strings.ReplaceAll(line, "config/default", "config/replication/home") // as the page says
		n.typesForEach(line)
		if strings.Contains(line, "cluster remove") {
			n.elsewhere("east")
		}
		if strings.Contains(line, "delete deployment") {
			labtest.Leave(t, n.replicas...)
		}
	}
	for _, name := range hour {
		labtest.Eventually(t, "nothing is left in "+name, func() error {
			after, err := everything(t.Context(), n.planes.Cluster(name).RESTConfig())
			if err != nil {
				return err
			}
			if left, lost := added(before[name], after), added(after, before[name]); len(left)+len(lost) > 0 {
				return fmt.Errorf("left: %q; lost: %q", left, lost)
			}
			return nil
		})
	}
}

// added are the objects of after that aren't in before.
func added(before, after map[string]bool) (all []string) {
	for o := range after {
		if !before[o] {
			all = append(all, o)
		}
	}
	slices.Sort(all)
	return all
}
