package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/record"
)

// joinRefused is the reason of the events that tell why a replica doesn't take part.
const joinRefused = "JoinRefused"

// misfitReplica is the reason of the events that tell of a member of the fleet that should have stayed outside.
const misfitReplica = "MisfitReplica"

// How long a replica waits for the answers by which it finds out whether it may take part, and before it asks again.
const (
	lookPatience = 20 * time.Second
	lookEvery    = 2 * time.Second
)

// entrance is where a process waits before its first incarnation, while it must not take part: the home cluster's CRD
// is older than the program, or the fleet has members that it can't work with. It doesn't end the process: the way out
// may be that somebody else ends.
type entrance struct {
	members *member.Store
	records *record.Store
	kinds   string
	log     logr.Logger
	teller  *teller
	told    []string
}

func newEntrance(cfg Config, kinds string, home *rest.Config, scheme *runtime.Scheme, log logr.Logger,
	spawn func(func())) (*entrance, error) {
	rc := rest.CopyConfig(home)
	rc.UserAgent = cfg.agent() + " (coordination)"
	c, err := client.New(rc, client.Options{Scheme: scheme, Mapper: recordMapper()})
	if err != nil {
		return nil, fmt.Errorf("building the client of the home cluster: %w", err)
	}
	return &entrance{
		members: member.NewStore(c, cfg.Namespace, cfg.Fleet), records: record.NewStore(c, cfg.Namespace, cfg.Fleet),
		kinds: kinds, log: log,
		teller: newTeller(c, cfg, log, spawn),
	}, nil
}

// wait returns when the process may take part, or when the context ends.
func (e *entrance) wait(ctx context.Context) {
	for {
		misfits, err := e.look(ctx)
		if err == nil && len(misfits) == 0 {
			return
		}
		e.tell(ctx, misfits, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// look returns what keeps the process from taking part.
func (e *entrance) look(ctx context.Context) ([]member.Misfit, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	if err := e.records.CheckSchema(ctx); err != nil {
		return nil, err
	}
	return e.members.Misfits(ctx, e.kinds)
}

// tell logs what is new in the way, and makes events of it.
func (e *entrance) tell(ctx context.Context, misfits []member.Misfit, err error) {
	var now []string
	if err != nil {
		now = append(now, err.Error())
	}
	for _, m := range misfits {
		now = append(now, m.Why)
		e.teller.tellOf(ctx, about(m), joinRefused, m.Why, time.Now())
	}
	if !slices.Equal(now, e.told) {
		for _, why := range now {
			e.log.Info("not taking part yet; trying again", "because", why)
		}
	}
	e.told = now
}

func about(m member.Misfit) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease",
		Name: m.Lease, UID: m.UID}
}

// kindsOf names the kinds that a program shards, as its Leases tell them.
func kindsOf(kinds []Kind, scheme *runtime.Scheme) (string, error) {
	var names []string
	for _, k := range kinds {
		gvk, err := apiutil.GVKForObject(k.Object, scheme)
		if err != nil {
			return "", fmt.Errorf("shard.Config.Kinds: %T: %w", k.Object, err)
		}
		names = append(names, gvk.GroupKind().String())
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ","), nil
}
