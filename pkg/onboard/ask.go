package onboard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// asksAtOnce is how many rights are asked for at a time.
const asksAtOnce = 32

// asksWithin bounds all requests to the cluster, so that a slow one leaves time for what the fleet says about it. A
// test shortens it.
var asksWithin = 10 * time.Second

// ask asks the cluster itself about its API and the caller's rights. With elsewhere, the caller is the service account
// there, and the cluster isn't this fleet's home.
func (p *probe) ask(ctx context.Context, config *rest.Config, elsewhere bool) error {
	config.Timeout, config.QPS = lookTimeout, -1
	kubeconfig.Bound(config)
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	objects, err := objectsFor(p.Access)
	if err != nil {
		return err
	}
	p.API = apiDiffers(ctx, config, objects)
	if p.Asked, err = rightsIn(objects); err != nil {
		return err
	}
	p.Missing, p.Unasked = denied(ctx, config, p.Asked)
	if elsewhere && p.Unasked == nil {
		lacks, err := denied(ctx, config, []Right{writesRecords, writesAnything})
		p.OthersHome = err == nil && slices.Equal(lacks, []Right{writesAnything}) // else nothing says that it is a home
	}
	return nil
}

// denied returns those of some rights that the API server says the caller lacks. Each namespace that a cluster is
// limited to has rights of its own, so there can be hundreds.
func denied(ctx context.Context, config *rest.Config, rights []Right) (lacks []Right, err error) {
	c, err := authorizationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster at %s: %w", config.Host, err)
	}
	allowed := make([]bool, len(rights))
	var group errgroup.Group
	group.SetLimit(asksAtOnce)
	for i, r := range rights {
		group.Go(func() (err error) {
			if allowed[i], err = may(ctx, c, r); err != nil {
				return fmt.Errorf("asking for the right to %s: %w", r, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, r := range rights {
		if !allowed[i] {
			lacks = append(lacks, r)
		}
	}
	return lacks, nil
}

func may(ctx context.Context, c authorizationv1client.AuthorizationV1Interface, r Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, Namespace: r.Namespace,
	}
	review, err := c.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
