package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
)

// Judge lets the witness judge the audit logs below a folder. It names the replicas' account as the fleet's only
// user.
func Judge(dir string, facts witness.Facts) (*witness.Report, error) {
	return witness.Read(dir, witness.Options{
		Facts: facts, Rules: witness.Rules{Settle: time.Second, Users: []string{AccountUser}},
	})
}

// ReplicaOf returns the replica of an incarnation: its name without the random suffix, if it has one.
func ReplicaOf(incarnation string) string {
	if cut := strings.LastIndexByte(incarnation, '-'); cut > 0 {
		return incarnation[:cut]
	}
	return incarnation
}

// ShardName is how logs and User-Agents name a record's shard.
func ShardName(s *tenurev1alpha1.Shard) string {
	name := s.Spec.Cluster + "/" + s.Spec.Prefix
	if s.Spec.Generation > 1 {
		name = fmt.Sprintf("%s@%d", name, s.Spec.Generation)
	}
	return name
}

// Shards returns the records, except retired ones, of the clusters that replicas must serve: the workload planes,
// if replicas knew them from the start, and virtual clusters. A caller that adds a cluster under another name looks
// after its records itself.
func (f *Fleet) Shards(ctx context.Context) ([]tenurev1alpha1.Shard, error) {
	list := &tenurev1alpha1.ShardList{}
	if err := f.clients[Home].List(ctx, list, client.InNamespace(Namespace)); err != nil {
		return nil, fmt.Errorf("listing the shards: %w", err)
	}
	served := f.clusters()
	return slices.DeleteFunc(list.Items, func(s tenurev1alpha1.Shard) bool {
		return s.Spec.Layout != nil || s.Status.Phase == tenurev1alpha1.ShardRetired ||
			!slices.Contains(served, s.Spec.Cluster)
	}), nil
}

func (f *Fleet) clusters() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.served)
}

// Coordinator is the replica that coordinates now; "" if there is none.
func (f *Fleet) Coordinator(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := f.clients[Home].Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "tenure-coordinator"},
		lease); err != nil {
		return "", fmt.Errorf("reading the coordinator's Lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return ReplicaOf(*lease.Spec.HolderIdentity), nil
}

// Members are the incarnations with a Lease that isn't sealed.
func (f *Fleet) Members(ctx context.Context) (map[string]bool, error) {
	list := &coordinationv1.LeaseList{}
	if err := f.clients[Home].List(ctx, list, client.InNamespace(Namespace),
		client.MatchingLabels{"tenure.dev/role": "member"}); err != nil {
		return nil, fmt.Errorf("listing the Leases: %w", err)
	}
	members := map[string]bool{}
	for _, lease := range list.Items {
		if lease.Annotations["tenure.dev/sealed-by"] == "" {
			members[lease.Name] = true
		}
	}
	return members, nil
}

// Pin pins the shards whose names begin with a text, the i-th of them to the replica to(i); if that is "", it takes
// the shard's pin away.
func (f *Fleet) Pin(ctx context.Context, names string, to func(i int) string) error {
	shards, err := f.Shards(ctx)
	if err != nil {
		return err
	}
	shards = slices.DeleteFunc(shards, func(s tenurev1alpha1.Shard) bool {
		return !strings.HasPrefix(ShardName(&s), names)
	})
	for i := range shards {
		if err := f.PinShard(ctx, &shards[i], to(i)); err != nil {
			return err
		}
	}
	return nil
}

// PinShard pins a shard to a replica; "" takes its pin away.
func (f *Fleet) PinShard(ctx context.Context, s *tenurev1alpha1.Shard, to string) error {
	value := "null"
	if to != "" {
		value = fmt.Sprintf("%q", to)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tenure.dev/pin":`+value+`}}}`))
	if err := f.clients[Home].Patch(ctx, s, patch); err != nil {
		return fmt.Errorf("pinning shard %s: %w", ShardName(s), err)
	}
	return nil
}

// Unpin takes all pins away.
func (f *Fleet) Unpin(ctx context.Context) error {
	return f.Pin(ctx, "", func(int) string { return "" })
}

// activated are the tenures that began at living replicas, by their own logs.
func (f *Fleet) activated() (map[string]bool, error) {
	lines, err := Activations(f.Alive())
	active := map[string]bool{}
	for _, l := range lines {
		active[fmt.Sprint(l.Incarnation, l.Shard, l.Epoch)] = true
	}
	return active, err
}

// Inactive returns an error that names a shard that no living replica serves, by the records and by the replicas'
// own logs; nil if all are served.
func (f *Fleet) Inactive(ctx context.Context) error {
	_, err := f.shares(ctx)
	return err
}

// shares counts the shards of every living replica, or says which shard isn't served or is on its way.
func (f *Fleet) shares(ctx context.Context) (map[string]int, error) {
	clusters := f.clusters()
	if len(clusters) == 0 {
		return nil, errors.New("there is no cluster that replicas must serve")
	}
	shards, err := f.Shards(ctx)
	if err != nil {
		return nil, err
	}
	members, err := f.Members(ctx)
	if err != nil {
		return nil, err
	}
	active, err := f.activated()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, r := range f.Alive() {
		counts[r.Name] = 0
	}
	if want := max(1, f.options.ShardsPerCluster) * len(clusters); len(shards) < want {
		return nil, fmt.Errorf("%d of %d shards are recorded", len(shards), want)
	}
	for i := range shards {
		s := &shards[i]
		holder := ReplicaOf(s.Status.Holder)
		if _, alive := counts[holder]; !alive {
			return nil, fmt.Errorf("shard %s is held by %q, who isn't alive", ShardName(s), s.Status.Holder)
		}
		if !members[s.Status.Holder] {
			return nil, fmt.Errorf("shard %s is held by %s, an incarnation that is over", ShardName(s), s.Status.Holder)
		}
		if s.Status.Phase != tenurev1alpha1.ShardHeld || (s.Spec.Assignee != s.Status.Holder && members[s.Spec.Assignee]) {
			return nil, fmt.Errorf("shard %s is %s, on its way from %s to %s", ShardName(s), s.Status.Phase,
				s.Status.Holder, s.Spec.Assignee)
		}
		if !active[fmt.Sprint(s.Status.Holder, ShardName(s), s.Status.Epoch)] {
			return nil, fmt.Errorf("shard %s isn't active at %s in epoch %d", ShardName(s), s.Status.Holder, s.Status.Epoch)
		}
		counts[holder]++
	}
	return counts, nil
}

// Unsettled returns what is Inactive, or an error if the replicas' counts of shards differ by more than one; nil if
// all is at rest.
func (f *Fleet) Unsettled(ctx context.Context) error {
	counts, err := f.shares(ctx)
	if err != nil {
		return err
	}
	if len(counts) == 0 {
		return errors.New("no replica is alive")
	}
	low, high := slices.Min(slices.Collect(maps.Values(counts))), slices.Max(slices.Collect(maps.Values(counts)))
	if high-low > 1 {
		return fmt.Errorf("shards aren't balanced: %v", counts)
	}
	return nil
}

// AwaitSettled waits until nothing is Unsettled.
func (f *Fleet) AwaitSettled(ctx context.Context, within time.Duration) error {
	if err := Eventually(ctx, within, func() error { return f.Unsettled(ctx) }); err != nil {
		return fmt.Errorf("waiting for the shards to come to rest: %w", err)
	}
	return nil
}
