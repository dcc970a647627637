package onboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// Entry is one cluster of the fleet.
type Entry struct {
	Name   string `json:"name"`
	Server string `json:"server,omitempty"`
	// Expires is the end of the credentials, nil where they don't say.
	Expires *time.Time `json:"expires,omitempty"`
	// Roles and Namespaces are what it was added with; none for a Secret that was made by hand.
	Roles      []Role   `json:"roles,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Service    Service  `json:"service"`
	// State is "served", or what is wrong. OK says whether anything is.
	State string `json:"state"`
	OK    bool   `json:"ok"`
	// Unread is what couldn't be read of the fleet, and so isn't judged: the same in each entry.
	Unread []string `json:"unread,omitempty"`
}

// List reads the clusters of the fleet. With ask, each is asked whether it can be used.
func (o Onboarder) List(ctx context.Context, ask bool) ([]Entry, error) {
	home, err := o.home()
	if err != nil {
		return nil, err
	}
	secrets, err := kubeconfig.List(ctx, home, o.Namespace)
	if err != nil {
		return nil, fmt.Errorf("listing the Secrets of clusters in namespace %s of the home cluster at %s (tenure status "+
			"does without): %w", o.Namespace, o.Home.Host, err)
	}
	snapshot, err := o.snapshot(ctx, ask)
	if err != nil {
		return nil, err
	}
	return entries(console.Assess(snapshot), secrets), nil
}

// entries judges the clusters that are registered.
func entries(f console.Fleet, secrets []corev1.Secret) []Entry {
	all := make([]Entry, 0, len(secrets))
	for i := range secrets {
		s, held := &secrets[i], Hold(&secrets[i])
		e := Entry{Name: s.Name, Server: held.Server, Service: serving(f, s.Name), Unread: f.Unread}
		if access, ok := accessOf(s); ok {
			e.Roles, e.Namespaces = access.Roles, access.Namespaces
		}
		if !held.Expires.IsZero() {
			e.Expires = &held.Expires
		}
		cluster := f.Cluster(s.Name)
		switch {
		case s.DeletionTimestamp != nil:
			e.State, e.OK = "being removed", e.Service.Taken == 0
		case held.broken():
			e.State = clusterhealth.ReasonBadConfig
		case e.Expires != nil && !e.Expires.After(f.Taken):
			e.State = "expired"
		case cluster.Fails():
			e.State = cluster.Reason
		case e.Service.Trouble != "":
			e.State = "nothing served (" + e.Service.Trouble + ")"
		case e.Service.Complete && soon(held, f.Taken):
			e.State = "expires soon"
		case e.Service.Complete:
			e.State, e.OK = "served", true
		case e.Service.Held > e.Service.Stuck:
			e.State = "served in part"
		default:
			e.State = "not served"
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
