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

// Breakers judges clusters by their answers in a program that doesn't shard. In one that does, [Manager.PutOff] takes
// its place. The zero value is ready. It is safe for concurrent use.
type Breakers struct {
	of sync.Map // *engage.Breaker by weak.Pointer[rest.Config]
}

// Watch judges a cluster by the answers to all clients that are made with c from now on. It never fails: it returns an
// error so that it can be used where functions that prepare a configuration are.
func (b *Breakers) Watch(c *rest.Config) error {
	key, breaker := weak.Make(c), &engage.Breaker{}
	b.of.Store(key, breaker)
	runtime.AddCleanup(c, func(key weak.Pointer[rest.Config]) { b.of.Delete(key) }, key)
	c.Wrap(func(base http.RoundTripper) http.RoundTripper { return engage.Unfenced(base, breaker) })
	return nil
}

// PutOff is [Manager.PutOff] for the cluster whose configuration was given to Watch. c must be the same pointer:
// cluster.Cluster's GetConfig returns it.
func (b *Breakers) PutOff(c *rest.Config, namespace string) (wait time.Duration, trial bool) {
	if breaker, ok := b.of.Load(weak.Make(c)); ok {
		return breaker.(*engage.Breaker).PutOff(namespace, false)
	}
	return 0, false
}
