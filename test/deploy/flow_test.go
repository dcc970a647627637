package deploy

import (
	"fmt"
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// classified checks that what replicas ask of the home cluster comes under the FlowSchemas that are meant for it. The
// API server says in each answer which one that was.
func classified(t *testing.T, home *localplane.Plane) {
	config := home.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: lab.AccountUser}
	asReplica, err := rest.HTTPClientFor(config)
	must.Succeed(t, err)
	const namespaced = "/namespaces/tenure-system/"
	for _, c := range []struct{ method, path, want string }{
		{http.MethodPatch, "/apis/coordination.k8s.io/v1" + namespaced + "leases/a", "tenure-leases"},
		{http.MethodGet, "/apis/coordination.k8s.io/v1" + namespaced + "leases", "tenure-leases"},
		{http.MethodDelete, "/apis/coordination.k8s.io/v1" + namespaced + "leases/a", "tenure-leases"},
		{http.MethodPatch, "/apis/tenure.dev/v1alpha1" + namespaced + "shards/a/status", "tenure-shards"},
		{http.MethodGet, "/apis/tenure.dev/v1alpha1" + namespaced + "shards", "tenure-shards"},
		{http.MethodGet, "/api/v1" + namespaced + "secrets", "service-accounts"},
	} {
		schema := &flowcontrolv1.FlowSchema{}
		must.Succeed(t, labtest.Client(t, home).Get(t.Context(), client.ObjectKey{Name: c.want}, schema))
		labtest.Eventually(t, fmt.Sprintf("%s %s comes under %s", c.method, c.path, c.want), func() error {
			request, err := http.NewRequestWithContext(t.Context(), c.method, config.Host+c.path, nil)
			if err != nil {
				return err
			}
			answer, err := asReplica.Do(request)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if got := answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got != string(schema.UID) {
				return fmt.Errorf("it came under the schema with UID %q", got)
			}
			return nil
		})
	}
}
