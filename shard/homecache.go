package shard

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tenure-dev/tenure/shard/internal/engage"
)

// liveCache has the informers of the manager's own cache list anew after home was away, unless the cache's options say
// what informers to make. A home cluster that is restored from a backup may have gone back to earlier versions: a watch
// that goes on from where it ended would be silent until those are passed, and a cluster whose Secret is made meanwhile
// wouldn't be known.
func liveCache(inner cache.NewCacheFunc) cache.NewCacheFunc {
	if inner == nil {
		inner = cache.New
	}
	return func(rc *rest.Config, opts cache.Options) (cache.Cache, error) {
		if opts.NewInformer == nil {
			opts.NewInformer = engage.LiveInformer(engage.LastPause)
			if opts.HTTPClient != nil { // a manager always gives one
				noting := *opts.HTTPClient
				noting.Transport = engage.Noting(cmp.Or(noting.Transport, http.DefaultTransport))
				opts.HTTPClient = &noting
			}
		}
		return inner(rc, opts)
	}
}

// checkHomeCache refuses what manager.Options.Cache says of a home cluster that is worked on. Its shards have caches of
// their own, which don't go by that: a program that was bounded to one namespace would work in all of them.
func checkHomeCache(cfg Config, opts cache.Options, scheme *runtime.Scheme) error {
	if cfg.HomeCluster == "" {
		return nil
	}
	unheeded, err := shaping(opts, cfg.Kinds, scheme)
	if err != nil || len(unheeded) == 0 {
		return err
	}
	return fmt.Errorf("manager.Options.Cache: %s: with Config.HomeCluster %q shards of the home cluster hold what is "+
		"worked on there, and they don't go by that: bound it by the predicates of For, change it by Kind.Transform, come "+
		"back by RequeueAfter; if it is meant for the manager's own cache alone, set it in manager.Options.NewCache",
		strings.Join(unheeded, ", "), cfg.HomeCluster)
}

// shaping names the options by which a cache shows less of the kinds than there is, or other than it is, or again.
func shaping(opts cache.Options, kinds []Kind, scheme *runtime.Scheme) (set []string, _ error) {
	if len(opts.DefaultNamespaces) > 0 {
		set = append(set, fmt.Sprintf("DefaultNamespaces %q", slices.Sorted(maps.Keys(opts.DefaultNamespaces))))
	}
	if s := opts.DefaultLabelSelector; s != nil && !s.Empty() {
		set = append(set, fmt.Sprintf("DefaultLabelSelector %q", s.String()))
	}
	if s := opts.DefaultFieldSelector; s != nil && !s.Empty() {
		set = append(set, fmt.Sprintf("DefaultFieldSelector %q", s.String()))
	}
	if opts.DefaultTransform != nil {
		set = append(set, "DefaultTransform")
	}
	if opts.SyncPeriod != nil {
		set = append(set, fmt.Sprintf("SyncPeriod %v", *opts.SyncPeriod))
	}
	for obj := range opts.ByObject {
		same, err := ofKind(kinds, obj, scheme)
		if err != nil {
			return nil, fmt.Errorf("manager.Options.Cache: ByObject of %T: %w", obj, err)
		}
		if len(same) > 0 {
			set = append(set, fmt.Sprintf("ByObject of %T", obj))
		}
	}
	slices.Sort(set) // maps have no order
	return set, nil
}
