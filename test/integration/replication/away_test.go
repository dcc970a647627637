package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// removedWhileAway deletes one source and takes the label off another while the API server of a target is frozen.
// Nothing but their copies may be deleted there, however long it couldn't be read.
func removedWhileAway(t *testing.T, f *lab.Fleet) {
	ctx, home, west := t.Context(), f.Client(lab.Home), f.Planes.Cluster("west")
	removed := []string{name(4), name(5)}
	before := uids(t, f.Client("west"))
	must.Succeed(t, west.Pause())
	resumed := false
	defer func() {
		if !resumed {
			_ = west.Resume() // so that the planes can be stopped
		}
	}()
	must.Succeed(t, home.Delete(ctx, newSource(4)))
	unlabel := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tenure.dev/replicate":null}}}`))
	must.Succeed(t, home.Patch(ctx, newSource(5), unlabel))
	for _, source := range removed {
		labtest.Within(t, time.Minute, "convergence", func() error {
			return errors.Join(isGone(ctx, f.Client("east"), source), waitsForWest(ctx, home, source))
		})
	}
	must.Succeed(t, west.Resume())
	resumed = true
	began := time.Now()
	for _, source := range removed {
		labtest.Within(t, time.Minute, "convergence", func() error { return isGone(ctx, f.Client("west"), source) })
	}
	labtest.Within(t, time.Minute, "convergence", func() error { return isGone(ctx, home, name(4)) })
	labtest.Within(t, time.Minute, "convergence", func() error {
		d := &appsv1.Deployment{}
		if err := home.Get(ctx, client.ObjectKey{Namespace: "default", Name: name(5)}, d); err != nil {
			return err
		}
		if len(d.Finalizers) > 0 || d.Annotations[replication.AnnotationCopies] != "" || len(d.Status.Conditions) > 0 {
			return fmt.Errorf("still on the source: %v %v %v", d.Finalizers, d.Annotations, d.Status.Conditions)
		}
		return nil
	})
	t.Logf("cleaned up %.1f s after the cluster was back", time.Since(began).Seconds())
	after := uids(t, f.Client("west"))
	for copied, uid := range before {
		if !slices.Contains(removed, copied) && after[copied] != uid {
			t.Errorf("the copy of %s was deleted in west", copied)
		}
	}
}

func uids(t *testing.T, c client.Client) map[string]types.UID {
	t.Helper()
	list := &appsv1.DeploymentList{}
	must.Succeed(t, c.List(t.Context(), list, client.InNamespace("default")))
	found := map[string]types.UID{}
	for _, d := range list.Items {
		found[d.Name] = d.UID
	}
	return found
}

func isGone(ctx context.Context, c client.Client, name string) error {
	err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &appsv1.Deployment{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%s is there", name)
	}
	return err
}

// waitsForWest returns an error until a source shows that its copy in west must still be deleted.
func waitsForWest(ctx context.Context, home client.Client, source string) error {
	d := &appsv1.Deployment{}
	if err := home.Get(ctx, client.ObjectKey{Namespace: "default", Name: source}, d); err != nil {
		return err
	}
	c := labtest.Condition(d, replication.ConditionReplicated)
	if c.Reason != replication.ReasonCleaningUp || !strings.Contains(c.Message, "west (to be removed): ") ||
		!slices.Contains(d.Finalizers, replication.Finalizer) {
		return fmt.Errorf("%s shows %v, finalizers %q", source, d.Status.Conditions, d.Finalizers)
	}
	return nil
}
