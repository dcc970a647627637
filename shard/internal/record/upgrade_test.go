package record

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// asVersion1 returns the shard that a replica of version 1 or 2 takes a record for, "" for one that it leaves alone.
// They know neither fleets nor layouts nor generations.
func asVersion1(s *tenurev1alpha1.Shard) string {
	if s.Name != s.Spec.Cluster+".p"+s.Spec.Prefix { // as for clusters whose names aren't too long
		return ""
	}
	return s.Spec.Cluster + "/" + s.Spec.Prefix
}

// pruned is what an API server returns under the CRD of versions 1 and 2.
func pruned(s *tenurev1alpha1.Shard) *tenurev1alpha1.Shard {
	s = s.DeepCopy()
	s.Spec.Generation, s.Spec.Layout = 0, nil
	return s
}

// What replicas of earlier versions make of the records of this one, and this one of theirs, under the CRDs of both. No
// record is taken for two shards, and none for another shard than it is.
func TestRecordsAreReadAlikeByAllVersionsOrNotAtAll(t *testing.T) {
	const older = "apply config/crd"
	shard := func(name, prefix string, generation int64) *tenurev1alpha1.Shard {
		s := &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "5"}}
		s.Spec = tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: prefix, Generation: generation}
		return s
	}
	layout := func(name string) *tenurev1alpha1.Shard {
		s := shard(name, "", 1)
		s.Spec.Layout = &tenurev1alpha1.ShardLayout{Generation: 2, Prefixes: []string{""}}
		return s
	}
	of := func(fleet string, s *tenurev1alpha1.Shard) *tenurev1alpha1.Shard {
		s.Labels = map[string]string{tenurev1alpha1.FleetLabel: fleet}
		return s
	}
	for _, c := range []struct {
		name   string
		record *tenurev1alpha1.Shard
		one    string // what version 1 takes it for
		this   string // what this version takes it for; "other" for another fleet's, else part of the error
		before string // the same under the CRD of before
	}{
		// the API server fills the generation in
		{"made by version 1", shard("west.p0", "0", 1), "west/0", "west/0", "west/0"},
		{"of all of a cluster", shard("west.p", "", 1), "west/", "west/", "west/"},
		{"of the second generation", shard("west.p0-g2", "0", 2), "", "west/0@2", older},
		{"of all, of the second generation", shard("west.p-g2", "", 2), "", "west/@2", older},
		{"a layout", layout("west.layout"), "", "layout of west", older},
		{"a layout under a record's name", layout("west.p"), "west/", "has a layout of", "west/"},
		{"another fleet's", of("blue", shard("west.blue.f0", "0", 1)), "", "other", "other"},
		{"another fleet's layout", of("blue", layout("west.blue.flayout")), "", "other", older},
		{"under a name that isn't its own", shard("west.p1", "0", 1), "", "delete it", older},
	} {
		t.Run(c.name, func(t *testing.T) {
			reads := func(s *tenurev1alpha1.Shard, want string) {
				t.Helper()
				if other := OfAnother("", s); other || want == "other" {
					if !other || want != "other" {
						t.Errorf("it is taken for another fleet's: %v", other)
					}
					return
				}
				got := ""
				switch in, err := Seen("", s); in := in.(type) {
				case ownership.ShardSeen:
					got = in.Shard.ID.String()
				case ownership.LayoutSeen:
					got = "layout of " + string(in.Layout.Cluster)
					if err != nil {
						got = err.Error()
					}
				default:
					got = err.Error()
				}
				if got != want && !(strings.Contains(got, " ") && strings.Contains(got, want)) {
					t.Errorf("it is taken for %q, want %q", got, want)
				}
			}
			reads(c.record, c.this)
			reads(pruned(c.record), c.before)
			for _, s := range []*tenurev1alpha1.Shard{c.record, pruned(c.record)} {
				if got := asVersion1(s); got != c.one {
					t.Errorf("version 1 takes it for %q, want %q", got, c.one)
				}
			}
		})
	}
}

func TestACRDThatIsTooOldIsToldWithTheWayOut(t *testing.T) {
	kind := schema.GroupResource{Group: "tenure.dev", Resource: "shards"}
	for _, c := range []struct {
		name   string
		answer error
		passes bool
		tells  string
	}{
		{"it knows layouts", nil, true, ""},
		{"there is such a cluster", apierrors.NewAlreadyExists(kind, "x"), true, ""},
		{"who asks may not make layouts", apierrors.NewForbidden(kind, "x", errors.New("no")), true, ""},
		{"it knows none", apierrors.NewBadRequest(`strict decoding error: unknown field "spec.layout"`), false,
			"apply config/crd"},
		{"there is none", apierrors.NewNotFound(kind, ""), false, "apply config/crd"},
		{"there is no namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x"), false,
			"no namespace " + namespace},
		{"a webhook refuses", apierrors.NewBadRequest(`admission webhook "x" denied the request: no`), true, ""},
		{"a webhook can't be called", apierrors.NewInternalError(errors.New(`failed calling webhook "x": no`)), true, ""},
		{"a policy refuses", apierrors.NewInvalid(tenurev1alpha1.GroupVersion.WithKind("Shard").GroupKind(), "x",
			field.ErrorList{field.Forbidden(nil, "ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no")}), true,
			""},
		{"nobody answers", errors.New("connection refused"), false, "checking whether"},
		{"a proxy refuses", apierrors.NewGenericServerResponse(403, "post", kind, "x", "blocked", 0, true), false,
			"checking whether"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dry, strict := false, false
			scheme := newScheme(t)
			api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					o := (&client.CreateOptions{}).ApplyOptions(opts)
					dry, strict = len(o.DryRun) == 1, o.FieldValidation == "Strict"
					if obj.(*tenurev1alpha1.Shard).Spec.Layout == nil {
						t.Error("it asks for no layout")
					}
					return c.answer
				},
			})
			err := NewStore(api, namespace, keyspace.Fleet("blue")).CheckSchema(t.Context())
			if (err == nil) != c.passes || (err != nil && !strings.Contains(err.Error(), c.tells)) {
				t.Errorf("it says %v", err)
			}
			if !dry || !strict {
				t.Errorf("it asks with a dry run: %v, strictly: %v", dry, strict)
			}
		})
	}
}
