package shard

import (
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/record"
)

// joinRefused is the reason of events that say why a replica doesn't take part.
const joinRefused = "JoinRefused"

// misfitReplica is the reason of events about a member of the fleet that should have stayed outside.
const misfitReplica = "MisfitReplica"

// entrancePatience is the timeout of one check whether a replica may take part, entranceEvery the time until the next.
const (
	entrancePatience = 20 * time.Second
	entranceEvery    = 2 * time.Second
)

// entrance is where a process waits before its first incarnation while it must not take part: the home cluster's CRD
// is older than the program, or the fleet has members that it can't work with. The process keeps running, since the
// obstacle may go away, for example when another replica ends.
type entrance struct {
	members  *member.Store
	records  *record.Store
	kinds    string
	lease    time.Duration // how long this process's own Lease may stand still
	log      logr.Logger
	warner   *warner
	reported []string
	still    map[string]sighting // Leases of misfits, and since when they have stood still
}

// sighting is when a version of a Lease was first seen.
type sighting struct {
	version string
	at      time.Time
}

func newEntrance(cfg Config, kinds string, home *rest.Config, scheme *runtime.Scheme, log logr.Logger,
	spawn func(func())) (*entrance, error) {
	c, err := newClient(coordinating(home, cfg, ""), scheme, kubeconfig.HTTPClientFor)
	if err != nil {
		return nil, err
	}
	return &entrance{
		members: member.NewStore(c, cfg.Namespace, cfg.Fleet), records: record.NewStore(c, cfg.Namespace, cfg.Fleet),
		kinds: kinds, lease: cfg.LeaseDuration, log: log,
		warner: newWarner(c, cfg, log, spawn),
	}, nil
}

// wait returns when the process may take part, or when the context ends.
func (e *entrance) wait(ctx context.Context) {
	for {
		misfits, err := e.misfits(ctx)
		if err == nil && len(misfits) == 0 {
			return
		}
		e.report(ctx, misfits, err)
		if !sleep(ctx, entranceEvery) {
			return
		}
	}
}

// misfits returns what keeps the process from taking part: members that it can't work with, or an error.
func (e *entrance) misfits(ctx context.Context) ([]member.Misfit, error) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, entrancePatience)
	defer cancel()
	err := e.records.CheckSchema(ctx)
	var misfits []member.Misfit
	if err == nil {
		misfits, err = e.members.Misfits(ctx, e.kinds)
	}
	return e.acting(misfits, asked), err
}

// acting returns the misfits that may still act. It leaves out those whose Leases have stood still for as long as
// their owners may act without a renewal (R1): if a whole fleet died, no replica is left to seal them. A check
// that failed finds no misfits, so their time begins anew after it. If the home cluster was away, their owners couldn't
// renew, and come back with it.
func (e *entrance) acting(misfits []member.Misfit, asked time.Time) (acting []member.Misfit) {
	still := map[string]sighting{}
	for _, m := range misfits {
		seen, ok := e.still[m.Lease]
		if !ok || seen.version != m.Version {
			seen = sighting{m.Version, time.Now()}
		}
		still[m.Lease] = seen
		if m.Duration == 0 || asked.Sub(seen.at) < max(m.Duration, e.lease) {
			acting = append(acting, m)
		}
	}
	e.still = still
	return acting
}

// ownAddress is this side of a connection in an error's text. Its port is another one each time.
var ownAddress = regexp.MustCompile(`\S+->`)

// report logs what keeps the process from taking part, if that has changed, and makes events about the misfits.
func (e *entrance) report(ctx context.Context, misfits []member.Misfit, err error) {
	var now []string
	if err != nil {
		now = append(now, ownAddress.ReplaceAllString(err.Error(), ""))
	}
	for _, m := range misfits {
		now = append(now, m.Why)
		e.warner.warnAbout(ctx, about(m), joinRefused, m.Why, "", time.Now())
	}
	if !slices.Equal(now, e.reported) {
		for _, why := range now {
			e.log.Info("not taking part yet; trying again", "because", why)
		}
	}
	e.reported = now
}

func about(m member.Misfit) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease",
		Name: m.Lease, UID: m.UID}
}
