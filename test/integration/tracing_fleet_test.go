package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/must"
)

// Canaries: secrets that are planted where a replica meets them, and must never come out of it.
const (
	canaryToken   = "canary-token-7f3a9c"
	canaryCommand = "canary-command-51be20"
	canaryHeader  = "canary-header-c40d11"
	canaryCA      = "canary-ca-9e6612"
)

// startTracedFleet is a fleet with a Jaeger that gets everybody's traces. Beside west its replicas know a cluster that
// can't be reached and one whose kubeconfig can't be read, each with a canary in it.
func startTracedFleet(t *testing.T) *lab.Fleet {
	t.Helper()
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west"}, ShardsPerCluster: 4, Direct: true, Jaeger: &localjaeger.Config{},
		LeaseDuration: 10 * time.Second, // a busy machine alone makes nobody lapse
		Flags:         []string{"--log-level=debug"},
		Environment:   []string{"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + canaryHeader},
	})
	broken := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
		"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:9","insecure-skip-tls-verify":true}}],
		"users":[{"name":"x","user":{"token":%q,"username":""}}],
		"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}]}`, canaryToken)
	bad := strings.Replace(broken, `"insecure-skip-tls-verify":true`, `"certificate-authority-data":"`+canaryCA+`!"`, 1)
	for name, content := range map[string]string{"away": broken, "unreadable": bad} {
		must.Succeed(t, f.AddKubeconfig(t.Context(), name, []byte(content)))
	}
	return f
}

// createAts makes Ats of one spec.
func createAts(t *testing.T, c client.Client, namespace, name string, n int, spec cnatv1alpha1.AtSpec) {
	t.Helper()
	for i := range n {
		at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%03d", name, i)},
			Spec: spec}
		must.Succeed(t, c.Create(t.Context(), at))
	}
}
