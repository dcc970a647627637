package shard

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// kindSource feeds one controller's queue with the events of one kind, from every shard that is active. It is started
// once and attaches to shards as they come and go, so an engagement leaves nothing behind in the controller.
type kindSource struct {
	roster       *roster
	log          logr.Logger
	obj          client.Object
	kind         Kind // as declared in the configuration; set by Start
	keys         func(client.Object) []types.NamespacedName
	due          func(client.Object) time.Time // see For; may be nil
	filter       predicate.Predicate           // events that are acted on
	remote       bool                          // the kind is declared by Copies
	ownKeys      bool                          // the keys are those of the objects themselves
	owner        schema.GroupVersionKind       // the kind of the owners that Owns enqueues; empty with other sources
	needsPrimary bool                          // the kind must be primary, so that what its objects own is in their shards
	needsOwned   bool                          // the kind must be owned, so that its objects are in their owners' shards
	err          error                         // why it can't be started
	queue        queue                         // set when the source is added to the roster
}

// For returns the source of a controller's own kind.
//
// When a shard becomes active, the objects that it holds already are enqueued behind all live events. Under a lasting
// load that can take long. due, which may be nil, avoids this for objects with a due time: they are enqueued for that
// time like live ones, the longest overdue first, and not before it. That holds for objects that were there and for
// those that have just come or changed. Until then they aren't keys in the queue: if an object that one of them owns is
// deleted while their shard moves, its owner isn't reconciled before that time. due returns zero for an object that
// waits for no time, or has something else to be done: it is enqueued at once when it comes or changes. due must
// depend on nothing but the object, and may be called from several goroutines.
//
// Events that a predicate refuses are dropped, as with controller-runtime's own sources. Predicates are called from
// several goroutines. A refused update still counts in one case: the predicate would accept the object as new, and the
// update moved its due time. Then the new time counts.
func (m *Manager) For(obj client.Object, due func(client.Object) time.Time,
	only ...predicate.Predicate) source.TypedSource[mcreconcile.Request] {
	s := m.source(obj, only...)
	s.due, s.keys, s.ownKeys, s.needsPrimary = due, ownKey, true, m.node.cfg.divides()
	return s
}

// source returns the source of a kind, to which the caller adds the rest.
func (m *Manager) source(obj client.Object, only ...predicate.Predicate) *kindSource {
	return &kindSource{roster: m.node.roster, log: m.node.log, obj: obj, filter: predicate.And(only...)}
}

func ownKey(o client.Object) []types.NamespacedName {
	return []types.NamespacedName{client.ObjectKeyFromObject(o)}
}

// Owns returns the source of a kind whose objects the controller creates: an event enqueues the object's controller
// owner if that is of the owner's kind, unless a predicate refuses the event. Declare the kind with [Owned].
func (m *Manager) Owns(obj, owner client.Object, only ...predicate.Predicate) source.TypedSource[mcreconcile.Request] {
	kind, err := apiutil.GVKForObject(owner, m.GetLocalManager().GetScheme())
	s := m.source(obj, only...)
	s.err, s.owner, s.needsOwned = err, kind, m.node.cfg.divides()
	s.keys = func(o client.Object) []types.NamespacedName {
		ref := metav1.GetControllerOf(o)
		if ref == nil || ref.Kind != kind.Kind {
			return nil
		}
		if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != kind.Group {
			return nil
		}
		return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: ref.Name}}
	}
	return s
}

// Watches returns a source that enqueues the keys that keys returns for every object that comes, changes or goes. The
// kind must be one of [Config].Kinds and, where clusters are divided, an owned one: a primary object may be in
// another shard than the keys. There keys may return only the key of the object that owns the one given: any other may
// be of another shard, and would be reconciled here as if it didn't exist. keys may be called from several goroutines.
func (m *Manager) Watches(obj client.Object, keys func(
	client.Object) []types.NamespacedName) source.TypedSource[mcreconcile.Request] {
	s := m.source(obj)
	s.keys, s.needsOwned = keys, m.node.cfg.divides()
	return s
}

// WatchesCopies is [Manager.Watches] for a kind that was declared with [Copies].
func (m *Manager) WatchesCopies(obj client.Object,
	keys func(client.Object) []types.NamespacedName) source.TypedSource[mcreconcile.Request] {
	s := m.source(obj)
	s.keys, s.remote = keys, true
	return s
}

