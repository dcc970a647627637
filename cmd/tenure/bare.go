package main

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// bare makes a provider create clusters without cache and client. Shards have their own, over the same credentials.
// This program never asks for those of the cluster itself ([shard.Manager.Unfenced]), which would only cost memory.
func bare(o *cluster.Options) {
	o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return noCache{}, nil }
	o.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return nil, nil }
}

// noCache is a cache for providers to start and to wait for. Its other methods panic.
type noCache struct{ cache.Cache }

func (noCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (noCache) WaitForCacheSync(context.Context) bool { return true }
