package replication

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

// TestOneBadTargetOfTenIsPutOffWithoutShardingToo has a leader copy to ten virtual clusters, of which the first serves
// nothing.
func TestOneBadTargetOfTenIsPutOffWithoutShardingToo(t *testing.T) {
	f := startFleet(t, lab.Options{Workloads: []string{"host"}, Untold: true, Bare: true})
	ctx, home, host := t.Context(), f.Client(lab.Home), f.Client("host")
	virtual := func(i int) string { return fmt.Sprint("t", i) }
	var bad *faultproxy.Proxy
	for i := range 10 {
		v, err := f.MakeVirtual(ctx, "host", virtual(i))
		if err != nil {
			t.Fatal(err)
		}
		content, err := f.ClusterKubeconfig(ctx, "host")
		if err == nil {
			content, err = v.Kubeconfig(content)
		}
		if err == nil && i == 0 {
			if bad, err = faultproxy.Start(faultproxy.Config{Upstream: v.RESTConfig()}); err == nil {
				t.Cleanup(bad.Close)
				content, err = bad.Kubeconfig(content)
			}
		}
		if err == nil {
			err = lab.OpenNamespace(ctx, host, virtual(i)+"-default", replication.TargetConfined)
		}
		if err == nil {
			err = f.AddKubeconfig(ctx, virtual(i), content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	labtest.Replica(t, f, "r1", "--sharding=off", "--workers=1")
	for i := range sources {
		if err := home.Create(ctx, newSource(i)); err != nil {
			t.Fatal(err)
		}
	}
	// copied returns an error unless the copies of all sources, in the clusters from number from on, have the given
	// image.
	copied := func(ctx context.Context, from int, image string) error {
		for i := from; i < 10; i++ {
			list := &appsv1.DeploymentList{}
			if err := host.List(ctx, list, client.InNamespace(virtual(i)+"-default")); err != nil {
				return err
			}
			n := 0
			for _, d := range list.Items {
				if d.Spec.Template.Spec.Containers[0].Image == image {
					n++
				}
				if source := d.Annotations[replication.AnnotationSource]; source != "home/default/"+d.Name {
					return fmt.Errorf("%s: %s is the copy of %s, which is another with sharding", virtual(i), d.Name, source)
				}
			}
			if n != sources {
				return fmt.Errorf("%s has %s in %d copies of %d", virtual(i), image, n, sources)
			}
		}
		return nil
	}
	labtest.Within(t, 90*time.Second, "convergence", func() error { return copied(ctx, 0, "web:1") })

	fault := bad.Inject(faultproxy.Rule{
		Match: faultproxy.Match{Verbs: []string{"get", "list", "create", "patch", "delete"},
			Resources: []string{"deployments", "namespaces"}},
		Status: http.StatusServiceUnavailable,
	})
	time.Sleep(2 * time.Second) // after what was served last, for a breaker to be sure
	edit := client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:2"}]`))
	for i := range sources {
		d := newSource(i)
		if err := home.Patch(ctx, d, edit); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Within(t, 90*time.Second, "convergence of nine", func() error { return copied(ctx, 1, "web:2") })
	if hits := fault.Hits(); hits == 0 || hits >= sources {
		t.Errorf("%d requests to the bad one: %d sources must find out together that it is", hits, sources)
	} else {
		t.Logf("%d requests to the bad one", hits)
	}
	fault.End()
	labtest.Within(t, 90*time.Second, "convergence of all", func() error { return copied(ctx, 0, "web:2") })
}
