package localplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/test/must"
)

func TestAShardSelectorFiltersListsAndWatchesAndIsAudited(t *testing.T) {
	plane := shared.Cluster("home")
	ctx, client, ns := testContext(t), clientOf(t, plane), namespace(t, plane)
	const objects = 40
	for i := range objects {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}}
		if _, err := client.CoreV1().ConfigMaps(ns).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for _, selector := range []string{
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
	} {
		list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{ShardSelector: selector})
		must.Succeed(t, err)
		if len(list.Items) == 0 || len(list.Items) == objects {
			t.Errorf("%s selects %d of %d objects, want a part", selector, len(list.Items), objects)
		}
		for _, item := range list.Items {
			seen[item.Name]++
		}
		checkWatch(ctx, t, client, ns, selector, len(list.Items))
	}
	if len(seen) != objects {
		t.Errorf("two halves hold %d of %d objects", len(seen), objects)
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s is in %d halves", name, times)
		}
	}
	watches, err := audit.All(plane.AuditLog(), func(e *audit.Event) bool {
		uri, err := url.Parse(e.URI)
		return err == nil && e.Verb == "watch" && e.Stage == "ResponseStarted" &&
			e.Namespace == ns && uri.Query().Get("shardSelector") != ""
	})
	if err != nil || len(watches) != 2 {
		t.Errorf("%d watches with a shardSelector were audited, want 2 (%v)", len(watches), err)
	}
}

// checkWatch expects a watch with initial events to bring exactly that many.
func checkWatch(ctx context.Context, t *testing.T, client kubernetes.Interface, ns, selector string, want int) {
	t.Helper()
	yes := true
	watcher, err := client.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{
		ShardSelector: selector, SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	must.Succeed(t, err)
	defer watcher.Stop()
	got := 0
	for event := range watcher.ResultChan() {
		switch event.Type {
		case watch.Added:
			got++
		case watch.Bookmark: // ends the initial events
			if got != want {
				t.Errorf("the watch brought %d objects, the list %d", got, want)
			}
			return
		default:
			t.Fatalf("unexpected %s: %v", event.Type, event.Object)
		}
	}
	t.Error("the watch ended before its initial events did")
}

func TestAKubeconfigIsOfAUserWithoutOtherRights(t *testing.T) {
	plane := shared.Cluster("home")
	ctx, admin, ns := testContext(t), clientOf(t, plane), namespace(t, plane)
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + ns + ":reader"
	for name, c := range map[string]struct {
		kubeconfig func() (string, error)
		group      string
	}{
		"by token": {func() (string, error) { return plane.ServiceAccountKubeconfig(ctx, ns, "reader") },
			"system:serviceaccounts:" + ns},
		"by certificate": {func() (string, error) { return plane.UserKubeconfig(user, "system:monitoring") },
			"system:monitoring"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := c.kubeconfig()
			must.Succeed(t, err)
			config, err := clientcmd.BuildConfigFromFlags("", path)
			must.Succeed(t, err)
			reader, err := kubernetes.NewForConfig(config)
			must.Succeed(t, err)
			if _, err := reader.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("listing what no role allows: %v, want forbidden", err)
			}
			self, err := reader.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
				metav1.CreateOptions{})
			must.Succeed(t, err)
			if is := self.Status.UserInfo; is.Username != user || !slices.Contains(is.Groups, c.group) {
				t.Errorf("it is %s in %v, want %s in %s", is.Username, is.Groups, user, c.group)
			}
		})
	}
	if _, err := plane.ServiceAccountKubeconfig(ctx, ns, "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("asking for a service account that is not there: %v, want not found", err)
	}
}

func TestARestartedAPIServerHasItsPortItsObjectsAndItsNewFlags(t *testing.T) {
	plane := shared.Cluster("home")
	ctx, client, ns := testContext(t), clientOf(t, plane), namespace(t, plane)
	before := plane.RESTConfig().Host
	must.Succeed(t, plane.StopAPIServer())
	if _, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); !utilnet.IsConnectionRefused(err) {
		t.Errorf("a stopped API server: %v, want connection refused", err)
	}
	if err := plane.Pause(); err == nil {
		t.Error("pausing a stopped API server is no error")
	}
	must.Succeed(t, plane.StartAPIServer(ctx))
	const flag = "--max-requests-inflight=123"
	must.Succeed(t, plane.RestartAPIServer(ctx, func(args []string) []string { return append(args, flag) }))
	if after := plane.RESTConfig().Host; after != before {
		t.Errorf("the API server moved from %s to %s", before, after)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace is lost: %v", err)
	}
	commandLine, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", plane.apiServer.cmd.Process.Pid))
	must.Succeed(t, err)
	if !slices.Contains(strings.Split(string(commandLine), "\x00"), flag) {
		t.Errorf("the new flag is not in force: %q", commandLine)
	}
}

func TestAPausedAPIServerNeverAnswersUntilItResumes(t *testing.T) {
	plane := shared.Cluster("home")
	ctx, client := testContext(t), clientOf(t, plane)
	must.Succeed(t, plane.Pause())
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(short, "default", metav1.GetOptions{})
	if resumeErr := plane.Resume(); resumeErr != nil {
		t.Fatal(resumeErr)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused API server: %v, want no answer in time", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Errorf("after it resumed: %v", err)
	}
}
