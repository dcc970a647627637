package load

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tenure-dev/tenure/bench/load/feed"
)

// Replicas is what a Deployment of the load asks for, and driftedTo what a stranger makes of a copy. Nobody runs them.
const (
	Replicas  = 2
	driftedTo = 7
)

// createDeployment creates one that is to be copied to all other clusters.
func (c *Cluster) createDeployment(ctx context.Context, namespace, name string) error {
	labels := object{"app": name}
	return c.send(ctx, http.MethodPost, feed.Deployments.Path(namespace), plainJSON, object{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": object{
			"name": name, "labels": object{"tenure.dev/replicate": "true"}, "annotations": object{"tenure.dev/clusters": "*"},
		},
		"spec": object{
			"replicas": Replicas, "selector": object{"matchLabels": labels},
			"template": object{
				"metadata": object{"labels": labels},
				"spec":     object{"containers": []object{{"name": "web", "image": "nginx"}}},
			},
		},
	}, nil)
}

// Drift changes a copy in each of the clusters for each of the Deployments, one every so long, as somebody would who
// doesn't know whose they are. Expect is told of each change before it is made, with the time at which it should be.
func Drift(ctx context.Context, sources []Ref, clusters []*Cluster, every time.Duration,
	expect func(source Ref, cluster string, at time.Time)) error {
	at := time.Now()
	for _, source := range sources {
		for _, c := range clusters {
			if err := sleepUntil(ctx, at); err != nil {
				return err
			}
			expect(source, c.Name, at)
			err := c.send(ctx, http.MethodPatch, feed.Deployments.Path(source.Namespace)+"/"+source.Name, mergePatch,
				object{"spec": object{"replicas": driftedTo}}, nil)
			if err != nil {
				return fmt.Errorf("changing the copy of Deployment %s in cluster %s: %w", source.Name, c.Name, err)
			}
			at = at.Add(every)
		}
	}
	return nil
}
