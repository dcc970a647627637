package member

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// Store reads and writes the Leases of a fleet in one namespace. It is safe for concurrent use.
type Store struct {
	client    client.Client // uncached
	namespace string
	fleet     keyspace.Fleet
	// Say returns the text about clusters that is written into each Lease, for people; nil writes none. Set it before
	// the first write.
	Say func() string
}

// NewStore returns the store of a fleet's Leases in a namespace. The client must read live.
func NewStore(c client.Client, namespace string, fleet keyspace.Fleet) *Store {
	return &Store{client: c, namespace: namespace, fleet: fleet}
}

// Selector selects the Leases of a fleet. Leases of named fleets have no role label, so that replicas of versions that
// know no fleets ignore them.
func Selector(fleet keyspace.Fleet) labels.Selector {
	if fleet == "" {
		return ofNoFleet
	}
	return labels.SelectorFromValidatedSet(labels.Set{tenurev1alpha1.FleetLabel: string(fleet)})
}

var ofNoFleet, _ = labels.Parse(tenurev1alpha1.RoleLabel + ",!" + tenurev1alpha1.FleetLabel) // can't fail

// Write creates the incarnation's own Lease (base 0) or renews it by compare-and-swap, and returns the new version. A
// Lease that was deleted isn't renewed; see put.
func (s *Store) Write(ctx context.Context, base ownership.Version, l ownership.Lease,
	now time.Time) (ownership.Version, error) {
	lease := s.object(string(l.ID), tenurev1alpha1.RoleMember)
	lease.Labels[tenurev1alpha1.ReplicaLabel] = l.Replica
	lease.Annotations[tenurev1alpha1.LeaseDurationAnnotation] = l.Duration.String()
	lease.Annotations[tenurev1alpha1.RenewalAnnotation] = strconv.FormatUint(l.Renewal, 10)
	var removed []string // an earlier write may have stated them
	state := func(annotation, value, unless string) {
		if value != unless {
			lease.Annotations[annotation] = value
		} else {
			removed = append(removed, annotation)
		}
	}
	state(tenurev1alpha1.WeightAnnotation, strconv.Itoa(l.Weight), "0")
	state(tenurev1alpha1.BuildAnnotation, l.Build, "")
	state(tenurev1alpha1.ProtocolAnnotation, strconv.Itoa(l.Protocol), "0")
	state(tenurev1alpha1.KindsAnnotation, l.Kinds, "")
	state(tenurev1alpha1.PodAnnotation, l.Container, "")
	state(tenurev1alpha1.UnfitAnnotation, string(l.Unfit), "")
	state(tenurev1alpha1.FreshAnnotation, strconv.FormatBool(l.Fresh), "false")
	state(tenurev1alpha1.LeavingAnnotation, strconv.FormatBool(l.Leaving), "false")
	said := ""
	if s.Say != nil {
		said = s.Say()
	}
	state(tenurev1alpha1.TroubleAnnotation, said, "")
	holder, seconds := string(l.ID), int32((l.Duration+time.Second-1)/time.Second)
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
		RenewTime: &metav1.MicroTime{Time: now}, // for people; no replica judges by it
	}
	return s.put(ctx, base, lease, removed...)
}

// WriteLead creates (base 0) or replaces the coordinator's Lease by compare-and-swap.
func (s *Store) WriteLead(ctx context.Context, base ownership.Version, l ownership.Lead,
	now time.Time) (ownership.Version, error) {
	lease := s.object(tenurev1alpha1.CoordinatorLease(string(s.fleet)), tenurev1alpha1.RoleCoordinator)
	lease.Annotations[tenurev1alpha1.FloorAnnotation] = strconv.FormatInt(int64(l.Floor), 10)
	holder := string(l.Holder)
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &metav1.MicroTime{Time: now}}
	return s.put(ctx, base, lease)
}

// Seal declares an incarnation dead for ever: by compare-and-swap on the version that stood still or, if the Lease is
// missing (base 0), by creating a sealed one.
func (s *Store) Seal(ctx context.Context, base ownership.Version,
	id, by ownership.Incarnation) (ownership.Version, error) {
	lease := s.object(string(id), tenurev1alpha1.RoleMember)
	lease.Annotations[tenurev1alpha1.SealedAnnotation] = string(by)
	if base == 0 {
		return s.put(ctx, 0, lease)
	}
	return s.patch(ctx, base, lease, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{tenurev1alpha1.SealedAnnotation: string(by)}},
	})
}

