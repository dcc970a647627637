package labtest

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/must"
)

// At returns one that is due at a time.
func At(namespace, name string, due time.Time) *cnatv1alpha1.At {
	return &cnatv1alpha1.At{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       cnatv1alpha1.AtSpec{Schedule: due.UTC().Format(time.RFC3339Nano), Command: "true"},
	}
}

// Fact returns what the witness has to know of an At.
func Fact(cluster string, at *cnatv1alpha1.At) witness.At {
	return witness.At{Cluster: cluster, Namespace: at.Namespace, Name: at.Name, UID: string(at.UID),
		Schedule: at.Spec.Schedule}
}

// CreateAts makes Ats in the namespace default of a workload cluster, the i-th due at due(i), and returns what the
// witness has to know of them.
func CreateAts(t testing.TB, c client.Client, cluster, name string, n int, due func(i int) time.Time) []witness.At {
	t.Helper()
	var made []witness.At
	for i := range n {
		at := At(metav1.NamespaceDefault, fmt.Sprint(name, "-", i), due(i))
		must.Succeed(t, c.Create(t.Context(), at))
		made = append(made, Fact(cluster, at))
	}
	return made
}

// Done waits until so many Ats of a cluster are DONE, and not more.
func Done(t testing.TB, c client.Client, n int, within time.Duration, of ...client.ListOption) {
	t.Helper()
	Within(t, within, fmt.Sprintf("%d Ats are DONE", n), func() error {
		list := &cnatv1alpha1.AtList{}
		if err := c.List(t.Context(), list, of...); err != nil {
			return err
		}
		done, other := 0, "none"
		for _, at := range list.Items {
			if at.Status.Phase == cnatv1alpha1.AtDone {
				done++
			} else {
				other = fmt.Sprintf("%s is %s", at.Name, at.Status.Phase)
			}
		}
		if done != n {
			return fmt.Errorf("%d of %d are; of the others %s", done, len(list.Items), other)
		}
		return nil
	})
}