// Sweep returns a source that enqueues all objects of a primary kind that this replica holds, as backfill, whenever a
// value arrives, until the channel is closed. It is for changes that concern every object and cause no event of any.
// It fails to start for an owned kind, whose objects have no keys of their own.
func (m *Manager) Sweep(obj client.Object, when <-chan struct{}) source.TypedSource[mcreconcile.Request] {
	return source.TypedFunc[mcreconcile.Request](func(ctx context.Context, q queue) error {
		s := m.source(obj)
		s.queue, s.keys = q, ownKey
		if err := s.declared(); err != nil {
			return err
		}
		if s.kind.owned {
			return fmt.Errorf("sweep of %T: the kind is declared with Owned, so the names of its objects are no keys to "+
				"reconcile: sweep the primary kind that they belong to", obj)
		}
		go func() {
			for {
				select {
				case _, more := <-when:
					if !more { // a closed channel would sweep without end
						return
					}
					for _, e := range m.node.roster.all() {
						if e.gate.IsOpen() {
							e.backfill([]*kindSource{s})
						}
					}
				case <-ctx.Done():
					return
				}
			}
		}()
		return nil
	})
}

// Start implements source.TypedSource: it feeds the queue until the context ends, also from shards that are warm or
// held already.
func (s *kindSource) Start(ctx context.Context, q queue) error {
	if err := s.declared(); err != nil {
		return err
	}
	if err := s.roster.addSource(ctx, s, q); err != nil {
		return fmt.Errorf("source of %T: %w", s.obj, err)
	}
	for _, e := range s.roster.all() {
		e.attach([]*kindSource{s}, s.log)
	}
	return nil
}

// declared looks the kind up in the configuration, and returns an error if the source can't be used.
func (s *kindSource) declared() error {
	if s.err != nil {
		return fmt.Errorf("source of %T: %w", s.obj, s.err)
	}
	if s.keys == nil {
		return fmt.Errorf("source of %T: keys is nil: say which keys an object's event enqueues", s.obj)
	}
	i := slices.IndexFunc(s.roster.kinds, func(k Kind) bool {
		return k.remote == s.remote && sameKind(k.Object, s.obj)
	})
	if i < 0 {
		how := "Primary or Owned"
		if s.remote {
			how = "Copies"
		}
		return fmt.Errorf("source of %T: declare the kind in shard.Config.Kinds, with %s", s.obj, how)
	}
	s.kind = s.roster.kinds[i]
	if s.needsPrimary && s.kind.owned {
		return fmt.Errorf("source of %T: the kind is declared with Owned, so its objects are in their owners' shards, and "+
			"what they own themselves is in others: declare it with Primary, or set shard.Config.WholeClusters before any "+
			"cluster is divided (one that is stays so)", s.obj)
	}
	if s.needsOwned && !s.kind.owned {
		return fmt.Errorf("source of %T: the kind is declared with Primary, so that an object may be in another shard than "+
			"what it enqueues, which wouldn't hear of it: declare it with Owned if what it enqueues owns it; what is only "+
			"referred to can't be watched where clusters are divided: come back by RequeueAfter, or set "+
			"shard.Config.WholeClusters before any cluster is divided", s.obj)
	}
	return nil
}

// attach connects the queue to a cache of the shard, which shows client.Objects only: to those in it and to all later
// events. What comes while the gate isn't open is dropped.
func (s *kindSource) attach(e *engagement, informer cache.Informer) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if e.gate.IsOpen() {
				s.added(e, obj.(client.Object), initial)
			}
		},
		UpdateFunc: func(old, obj any) {
			if e.gate.IsOpen() {
				s.updated(e, old.(client.Object), obj.(client.Object))
			}
		},
		DeleteFunc: func(obj any) {
			if !e.gate.IsOpen() {
				return
			}
			tombstone, unknown := obj.(toolscache.DeletedFinalStateUnknown)
			if unknown {
				obj = tombstone.Obj
			}
			s.deleted(e, obj.(client.Object), unknown)
		},
	})
	return err
}

