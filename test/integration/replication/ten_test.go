package replication

import (
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
	"github.com/tenure-dev/tenure/test/must"
)

// tenTargets is a fleet whose sources are copied to ten virtual clusters of one API server. The first of them is
// reached through a proxy.
type tenTargets struct {
	*lab.Fleet
	first *faultproxy.Proxy
}

func startTen(t *testing.T, options lab.Options, replicas ...string) *tenTargets {
	t.Helper()
	options.Workloads, options.Untold = []string{"host"}, true
	f := &tenTargets{Fleet: startFleet(t, options)}
	ctx := t.Context()
	for i := range 10 {
		v, err := f.MakeVirtual(ctx, "host", target(i))
		must.Succeed(t, err)
		content, err := f.ClusterKubeconfig(ctx, "host")
		if err == nil {
			content, err = v.Kubeconfig(content)
		}
		if err == nil && i == 0 {
			if f.first, err = faultproxy.Start(faultproxy.Config{Upstream: v.RESTConfig()}); err == nil {
				t.Cleanup(f.first.Close)
				content, err = f.first.Kubeconfig(content)
			}
		}
		if err == nil {
			err = lab.OpenNamespace(ctx, f.Client("host"), target(i)+"-default", replication.TargetConfined)
		}
		if err == nil {
			err = f.AddKubeconfig(ctx, target(i), content)
		}
		must.Succeed(t, err)
	}
	labtest.Replicas(t, f.Fleet, replicas...)
	return f
}

func target(i int) string { return fmt.Sprint("t", i) }

// make creates all sources, and waits until all ten have their copies.
func (f *tenTargets) make(t *testing.T) {
	t.Helper()
	createSources(t, f.Client(lab.Home), sources)
	f.within(t, "convergence", 0, "web:1")
}

// edit gives all sources an image.
func (f *tenTargets) edit(t *testing.T, image string) {
	t.Helper()
	edit := client.RawPatch("application/json-patch+json",
		fmt.Appendf(nil, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image))
	labtest.InParallel(t, sources, func(i int) error {
		return f.Client(lab.Home).Patch(t.Context(), newSource(i), edit)
	})
}

// within waits until the copies of all sources, in the targets from a number on, have an image. It returns how long
// that took.
func (f *tenTargets) within(t *testing.T, what string, from int, image string) time.Duration {
	t.Helper()
	began := time.Now()
	labtest.Within(t, 90*time.Second, what, func() error {
		for i := from; i < 10; i++ {
			list := &appsv1.DeploymentList{}
			if err := f.Client("host").List(t.Context(), list, client.InNamespace(target(i)+"-default")); err != nil {
				return err
			}
			n := 0
			for _, d := range list.Items {
				if d.Spec.Template.Spec.Containers[0].Image == image {
					n++
				}
				if source := d.Annotations[replication.AnnotationSource]; source != "home/default/"+d.Name {
					return fmt.Errorf("%s: %s is the copy of %s, which has another name", target(i), d.Name, source)
				}
			}
			if n != sources {
				return fmt.Errorf("%s has %s in %d copies of %d", target(i), image, n, sources)
			}
		}
		return nil
	})
	return time.Since(began)
}

// TestOneBadTargetOfTenIsPutOffWithoutShardingToo has a leader copy to ten clusters, of which the first serves nothing.
func TestOneBadTargetOfTenIsPutOffWithoutShardingToo(t *testing.T) {
	f := startTen(t, lab.Options{Bare: true})
	labtest.Replica(t, f.Fleet, "r1", "--sharding=off", "--workers=1")
	f.make(t)
	fault := f.first.Inject(faultproxy.Rule{
		Match: faultproxy.Match{Verbs: []string{"get", "list", "create", "patch", "delete"},
			Resources: []string{"deployments", "namespaces"}},
		Status: http.StatusServiceUnavailable,
	})
	time.Sleep(2 * time.Second) // after what was served last, for a breaker to be sure
	f.edit(t, "web:2")
	f.within(t, "convergence of nine", 1, "web:2")
	if hits := fault.Hits(); hits == 0 || hits >= sources {
		t.Errorf("%d requests to the bad one: %d sources must find out together that it is", hits, sources)
	} else {
		t.Logf("%d requests to the bad one", hits)
	}
	fault.End()
	f.within(t, "convergence of all", 0, "web:2")
}

// TestNineTargetsConvergeAsWithoutABadOne compares how long an edit of all sources takes to reach nine of ten clusters,
// while the tenth is well, and while it isn't.
func TestNineTargetsConvergeAsWithoutABadOne(t *testing.T) {
	f := startTen(t, lab.Options{Bare: true}, "r1", "r2")
	f.make(t)
	f.edit(t, "calm:0") // the first patch of a copy by a new process costs more than later ones
	f.within(t, "convergence of all", 0, "calm:0")
	for name, rule := range map[string]faultproxy.Rule{
		"silent":   {Fault: faultproxy.Blackhole},
		"late":     {Fault: faultproxy.Delay, Delay: 2500 * time.Millisecond},
		"refusing": {Status: http.StatusServiceUnavailable},
		"limited":  {Status: http.StatusTooManyRequests, RetryAfter: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f.edit(t, name+":1")
			calm := f.within(t, "convergence of nine in calm", 1, name+":1")
			// What a machine with other work takes differs by seconds. A source that is put off for its bad target's sake, or
			// that waits for a worker that the bad target holds, takes longer.
			allowed := calm*3/2 + 20*time.Second
			fault := f.first.Inject(rule)
			defer fault.End()
			f.edit(t, name+":2")
			took := f.within(t, "convergence of nine", 1, name+":2")
			t.Logf("%d ms beside it, %d ms in calm, %d requests to it", took.Milliseconds(), calm.Milliseconds(),
				fault.Hits())
			if took > allowed {
				t.Errorf("nine targets took %v beside a bad one, want at most %v", took, allowed)
			}
			fault.End()
			f.within(t, "convergence of all", 0, name+":2")
			if fault.Hits() == 0 {
				t.Error("the fault hit no request")
			}
		})
	}
}
