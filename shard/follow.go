package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/pods"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// newRecordCache returns a cache that watches the Leases and Shard records of the home cluster once it is started. It
// calls reconnected whenever the watch of a kind begins again.
func newRecordCache(cfg Config, rc *rest.Config, scheme *runtime.Scheme, log logr.Logger, failures *homeFailures,
	reconnected func()) (cache.Cache, error) {
	rc = coordinating(rc, cfg, "")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return engage.Noting(&watchRestarts{next: next, again: reconnected, begun: map[string]bool{}})
	})
	namespaces := map[string]cache.Config{cfg.Namespace: {}}
	c, err := cache.New(rc, cache.Options{
		Scheme: scheme, Mapper: recordMapper(),
		NewInformer: engage.LiveInformer(cfg.LeaseDuration/10, func(err error) { failures.report("List", err) }),
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) { // the reflector retries
			if apierrors.IsNotFound(err) {
				log.Error(err, "the home cluster doesn't know the kind Shard: install config/crd there")
				return
			}
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) ||
				errors.Is(err, io.ErrUnexpectedEOF) {
				return // a watch that has ended, as every watch does
			}
			failures.report("Watch", err)
		},
		ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Label: member.Selector(cfg.Fleet), Namespaces: namespaces},
			&tenurev1alpha1.Shard{}: {Namespaces: namespaces, Transform: lean},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the records in namespace %s of the home cluster: %w", cfg.Namespace, err)
	}
	return c, nil
}

// lean drops the managed fields of a record, a large part of what it takes in memory. While the record moves, it keeps
// those that show when its assignee was written, which package console shows.
func lean(object any) (any, error) {
	if s, ok := object.(*tenurev1alpha1.Shard); ok {
		moves := s.Spec.Assignee != "" && s.Spec.Assignee != s.Status.Holder
		s.ManagedFields = slices.DeleteFunc(s.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
			return !moves || f.Subresource != ""
		})
		if len(s.ManagedFields) == 0 {
			s.ManagedFields = nil // else their room stays
		}
	}
	return object, nil
}

// watchRestarts is a transport that calls again when the watch of a path begins again. Events alone don't show that the
// home cluster went back: a watch from a version that isn't reached yet is silent until then.
type watchRestarts struct {
	next  http.RoundTripper
	again func()

	mu    sync.Mutex      // guards begun
	begun map[string]bool // by path
}

func (w *watchRestarts) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK && req.URL.Query().Get("watch") == "true" &&
		w.isAgain(req.URL.Path) {
		w.again()
	}
	return resp, err
}

func (w *watchRestarts) isAgain(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.begun[path]
	w.begun[path] = true
	return before
}

// newPodWatch returns a watch of the replicas' Pods in the home cluster, to be run by the caller. It is nil if
// Config.Pod has no Peers.
func newPodWatch(cfg Config, rc *rest.Config, log logr.Logger) (*pods.Watch, error) {
	if cfg.Pod.Peers == "" {
		return nil, nil
	}
	rc = coordinating(rc, cfg, "")
	rc.Wrap(engage.Noting)
	live := func(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
		return engage.Live(lw, cfg.LeaseDuration/10, func(err error) {
			log.V(1).Info("listing the Pods failed, trying again", "error", err.Error())
		})
	}
	return pods.NewWatch(rc, cfg.Namespace, cfg.Pod.Peers, live, log)
}

