package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/witness"
)

// listAts reads all Ats of a cluster.
func listAts(cluster, kubeconfig string) ([]witness.At, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", cluster, err)
	}
	client, err := feed.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cluster, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	objects, _, err := client.List(ctx, feed.Ats)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	ats := make([]witness.At, len(objects))
	for i, o := range objects {
		ats[i] = witness.At{
			Cluster: cluster, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID,
			Schedule: o.Spec.Schedule, Phase: o.Status.Phase,
		}
	}
	return ats, nil
}
