package shard

import (
	"net/http"
	"runtime"
	"sync"
	"time"
	"weak"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/shard/internal/engage"
)

// Breakers judge clusters by what they answer where nothing is sharded, as [Manager.PutOff] does where something is.
// The zero value is ready. They are safe for concurrent use.
type Breakers struct {
	of sync.Map // *engage.Breaker by weak.Pointer[rest.Config]
}

// Watch judges a cluster by what comes of all requests of the clients that are made with a configuration from now on.
// It never fails.
func (b *Breakers) Watch(c *rest.Config) error {
	key, breaker := weak.Make(c), &engage.Breaker{}
	b.of.Store(key, breaker)
	runtime.AddCleanup(c, func(key weak.Pointer[rest.Config]) { b.of.Delete(key) }, key)
	c.Wrap(func(base http.RoundTripper) http.RoundTripper { return engage.Unfenced(base, breaker) })
	return nil
}

// PutOff is [Manager.PutOff] for the cluster of a configuration that is watched, which is that of cluster.Cluster's
// GetConfig.
func (b *Breakers) PutOff(c *rest.Config, namespace string) (wait time.Duration, trial bool) {
	if breaker, ok := b.of.Load(weak.Make(c)); ok {
		return breaker.(*engage.Breaker).PutOff(namespace, false)
	}
	return 0, false
}
