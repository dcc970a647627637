package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// WriteLayout creates (base 0) or replaces a cluster's layout by compare-and-swap.
func (s *Store) WriteLayout(ctx context.Context, w ownership.WriteLayout) (ownership.Version, error) {
	l := w.Layout
	spec := tenurev1alpha1.ShardLayout{Generation: int64(l.Generation), ClusterUID: l.UID}
	for _, p := range l.Prefixes {
		spec.Prefixes = append(spec.Prefixes, p.String())
	}
	object := s.named(keyspace.LayoutName(s.fleet, l.Cluster))
	var err error
	if w.Base == 0 {
		object.Spec = tenurev1alpha1.ShardSpec{Cluster: string(l.Cluster), Generation: 1, Layout: &spec}
		// Without strict validation, an old CRD would drop the layout and keep a record of a shard.
		err = s.client.Create(ctx, object, client.FieldValidation("Strict"))
	} else {
		var layout any = spec
		if w.OnlyUID { // the API server insists on the prefixes as they are, even if they are out of order
			layout = map[string]any{"clusterUID": l.UID}
		}
		err = s.client.Patch(ctx, object, cas.Merge(w.Base, map[string]any{"spec": map[string]any{"layout": layout}}))
	}
	if err != nil {
		return 0, fmt.Errorf("writing the layout of cluster %s: %w", l.Cluster, err)
	}
	return cas.Version(object.ResourceVersion)
}

// CheckSchema reports whether the home cluster's CRD knows all fields that are written, by a dry run that creates a
// layout.
func (s *Store) CheckSchema(ctx context.Context) error {
	object := s.named(keyspace.LayoutName(s.fleet, "schema-check"))
	object.Spec = tenurev1alpha1.ShardSpec{
		Cluster: "schema-check", Generation: 1, Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{""}},
	}
	err := s.client.Create(ctx, object, client.DryRunAll, client.FieldValidation("Strict"))
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsForbidden(err) && cas.Cause(err) == ownership.Refused:
		// without the right to create layouts, no schema is needed; the 403 of a proxy says nothing about rights
		return nil
	case byAdmission(err): // the fields were known, or the API server had refused them before
		return nil
	case lacksNamespace(err):
		return fmt.Errorf("the home cluster has no namespace %s: create it, or name the one that config/ was applied "+
			"with: %w", s.namespace, err)
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return fmt.Errorf("the home cluster's CRD of Shards is older than this program, or missing: apply config/crd first "+
			"(replicas of the previous version work under it, too): %w", err)
	}
	return fmt.Errorf("checking whether the home cluster's CRD of Shards is new enough: %w", err)
}

// lacksNamespace reports whether an object wasn't created since its namespace isn't there.
func lacksNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}

// byAdmission reports whether a webhook or a policy refused a request, or a webhook couldn't be called, in the words of
// the API server: it gives them no reason of their own.
func byAdmission(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && slices.ContainsFunc(
		[]string{"admission webhook ", "failed calling webhook ", "ValidatingAdmissionPolicy "},
		func(words string) bool { return strings.Contains(status.Status().Message, words) })
}

// ReadLayout reads a cluster's layout live and returns it as an input to the protocol.
func (s *Store) ReadLayout(ctx context.Context, cluster keyspace.ClusterName) (ownership.Input, error) {
	object := s.named(keyspace.LayoutName(s.fleet, cluster))
	err := s.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if cas.NotFound(err) {
		return ownership.LayoutRead{Cluster: cluster}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the layout of cluster %s: %w", cluster, err)
	}
	l, err := Layout(s.fleet, object)
	if err != nil {
		return nil, err
	}
	return ownership.LayoutRead{Cluster: cluster, Layout: l}, nil
}

// Layout parses a fleet's layout that was read or watched. It refuses one that doesn't cover each slot exactly once.
func Layout(fleet keyspace.Fleet, shard *tenurev1alpha1.Shard) (ownership.Layout, error) {
	l := ownership.Layout{Cluster: keyspace.ClusterName(shard.Spec.Cluster)}
	if want := keyspace.LayoutName(fleet, l.Cluster); shard.Spec.Layout == nil || shard.Name != want {
		return l, fmt.Errorf("record %s: has a layout of cluster %s, whose layout is %s; delete it",
			shard.Name, l.Cluster, want)
	}
	version, err := cas.Version(shard.ResourceVersion)
	if err != nil {
		return l, fmt.Errorf("layout %s: %w", shard.Name, err)
	}
	spec := shard.Spec.Layout
	if spec.Generation < 1 || spec.Generation > keyspace.MaxGeneration {
		return l, fmt.Errorf("layout %s: generation %d: must be 1 to %d; delete it", shard.Name, spec.Generation,
			keyspace.MaxGeneration)
	}
	l.Generation, l.UID, l.Version = uint32(spec.Generation), spec.ClusterUID, version
	for _, text := range spec.Prefixes {
		p, err := keyspace.ParsePrefix(text)
		if err != nil {
			return l, fmt.Errorf("layout %s: %w; delete it", shard.Name, err)
		}
		l.Prefixes = append(l.Prefixes, p)
	}
	slices.SortFunc(l.Prefixes, keyspace.Prefix.Compare)
	if !ownership.Divides(l.Prefixes) {
		return l, fmt.Errorf("layout %s: prefixes don't cover each slot once; delete it", shard.Name)
	}
	return l, nil
}
