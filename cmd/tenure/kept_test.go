package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mckubeconfig "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// homeIs is a manager whose home cluster is this client. It engages no controllers.
type homeIs struct {
	mcmanager.Manager
	client client.Client
}

func (m homeIs) GetLocalManager() manager.Manager {
	return localIs{m.Manager.GetLocalManager(), m.client}
}

func (homeIs) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error { return nil }

type localIs struct {
	manager.Manager
	client client.Client
}

func (l localIs) GetClient() client.Client { return l.client }

// The copies in a cluster that can't be used are made elsewhere, too. The test is a process of its own: the provider
// ends its clusters some time after it was stopped, and that reads klog's logger, which other tests set.
func TestWithoutShardingAClusterStaysUsableWhoseSecretIsRefused(t *testing.T) {
	const alone = "TENURE_TEST_ALONE"
	if os.Getenv(alone) == "" {
		test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		test.Env = append(os.Environ(), alone+"=1")
		if out, err := test.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"gitVersion":"v1"}`)
	}))
	defer api.Close()
	o := optionsOf(t, nil, "--replica=r1", "--sharding=off", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	opts := stockOptions(managerOptions(o, clientgoscheme.Scheme), o)
	opts.Controller.SkipNameValidation = new(true)
	provider := mckubeconfig.New(mckubeconfig.Options{Namespace: o.namespace, ClusterOptions: []cluster.Option{bare}})
	mgr, err := mcmanager.New(&rest.Config{Host: "https://127.0.0.1:1"}, provider, opts)
	must.Succeed(t, err)
	home := fake.NewClientBuilder().Build()
	r := &replica{Manager: homeIs{mgr, home}, provider: provider,
		health: clusterhealth.New(clusterhealth.Config{Namespace: o.namespace, Kept: keptBy(provider)})}
	must.Succeed(t, o.setUpClusters(t.Context(), r, kubeconfig.Policy{}, logr.Discard()))
	west := &corev1.Secret{}
	west.Namespace, west.Name = o.namespace, "west"
	must.Succeed(t, home.Create(t.Context(), west))
	good := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x",
		api.URL, base64.StdEncoding.EncodeToString(certs.Of(api)))
	for i, c := range []struct {
		text     string
		usable   bool
		rejected int
	}{{"[", false, 0}, {good, true, 0}, {"[", true, 1}, {good, true, 0}, {"", false, 0}} {
		west.Data = map[string][]byte{kubeconfig.Key: []byte(c.text)}
		must.Succeed(t, home.Update(t.Context(), west))
		if c.text == "" {
			must.Succeed(t, home.Delete(t.Context(), west))
		}
		for _, reconcile := range []func(context.Context, ctrl.Request) (ctrl.Result, error){
			provider.Reconcile, r.health.Reconcile,
		} {
			_, err := reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(west)})
			must.Succeed(t, err)
		}
		rejected, err := testutil.GatherAndCount(metrics.Registry, "tenure_cluster_kubeconfig_rejected")
		must.Succeed(t, err)
		if usable, since := r.health.Usable("west"); usable != c.usable || rejected != c.rejected {
			t.Errorf("%d: usable %v since %v, %d rejected; want %v, %d", i, usable, since, rejected, c.usable, c.rejected)
		}
	}
}
