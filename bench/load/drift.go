package load

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/test/lab"
)

// Replicas is the number of replicas that a Deployment of the load asks for. driftedTo is the number that a
// stranger sets on a copy. Nothing runs their Pods.
const (
	Replicas  = 2
	driftedTo = 7
)

// createDeployment creates a Deployment that asks for copies in all other clusters.
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

// Drift changes each of the Deployments' copies in each of the clusters, one at every interval, as a client would
// that doesn't know who manages them. expect is called before each change, with the time for which it is scheduled.
func Drift(ctx context.Context, sources []Ref, clusters []*Cluster, every time.Duration,
	expect func(source Ref, cluster string, at time.Time)) error {
	at := time.Now()
	for _, source := range sources {
		for _, c := range clusters {
			if err := lab.Sleep(ctx, time.Until(at)); err != nil {
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
