package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// ending is how a life stands, without what differs from one to the next.
type ending struct {
	Source    *deploymentEnding
	Copies    map[string]deploymentEnding
	Condition string
}

type deploymentEnding struct {
	Labels, Annotations map[string]string
	Finalizers          []string
	Spec                appsv1.DeploymentSpec
	// Ours are the fields that belong to our field manager.
	Ours []string
	// Generation of a source; that of a copy depends on how often it was repaired.
	Generation int64
}

func (l *life) ending(ctx context.Context) (ending, error) {
	s := ending{Copies: map[string]deploymentEnding{}}
	for _, name := range []string{"home", "west", "east"} {
		d := &appsv1.Deployment{}
		err := l.client[name].Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: "web"}, d)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return s, err
		case name != "home":
			s.Copies[name] = l.normalized(d)
		default:
			source := l.normalized(d)
			source.Generation = d.Generation
			s.Source = &source
			if c := labtest.Condition(d, replication.ConditionReplicated); c.Type != "" {
				s.Condition = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
		}
	}
	return s, nil
}

func (l *life) normalized(d *appsv1.Deployment) deploymentEnding {
	e := deploymentEnding{Labels: d.Labels, Annotations: map[string]string{}, Finalizers: d.Finalizers, Spec: d.Spec}
	for name, value := range d.Annotations {
		switch name {
		case replication.AnnotationOwnerUID, replication.AnnotationApplied, "deployment.kubernetes.io/revision":
			value = "some" // depends on UIDs, names, and on whether the Deployment controller noticed
		}
		e.Annotations[name] = strings.ReplaceAll(value, l.namespace, "NAMESPACE")
	}
	for _, entry := range d.ManagedFields {
		if entry.Manager == replication.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply {
			e.Ours = append(e.Ours, entry.Subresource+" "+string(entry.FieldsV1.Raw))
		}
	}
	slices.Sort(e.Ours)
	return e
}

// crashes plays the same life again and again. Each time another write of each act is the last that a process
// makes, or a write whose reply it doesn't get. Every act must end as in an undisturbed life.
func crashes(t *testing.T, r *rig) {
	undisturbed := &life{rig: r, namespace: "undisturbed", crash: &crash{}}
	want, err := undisturbed.live(t.Context(), nil)
	must.Succeed(t, err)
	const atOnce = 4 // sites, in three ways each
	hurt := map[string]int{}
	more := true
	for first := 1; more; first += atOnce {
		var group sync.WaitGroup
		var lives []*life
		for site := first; site < first+atOnce; site++ {
			for i, way := range []way{crashBefore, crashAfter, replyLost} {
				l := &life{rig: r, namespace: fmt.Sprintf("crash-%d-%d", site, i), crash: &crash{way: way, site: site}}
				lives = append(lives, l)
				group.Go(func() {
					if _, err := l.live(t.Context(), want); err != nil {
						t.Errorf("%s at write %d of each act (%s): %v", way, site, strings.Join(l.crash.hurt, ", "), err)
					}
				})
			}
		}
		group.Wait()
		for _, l := range lives {
			more = more && len(l.crash.hurt) > 0 && !t.Failed() // until there is no such write
			for _, what := range l.crash.hurt {
				hurt[fmt.Sprintf("%s: %s", what, l.crash.way)]++
			}
		}
	}
	for _, what := range []string{"PATCH deployment in home", "PATCH status in home", "POST namespace in west",
		"POST namespace in east",
		"PATCH deployment in west", "PATCH deployment in east", "DELETE deployment in west", "DELETE deployment in east"} {
		for _, way := range []way{crashBefore, crashAfter, replyLost} {
			n := hurt[fmt.Sprintf("%s: %s", what, way)]
			if t.Logf("%s: %s: %d times", what, way, n); n == 0 {
				t.Errorf("no %s at %s", way, what)
			}
		}
	}
}
