package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// crashes has a process crash in each act of a Deployment's life, at one write: before it is sent, or before its reply
// comes. A new process must bring the act to its end. The unit tests of package replication have crashes at all writes;
// here the servers are real, and the targets lack the namespace.
func crashes(t *testing.T, r *rig) {
	web, undisturbed := deployment("crashes", "web"), deployment(r.probe, "web-0")
	r.namespaced(t, "home", web.Namespace)
	edit := func(cluster string, change func(*appsv1.Deployment)) { r.edit(t, cluster, "kubectl-edit", web, change) }
	start := func(through func(string, http.RoundTripper) http.RoundTripper) (stop func()) {
		end, err := r.start(process{source: "home", grace: time.Minute, namespace: web.Namespace, creates: true,
			through: through})
		must.Succeed(t, err)
		return func() { must.Succeed(t, end()) }
	}
	const before, after = true, false
	for _, act := range []struct {
		name string
		do   func()
		last lastWrite
		end  string
	}{
		{"created", func() { r.create(t, "home", web.DeepCopy()) }, lastWrite{"east", "POST", "/namespaces", after},
			"True Replicated 2 of 2 [tenure.dev/replication] east,west; east web:1; west web:1"},
		{"its image changes", func() { edit("home", imageTo("web:2")) }, lastWrite{"home", "PATCH", "/web/status", before},
			"True Replicated 2 of 2 [tenure.dev/replication] east,west; east web:2; west web:2"},
		{"a copy is edited and another deleted", func() {
			edit("west", imageTo("evil"))
			must.Succeed(t, r.client["east"].Delete(t.Context(), web.DeepCopy()))
		}, lastWrite{"west", "PATCH", "/web", after},
			"True Replicated 2 of 2 [tenure.dev/replication] east,west; east web:2; west web:2"},
		{"a target is removed", func() { edit("home", with(replication.AnnotationClusters, "west")) },
			lastWrite{"east", "DELETE", "/web", after},
			"True Replicated 1 of 1 [tenure.dev/replication] west; west web:2"},
		{"the label is removed", func() {
			edit("home", func(d *appsv1.Deployment) { delete(d.Labels, replication.LabelReplicate) })
		}, lastWrite{"west", "DELETE", "/web", before}, "no condition []"},
		{"the label is back", func() {
			edit("home", func(d *appsv1.Deployment) {
				d.Labels = map[string]string{replication.LabelReplicate: "true"}
				d.Annotations[replication.AnnotationClusters] = "*"
			})
		}, lastWrite{"home", "PATCH", "/web", after},
			"True Replicated 2 of 2 [tenure.dev/replication] east,west; east web:2; west web:2"},
		{"deleted", func() { must.Succeed(t, r.client["home"].Delete(t.Context(), web.DeepCopy())) },
			lastWrite{"home", "PATCH", "/web", before}, "no source"},
	} {
		act.do()
		killed := make(chan struct{})
		stop := start(act.last.of(killed))
		select {
		case <-killed:
		case <-time.After(labtest.Patience):
			t.Errorf("%s: there was no %s of %s in %s", act.name, act.last.method, act.last.path, act.last.cluster)
		}
		stop()
		stop = start(nil)
		labtest.Eventually(t, act.name, func() error {
			end := r.ending(t, web)
			for _, name := range []string{"home", "east", "west"} {
				d, like := r.get(t, name, web), r.get(t, name, undisturbed)
				if d == nil {
					continue
				}
				want := shapeOf(like)
				switch {
				case name != "home":
					end += "; " + name + " " + imageOf(d)
				case d.Labels[replication.LabelReplicate] == "":
					want.Labels, want.Ours = nil, nil
					delete(want.Annotations, replication.AnnotationCopies)
				}
				if diff := cmp.Diff(want, shapeOf(d), cmpopts.EquateEmpty()); diff != "" {
					return fmt.Errorf("in %s, where nothing was disturbed (-) and here (+):\n%s", name, diff)
				}
			}
			if end != act.end {
				return fmt.Errorf("it stands at %q, want %q", end, act.end)
			}
			return nil
		})
		stop()
	}
}

// lastWrite is the write at which a process ends. It isn't sent, or it is and its reply is lost. All that would be sent
// after it is lost, too.
type lastWrite struct {
	cluster, method, path string // path is how that ends
	before                bool   // it isn't sent
}

// of is the transport of a process that ends in this way.
func (w lastWrite) of(killed chan<- struct{}) func(string, http.RoundTripper) http.RoundTripper {
	var dead atomic.Bool
	ended := errors.New("the process has ended")
	return func(cluster string, base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			matches := cluster == w.cluster && q.Method == w.method && strings.HasSuffix(q.URL.Path, w.path)
			last := matches && dead.CompareAndSwap(false, true)
			if last {
				defer close(killed)
			}
			if dead.Load() && (w.before || !last) {
				return nil, ended
			}
			reply, err := base.RoundTrip(q)
			if err == nil && dead.Load() {
				return nil, errors.Join(ended, reply.Body.Close())
			}
			return reply, err
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// ending is how a source stands: what its condition says of its present generation, its finalizers, and which clusters
// have copies.
func (r *rig) ending(t *testing.T, of *appsv1.Deployment) string {
	t.Helper()
	source := r.get(t, "home", of)
	if source == nil {
		return "no source"
	}
	says := "no condition"
	if c := labtest.Condition(source, replication.ConditionReplicated); c.Type != "" {
		message, _ := strings.CutPrefix(c.Message, fmt.Sprintf("generation %d: ", source.Generation))
		count, _, _ := strings.Cut(message, " clusters")
		says = fmt.Sprintf("%s %s %s", c.Status, c.Reason, count)
	}
	copies := source.Annotations[replication.AnnotationCopies]
	return strings.TrimSpace(fmt.Sprint(says, " ", source.Finalizers, " ", copies))
}

// shape is what two Deployments have in common if both are as they should be.
type shape struct {
	Labels, Annotations map[string]string
	Spec                appsv1.DeploymentSpec
	Ours                []string
}

// shapeOf leaves out what differs between two sources, or from act to act: images, and the values of annotations.
func shapeOf(d *appsv1.Deployment) shape {
	d = d.DeepCopy()
	imageTo("")(d)
	delete(d.Spec.Selector.MatchLabels, "app")
	delete(d.Spec.Template.Labels, "app")
	for name := range d.Annotations {
		d.Annotations[name] = ""
	}
	return shape{d.Labels, d.Annotations, d.Spec, ours(d)}
}

// ours are the fields that belong to our field manager.
func ours(d *appsv1.Deployment) (fields []string) {
	for _, entry := range d.ManagedFields {
		if entry.Manager == replication.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply {
			fields = append(fields, entry.Subresource+" "+string(entry.FieldsV1.Raw))
		}
	}
	slices.Sort(fields)
	return fields
}