// backfill enqueues objects of the shard: those with a due time for that time, the others behind all live events.
func (s *kindSource) backfill(e *engagement, objects iter.Seq[client.Object]) {
	type timed struct {
		object client.Object
		due    time.Time
	}
	var first []timed
	var later []alarm
	var patient []client.Object
	for o := range objects {
		if !s.filter.Create(event.CreateEvent{Object: o, IsInInitialList: true}) {
			continue
		}
		switch due := s.dueTime(o); {
		case due.IsZero():
			patient = append(patient, o)
		case far(due):
			later = append(later, alarm{nanos(due), client.ObjectKeyFromObject(o)})
		default:
			first = append(first, timed{o, due})
		}
	}
	slices.SortFunc(first, func(x, y timed) int { return x.due.Compare(y.due) })
	for _, t := range first {
		s.enqueueFor(e, t.object, t.due)
	}
	for _, o := range patient {
		s.enqueue(e, o, behind)
	}
	if s.due != nil {
		e.alarms(s).set(later...)
	}
}

// dueTime is when an object is due, zero if it waits for no time.
func (s *kindSource) dueTime(o client.Object) time.Time {
	if s.due == nil {
		return time.Time{}
	}
	return s.due(o)
}

func (s *kindSource) added(e *engagement, o client.Object, initial bool) {
	switch {
	case initial:
		s.backfill(e, slices.Values([]client.Object{o}))
	case s.filter.Create(event.CreateEvent{Object: o}):
		s.changed(e, o, live)
	}
}

func (s *kindSource) updated(e *engagement, before, o client.Object) {
	switch {
	case before.GetUID() != o.GetUID(): // it took the other's name while the watch was interrupted
		s.deleted(e, before, false)
		s.added(e, o, false)
	case s.filter.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: o}):
		how := live
		if version := o.GetResourceVersion(); version != "" && version == before.GetResourceVersion() {
			how = behind // it was listed anew, as the whole kind was
		}
		if !s.ownKeys && !slices.Equal(s.keys(before), s.keys(o)) {
			s.enqueue(e, before, how) // the key of an owner that has lost the object, for one
		}
		s.changed(e, o, how)
	case s.due != nil:
		s.moved(e, before, o)
	}
}

// moved handles a change that the predicate refused: if it moved the object's due time, the object waits for the new
// one. A predicate that refuses changes, for example of the status, doesn't mean that the object is never due.
func (s *kindSource) moved(e *engagement, before, o client.Object) {
	due := s.due(o)
	if due.IsZero() || due.Equal(s.due(before)) {
		return
	}
	if s.filter.Create(event.CreateEvent{Object: o, IsInInitialList: true}) { // otherwise it has no alarm, either
		s.changed(e, o, live)
	}
}

// changed enqueues an object: for its due time if it has one, otherwise at once, in the given way.
func (s *kindSource) changed(e *engagement, o client.Object, how priorityqueue.AddOpts) {
	switch due := s.dueTime(o); {
	case due.IsZero():
		s.enqueue(e, o, how)
	case far(due):
		e.alarms(s).set(alarm{nanos(due), client.ObjectKeyFromObject(o)})
	default:
		s.enqueueFor(e, o, due)
	}
}

// enqueueFor enqueues an object for its time, which may have passed.
func (s *kindSource) enqueueFor(e *engagement, o client.Object, due time.Time) {
	s.enqueue(e, o, priorityqueue.AddOpts{After: time.Until(due)})
}

func (s *kindSource) deleted(e *engagement, o client.Object, unknown bool) {
	if s.filter.Delete(event.DeleteEvent{Object: o, DeleteStateUnknown: unknown}) {
		s.enqueue(e, o, live)
	}
}

// How keys are enqueued: among live events, or behind them.
var (
	backfilled = handler.LowPriority
	live       = priorityqueue.AddOpts{}
	behind     = priorityqueue.AddOpts{Priority: &backfilled}
)

func (s *kindSource) enqueue(e *engagement, o client.Object, how priorityqueue.AddOpts) {
	if owner := metav1.GetControllerOfNoCopy(o); !s.owner.Empty() && owner != nil && !e.id.Contains(string(owner.UID)) {
		return // somebody changed its slot: the owner is in another shard, whose holder reconciles it
	}
	for _, key := range s.keys(o) {
		if !s.owner.Empty() && e.isClusterScoped(s.owner) {
			key.Namespace = "" // with a namespace, one owner would have two keys, for two workers at a time
		}
		req := mcreconcile.Request{ClusterName: e.name(), Request: reconcile.Request{NamespacedName: key}}
		switch pq, ok := s.queue.(priorityqueue.PriorityQueue[mcreconcile.Request]); {
		case ok:
			pq.AddWithOpts(how, req)
		case how.After > 0:
			s.queue.AddAfter(req, how.After)
		default:
			s.queue.Add(req)
		}
	}
}
