package member

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Misfit is a Lease whose owner a replica must not share a fleet with.
type Misfit struct {
	Lease string
	UID   types.UID
	Why   string // with what to do about it
	// Version of the Lease.
	Version string
	// Duration is how long the Lease may stand still while its owner acts; 0 if the Lease doesn't say.
	Duration time.Duration
}

// Misfits reads the fleet's Leases live and returns the misfits among them, for a replica that shards these kinds.
func (s *Store) Misfits(ctx context.Context, kinds string) ([]Misfit, error) {
	all, err := s.list(ctx)
	return MisfitsAmong(all, kinds), err
}

// MisfitsAmong returns the misfits among a fleet's Leases, for a replica that shards these kinds. Sealed Leases are
// none.
func MisfitsAmong(leases []coordinationv1.Lease, kinds string) (misfits []Misfit) {
	for i := range leases {
		l := &leases[i]
		if why, duration := misfit(l, kinds); why != "" {
			misfits = append(misfits, Misfit{Lease: l.Name, UID: l.UID, Why: "lease " + l.Name + ": " + why,
				Version: l.ResourceVersion, Duration: duration})
		}
	}
	return misfits
}

func misfit(raw *coordinationv1.Lease, kinds string) (why string, duration time.Duration) {
	if raw.Labels[tenurev1alpha1.RoleLabel] == tenurev1alpha1.RoleCoordinator {
		return "", 0 // the coordinators' Lease or a copy of it: no replica owns either
	}
	seen, err := Seen(raw)
	if err != nil {
		return err.Error(), 0
	}
	in, member := seen.(ownership.LeaseSeen)
	l := in.Lease
	switch {
	case !member || l.Sealed:
		return "", 0
	case l.Unreadable:
		return fmt.Sprintf("can't be read: its lease duration (%s: %q) or its protocol version (%s: %q) is invalid. "+
			"If no replica owns it, delete it", tenurev1alpha1.LeaseDurationAnnotation,
			raw.Annotations[tenurev1alpha1.LeaseDurationAnnotation],
			tenurev1alpha1.ProtocolAnnotation, raw.Annotations[tenurev1alpha1.ProtocolAnnotation]), 0
	case l.Protocol > protocol.Version:
		return fmt.Sprintf("replica %s speaks version %d of the protocol, and this program version %d at most. Run the "+
			"newer program, or stop "+
			"all its replicas first", l.Replica, l.Protocol, protocol.Version), l.Duration
	case !fits(l.Kinds, kinds):
		return fmt.Sprintf("replica %s shards other kinds (%s) than this program (%s), so it is another program: give one "+
			"of them another fleet or namespace", l.Replica, l.Kinds, kinds), l.Duration
	}
	return "", 0
}

// fits reports whether programs that shard these kinds may form one fleet: one of them must shard all kinds of the
// other, as in a rollout that adds kinds. A Lease without kinds fits any.
func fits(a, b string) bool {
	if a == "" || b == "" {
		return true
	}
	as, bs := strings.Split(a, ","), strings.Split(b, ",")
	if len(as) > len(bs) {
		as, bs = bs, as
	}
	return !slices.ContainsFunc(as, func(kind string) bool { return !slices.Contains(bs, kind) })
}
