package localplane

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/test/must"
)

func TestAKubeconfigIsOfAUserWithoutOtherRights(t *testing.T) {
	plane := shared.Cluster("home")
	ctx, admin, ns := testContext(t), clientOf(t, plane), namespace(t, plane)
	_, err := admin.CoreV1().ServiceAccounts(ns).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
	must.Succeed(t, err)
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