// Drop deletes a Lease. A Lease that is gone already is no error.
func (s *Store) Drop(ctx context.Context, id ownership.Incarnation) error {
	err := s.client.Delete(ctx, s.object(string(id), tenurev1alpha1.RoleMember))
	if err != nil && !cas.NotFound(err) {
		return fmt.Errorf("deleting lease %s: %w", id, err)
	}
	return nil
}

// Read reads a Lease live and returns it as an input to the protocol.
func (s *Store) Read(ctx context.Context, name string) (ownership.Input, error) {
	lease := &coordinationv1.Lease{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, lease)
	if cas.NotFound(err) {
		return Gone(s.fleet, name), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading lease %s: %w", name, err)
	}
	if other := lease.Labels[tenurev1alpha1.FleetLabel]; other != string(s.fleet) {
		return nil, fmt.Errorf("lease %s: belongs to fleet %q, but a record of fleet %q names it: its owner can't be judged "+
			"alive or dead; correct the record",
			name, other, s.fleet)
	}
	if !ours(s.fleet, lease) {
		return nil, fmt.Errorf("lease %s: isn't one of Tenure's, but a record of fleet %q names it: its owner can't be "+
			"judged alive or dead; correct the record", name, s.fleet)
	}
	return Seen(lease)
}

// ours reports whether a replica wrote a Lease that has the fleet's label or, in a fleet without a name, no such label.
// Leases of other programs have none either. Those of replicas have a role and annotations, of which people may have
// removed some.
func ours(fleet keyspace.Fleet, lease *coordinationv1.Lease) bool {
	_, labelled := lease.Labels[tenurev1alpha1.RoleLabel]
	_, stated := lease.Annotations[tenurev1alpha1.LeaseDurationAnnotation]
	_, sealed := lease.Annotations[tenurev1alpha1.SealedAnnotation]
	return fleet != "" || labelled || stated || sealed || lease.Name == tenurev1alpha1.CoordinatorLease("")
}

// Gone returns the protocol's input for the deletion of a Lease.
func Gone(fleet keyspace.Fleet, name string) ownership.Input {
	if name == tenurev1alpha1.CoordinatorLease(string(fleet)) {
		return ownership.LeadGone{}
	}
	return ownership.LeaseGone{ID: ownership.Incarnation(name)}
}

// List reads all Leases of the fleet live. Like a watch, it leaves out those that can't be parsed.
func (s *Store) List(ctx context.Context) (leases []ownership.Lease, lead ownership.Lead, err error) {
	all, err := s.list(ctx)
	for i := range all {
		switch in, _ := Seen(&all[i]); in := in.(type) {
		case ownership.LeaseSeen:
			leases = append(leases, in.Lease)
		case ownership.LeadSeen:
			lead = in.Lead
		}
	}
	return leases, lead, err
}

func (s *Store) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	return List(ctx, s.client, s.namespace, s.fleet)
}

