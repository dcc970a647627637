package onboard

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rotate puts a new token into the Secret of a cluster.
func (o Onboarder) Rotate(ctx context.Context, lifetime time.Duration) (r Report, err error) {
	home, err := o.home()
	if err != nil {
		return r, err
	}
	there, err := o.workload()
	if err != nil {
		return r, err
	}
	return o.rotate(ctx, home, there, lifetime)
}

func (o Onboarder) rotate(ctx context.Context, home, there client.Client,
	lifetime time.Duration) (r Report, err error) {
	target := target{Server: o.Workload.Host}
	if target.UID, err = o.identify(ctx, there); err != nil {
		return r, err
	}
	known, err := o.readSecrets(ctx, home)
	if err != nil {
		return r, err
	}
	if err := o.rotatable(known); err != nil {
		return r, err
	}
	if err := known.whose(target); err != nil {
		return r, fmt.Errorf("--kubeconfig isn't of this cluster, so nothing was done: %w", err)
	}
	held, uid := known.Held, target.UID
	unfit := known.unfit(uid)
	if held.Refused != nil && unfit == nil {
		return r, fmt.Errorf("Secret %s/%s holds a kubeconfig that was put there by hand, and isn't replaced by one that "+
			"does less: put the new credentials there by hand, too, or remove the cluster and add it: %w", o.Namespace, o.Name,
			held.Refused)
	}
	if unfit == nil { // replicas may reach it in another way than the caller
		target = known.way()
		r.note(known.trust(target, o.Workload))
	} else {
		if target, err = targetOf(o.Workload, ""); err != nil {
			return r, fmt.Errorf("the kubeconfig in Secret %s/%s can't be used (%w), and tenure cluster add %s has to make "+
				"another: %w", o.Namespace, o.Name, unfit, o.Name, err)
		}
		r.note(target.replaced(o.Name))
	}
	target.UID = uid
	if err := o.renewSecret(ctx, home, known.Own.DeepCopy(), target, lifetime, &r); err != nil {
		return r, err
	}
	r.Changed = true
	r.line("home", fmt.Sprintf("Secret %s/%s", o.Namespace, o.Name), "%s, replicas read it by themselves", updated)
	if held.token != "" && held.Expires.After(time.Now()) {
		r.note(fmt.Sprintf("the token before stays valid until %s", stamp(held.Expires)))
	}
	return r, nil
}

// rotatable returns an error if there is no Secret that replicas read.
func (o Onboarder) rotatable(k clusterSecrets) error {
	if k.Own == nil {
		return o.unknown(k)
	}
	return cmp.Or(deleting(k.Own), unlabelled(k.Own), immutable(k.Own))
}

// unknown returns the error for a cluster that isn't registered. It lists those that are.
func (o Onboarder) unknown(k clusterSecrets) error {
	var names []string
	for _, s := range k.Others {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("NAME %s: no cluster is registered in namespace %s of %s", o.Name, o.Namespace, o.Home.Host)
	}
	return fmt.Errorf("NAME %s: no such cluster in namespace %s; there are: %s", o.Name, o.Namespace,
		strings.Join(names, ", "))
}
