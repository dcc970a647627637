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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-dev/tenure/shard/internal/engage"
)

// liveCache makes the informers of the manager's own cache list again after home was away, unless the cache's options
// have a NewInformer. A home cluster that was restored from a backup may have gone back to earlier versions. A watch
// that resumes would then be silent until it reaches its old version, and a cluster whose Secret is made meanwhile
// would stay unknown. It calls tell with the error of each failed list.
func liveCache(inner cache.NewCacheFunc, tell func(error)) cache.NewCacheFunc {
	if inner == nil {
		inner = cache.New
	}
	return func(rc *rest.Config, opts cache.Options) (cache.Cache, error) {
		if opts.NewInformer == nil {
			opts.NewInformer = engage.LiveInformer(engage.LastPause, tell)
			if opts.HTTPClient != nil { // a manager always sets it
				noting := *opts.HTTPClient
				noting.Transport = engage.Noting(cmp.Or(noting.Transport, http.DefaultTransport))
				opts.HTTPClient = &noting
			}
		}
		return inner(rc, opts)
	}
}

// checkHomeCache refuses options in manager.Options.Cache that shape what is seen of a home cluster that is a
// workload cluster. Its shards have caches of their own, which ignore these options: a program that was limited to
// one namespace would work in all of them.
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

// checkHomeClient refuses options in manager.Options that change what the client writes. The shards of a home cluster
// that is a workload cluster have clients of their own, which ignore them: a dry run would write.
func checkHomeClient(cfg Config, opts manager.Options) error {
	if cfg.HomeCluster == "" {
		return nil
	}
	var set []string
	if opts.NewClient != nil {
		set = append(set, "NewClient")
	}
	if ptr.Deref(opts.Client.DryRun, false) {
		set = append(set, "Client.DryRun")
	}
	if opts.Client.FieldOwner != "" {
		set = append(set, "Client.FieldOwner")
	}
	if opts.Client.FieldValidation != "" {
		set = append(set, "Client.FieldValidation")
	}
	if len(set) == 0 {
		return nil
	}
	return fmt.Errorf("manager.Options: %s: with Config.HomeCluster %q shards of the home cluster have clients of "+
		"their own, which don't go by that: give it with each write", strings.Join(set, ", "), cfg.HomeCluster)
}

// shaping names the options that make a cache show only a part of the kinds' objects, changed objects, or unchanged
// objects again.
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