// recordMapper maps the kinds of the records without discovery. So a replica that starts while the home cluster is
// away waits for it instead of failing.
func recordMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Lease", "LeaseList"} { // a cache of some namespaces also looks up the list kinds
		m.Add(coordinationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(eventsv1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	for _, kind := range []string{"Shard", "ShardList"} {
		m.Add(tenurev1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// follower feeds an incarnation every version of the records, beginning with what exists.
type follower struct {
	by    protocol.Incarnation
	fleet keyspace.Fleet
	cache cache.Cache
	pods  *pods.Watch // nil where they aren't watched
	log   logr.Logger
	put   func(driver.Event)
	// changed is called before the event of a change of a Shard record, unless only its report of objects and load
	// changed. It is also called if there is no event, since the record may be odd.
	changed func()
}

// follow begins to put events about the records, and Listed once the first lists are in. The returned function ends
// that.
func (f *follower) follow(ctx context.Context, spawn func(func())) (unfollow func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	leases, err := f.watch(ctx, &coordinationv1.Lease{}, func(obj client.Object) (ownership.Input, error) {
		return member.Seen(obj.(*coordinationv1.Lease))
	}, func(obj client.Object) ownership.Input {
		return member.Gone(f.fleet, obj.GetName())
	})
	if err != nil {
		cancel()
		return nil, err
	}
	shards, err := f.watch(ctx, &tenurev1alpha1.Shard{}, func(obj client.Object) (ownership.Input, error) {
		shard := obj.(*tenurev1alpha1.Shard)
		if record.OfAnother(f.fleet, shard) {
			return nil, nil
		}
		return record.Seen(f.fleet, shard)
	}, func(obj client.Object) ownership.Input {
		return f.deleted(obj.(*tenurev1alpha1.Shard))
	})
	if err != nil {
		cancel()
		return nil, err
	}
	if f.pods != nil {
		if err := f.pods.Follow(ctx, func(in ownership.ContainerSeen) { f.see(in) }); err != nil {
			cancel()
			return nil, err
		}
	}
	spawn(func() {
		for _, r := range []toolscache.ResourceEventHandlerRegistration{leases, shards} {
			select {
			case <-r.HasSyncedChecker().Done():
			case <-ctx.Done():
				return
			}
		}
		f.put(driver.Listed{By: f.by})
	})
	return cancel, nil
}

// see puts the event of what a watch shows, unless that is nil.
func (f *follower) see(what ownership.Input) {
	if what != nil {
		f.put(driver.Seen{What: what, By: f.by})
	}
}

// deleted returns what a record's deletion shows, nil if the record wasn't the fleet's. It uses only what identifies
// the record: the rest may have become unreadable.
func (f *follower) deleted(shard *tenurev1alpha1.Shard) ownership.Input {
	if shard.Spec.Layout != nil {
		cluster := keyspace.ClusterName(shard.Spec.Cluster)
		if shard.Name != keyspace.LayoutName(f.fleet, cluster) {
			return nil
		}
		return ownership.LayoutGone{Cluster: cluster}
	}
	id, err := record.ID(f.fleet, shard)
	if err != nil {
		return nil
	}
	return ownership.ShardGone{ID: id}
}

// watch puts the events of one kind until the context ends.
func (f *follower) watch(ctx context.Context, obj client.Object, seen func(client.Object) (ownership.Input, error),
	gone func(client.Object) ownership.Input) (toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := f.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %T in the home cluster: %w", obj, err)
	}
	note := func(old, now any) {
		if now, ok := now.(*tenurev1alpha1.Shard); ok && !onlyReported(old, now) {
			f.changed()
		}
	}
	put := func(obj any) {
		in, err := seen(obj.(client.Object))
		if err != nil {
			f.log.Error(err, "record is ignored")
			return
		}
		f.see(in)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			note(nil, obj)
			put(obj)
		},
		UpdateFunc: func(old, obj any) {
			note(old, obj)
			put(obj)
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			note(nil, obj)
			f.see(gone(obj.(client.Object)))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching %T in the home cluster: %w", obj, err)
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	return registration, nil
}

// onlyReported reports whether a record differs from its last version by nothing but what holders report about once a
// lease duration.
func onlyReported(old any, now *tenurev1alpha1.Shard) bool {
	before, ok := old.(*tenurev1alpha1.Shard)
	if !ok {
		return false
	}
	is := *now
	is.ResourceVersion, is.ManagedFields = before.ResourceVersion, before.ManagedFields
	is.Status.Objects, is.Status.LoadMilli = before.Status.Objects, before.Status.LoadMilli
	return equality.Semantic.DeepEqual(before, &is)
}
