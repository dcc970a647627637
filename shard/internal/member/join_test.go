package member

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/must"
)

// What a replica may join beside: by what its peers' Leases say, and by what replicas of earlier versions left out.
func TestAReplicaRefusesToJoinWhomItCannotWorkWith(t *testing.T) {
	const duration, speaks, kinds, sealed = tenurev1alpha1.LeaseDurationAnnotation, tenurev1alpha1.ProtocolAnnotation,
		tenurev1alpha1.KindsAnnotation, tenurev1alpha1.SealedAnnotation
	for _, c := range []struct {
		name   string
		says   map[string]string
		wayOut string // "" if it joins
	}{
		{"version 1, which names neither a version nor kinds", map[string]string{duration: "10s"}, ""},
		{"version 2, which knows no layouts", map[string]string{duration: "10s", speaks: "2"}, ""},
		{"this version", map[string]string{duration: "10s", speaks: "3", kinds: "At.x,Pod"}, ""},
		{"a later version", map[string]string{duration: "10s", speaks: "4"}, "Run the newer program"},
		{"a later version, dead", map[string]string{duration: "10s", speaks: "4", sealed: "b"}, ""},
		{"a version that is no number", map[string]string{duration: "10s", speaks: "new"}, "delete it"},
		{"a version that never was", map[string]string{duration: "10s", speaks: "0"}, "delete it"},
		{"no duration", map[string]string{speaks: "3"}, "delete it"},
		{"a duration that is none", map[string]string{duration: "soon"}, "delete it"},
		{"a duration that is over", map[string]string{duration: "-1s"}, "delete it"},
		{"nothing but a seal", map[string]string{sealed: "b"}, ""},
		{"a kind less", map[string]string{duration: "10s", kinds: "Pod"}, ""},
		{"a kind more", map[string]string{duration: "10s", kinds: "At.x,Deployment.apps,Pod"}, ""},
		{"another kind", map[string]string{duration: "10s", kinds: "At.x,Deployment.apps"}, "another fleet"},
		{"another kind alone", map[string]string{duration: "10s", kinds: "Job.batch"}, "another fleet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, raw := newStore(t)
			put(t, raw, "b-1", map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember}, c.says)
			put(t, raw, "other-1", map[string]string{tenurev1alpha1.FleetLabel: "other"}, nil) // is none of ours
			for _, name := range []string{"tenure-coordinator", "a-copy-of-it"} {
				put(t, raw, name, map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleCoordinator}, nil)
			}
			misfits, err := s.Misfits(t.Context(), "At.x,Pod")
			if err != nil || len(misfits) > 1 || (len(misfits) == 1) != (c.wayOut != "") {
				t.Fatalf("it is refused by %+v (%v), want that: %v", misfits, err, c.wayOut != "")
			}
			if c.wayOut != "" && (misfits[0].Lease != "b-1" || !strings.Contains(misfits[0].Why, "b-1") ||
				!strings.Contains(misfits[0].Why, c.wayOut)) {
				t.Errorf("it is refused with %+v, which should name b-1 and say %q", misfits[0], c.wayOut)
			}
		})
	}
}

func put(t *testing.T, c client.Client, name string, labels, annotations map[string]string) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels,
		Annotations: annotations}}
	must.Succeed(t, c.Create(t.Context(), lease))
}