// List lists all Leases of a fleet, the coordinators' among them.
func List(ctx context.Context, from client.Reader, namespace string, fleet keyspace.Fleet,
	opts ...client.ListOption) ([]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	ofFleet := client.MatchingLabelsSelector{Selector: Selector(fleet)}
	if err := from.List(ctx, list, append(slices.Clip(opts), client.InNamespace(namespace), ofFleet)...); err != nil {
		return nil, fmt.Errorf("listing the Leases in namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// MaxDuration bounds the lease duration of a replica. A Lease that states a longer one was edited by somebody else.
const MaxDuration = 24 * time.Hour

// Seen returns the protocol's input for a Lease that was read or watched.
func Seen(lease *coordinationv1.Lease) (ownership.Input, error) {
	version, err := cas.Version(lease.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", lease.Name, err)
	}
	a := lease.Annotations
	switch coordinators := tenurev1alpha1.CoordinatorLease(lease.Labels[tenurev1alpha1.FleetLabel]); {
	case lease.Name == coordinators:
		lead := ownership.Lead{Version: version}
		if lease.Spec.HolderIdentity != nil {
			lead.Holder = ownership.Incarnation(*lease.Spec.HolderIdentity)
		}
		// An invalid floor counts as none: the coordinator raises it to its clock, and above all epochs that it knows.
		lead.Floor, _ = cas.Floor(a[tenurev1alpha1.FloorAnnotation])
		return ownership.LeadSeen{Lead: lead}, nil
	case lease.Labels[tenurev1alpha1.RoleLabel] == tenurev1alpha1.RoleCoordinator: // a copy has another version
		return nil, fmt.Errorf("lease %s: is labelled as the coordinator's, which is %s: delete the copy", lease.Name,
			coordinators)
	}
	l := ownership.Lease{
		ID: ownership.Incarnation(lease.Name), Replica: lease.Labels[tenurev1alpha1.ReplicaLabel],
		Build:     a[tenurev1alpha1.BuildAnnotation],
		Container: a[tenurev1alpha1.PodAnnotation],
		Fresh:     a[tenurev1alpha1.FreshAnnotation] == "true",
		Leaving:   a[tenurev1alpha1.LeavingAnnotation] == "true",
		Sealed:    a[tenurev1alpha1.SealedAnnotation] != "", Version: version,
	}
	// An invalid weight means the default. An invalid renewal number isn't one of ours.
	l.Weight, _ = strconv.Atoi(a[tenurev1alpha1.WeightAnnotation])
	l.Renewal, _ = strconv.ParseUint(a[tenurev1alpha1.RenewalAnnotation], 10, 64)
	said := true
	l.Duration, err = time.ParseDuration(a[tenurev1alpha1.LeaseDurationAnnotation])
	if err != nil || l.Duration <= 0 || l.Duration > MaxDuration { // times beyond that may overflow
		l.Duration, said = 0, false
	}
	if text, ok := a[tenurev1alpha1.ProtocolAnnotation]; ok {
		if l.Protocol, err = strconv.Atoi(text); err != nil || l.Protocol < 1 {
			l.Protocol, said = 0, false
		}
	}
	l.Unreadable = !said && !l.Sealed // who seals a missing Lease knows nothing of that
	if unfit := plan.UnfitFor(a[tenurev1alpha1.UnfitAnnotation]); len(unfit) <= plan.MaxUnfitFor {
		l.Unfit = unfit
	}
	l.Kinds = a[tenurev1alpha1.KindsAnnotation]
	return ownership.LeaseSeen{Lease: l}, nil
}

func (s *Store) object(name, role string) *coordinationv1.Lease {
	labels := map[string]string{tenurev1alpha1.RoleLabel: role}
	if s.fleet != "" {
		labels = map[string]string{tenurev1alpha1.FleetLabel: string(s.fleet)}
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: name, Labels: labels, Annotations: map[string]string{},
	}}
}

// put creates a Lease (base 0), or patches that version of it and removes some annotations. It doesn't use an update,
// because API servers create a missing Lease on update: a renewal would bring back a deleted one.
func (s *Store) put(ctx context.Context, base ownership.Version, lease *coordinationv1.Lease,
	removed ...string) (ownership.Version, error) {
	if base == 0 {
		if err := s.client.Create(ctx, lease); err != nil {
			return 0, fmt.Errorf("creating lease %s: %w", lease.Name, err)
		}
		return cas.Version(lease.ResourceVersion)
	}
	annotations := map[string]any{}
	for _, name := range removed {
		annotations[name] = nil
	}
	for name, value := range lease.Annotations {
		annotations[name] = value
	}
	return s.patch(ctx, base, lease, map[string]any{
		"metadata": map[string]any{"labels": lease.Labels, "annotations": annotations}, "spec": lease.Spec,
	})
}

// patch merges fields into one version of an existing Lease.
func (s *Store) patch(ctx context.Context, base ownership.Version, lease *coordinationv1.Lease,
	fields map[string]any) (ownership.Version, error) {
	if err := s.client.Patch(ctx, lease, cas.Merge(base, fields)); err != nil {
		return 0, fmt.Errorf("writing lease %s: %w", lease.Name, err)
	}
	return cas.Version(lease.ResourceVersion)
}
