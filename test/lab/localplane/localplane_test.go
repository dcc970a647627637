package localplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tenure-dev/tenure/test/must"
)

// shared are the planes of all tests that leave them as they found them: "home" is bare, "west" runs workloads.
var shared *Planes

// orphanMode makes the test binary start planes and then wait to be killed.
const orphanMode = "LOCALPLANE_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanMode) != "" {
		becomeOrphanMaker()
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	var err error
	shared, err = Start(ctx, Config{Clusters: []ClusterConfig{{Name: "home"}, {Name: "west", Workload: true}}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "two control planes ready after %s\n", since(began))
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// becomeOrphanMaker starts a plane, says what runs where, and never ends.
func becomeOrphanMaker() {
	planes, err := Start(context.Background(), Config{Clusters: []ClusterConfig{{Name: "home"}}, TmpfsData: true})
	report := orphanReport{}
	if err != nil {
		report.Error = err.Error()
	} else {
		report.PIDs, report.Folders = pids(planes), []string{planes.Dir()}
		if planes.data != nil {
			report.Folders = append(report.Folders, planes.data.path)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// orphanReport is what an orphan maker prints.
type orphanReport struct {
	PIDs    []int
	Folders []string
	Error   string
}

// pids of every component that is running.
func pids(planes *Planes) []int {
	var all []int
	for _, plane := range planes.planes {
		for _, component := range append([]*Process{plane.etcd, plane.apiServer}, plane.helpers...) {
			if component != nil {
				all = append(all, component.cmd.Process.Pid)
			}
		}
	}
	return all
}

// gone reports whether no such process runs any more; a zombie, which waits for a parent to look, runs no more.
func gone(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(status), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func clientOf(t *testing.T, plane *Plane) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.RESTConfig())
	must.Succeed(t, err)
	return client
}

// namespace makes a namespace for one test, and in a bare cluster the service account that nobody else makes.
func namespace(t *testing.T, plane *Plane) string {
	t.Helper()
	ctx, client := testContext(t), clientOf(t, plane)
	created, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	must.Succeed(t, err)
	if plane.config.Workload {
		eventually(t, "the namespace has a default service account", func() error {
			_, err := client.CoreV1().ServiceAccounts(created.Name).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	return created.Name
}

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
