package engage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// filter says which objects of a kind belong to a shard, twice: to the server, and to check what arrives.
type filter struct {
	shardSelector string // for primary kinds; KEP-5866
	keep          func(metav1.Object) bool
	traffic       *Traffic
	fields        *fieldSelector // nil for none
	// transform is the kind's, which the informer applies as well; nil for none.
	transform toolscache.TransformFunc
}

// fieldSelector leaves out what is finished for good.
type fieldSelector struct {
	text      string
	listsOnly bool
	unknown   atomic.Bool // the API server doesn't know the fields
}

func (s *fieldSelector) ofList() string {
	if s == nil || s.unknown.Load() {
		return ""
	}
	return s.text
}

func (s *fieldSelector) ofWatch() string {
	if s == nil || s.listsOnly {
		return ""
	}
	return s.ofList()
}

// listed is a list-watch that an informer fills its cache from with one list, as it did before WatchList. That sends
// each object as a watch event of its own, which takes longer, the more so on a busy machine, and warming a shard is what
// a new holder waits for. What a shard lists is a part of the kind, taken in pages ([filter.list]).
type listed struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go's reflectors ask.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// wrap narrows a list-watch to the filter.
func (f *filter) wrap(inner toolscache.ListerWatcher) toolscache.ListerWatcher {
	lw := toolscache.ToListerWatcherWithContext(inner)
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			leave, err := f.traffic.lists.enter(ctx)
			if err != nil {
				return nil, err
			}
			defer leave()
			return f.list(ctx, lw, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.ShardSelector, opts.FieldSelector = f.shardSelector, f.fields.ofWatch()
			w, err := watchServer(ctx, lw, opts, lastPause)
			if err != nil {
				return nil, err
			}
			return newSieve(w, f.pass), nil
		},
	}}
}

// Live is a list-watch of a few objects, whose lists show what there is now, and which pauses for no longer than that
// between two tries to reach a server. An informer that has it isn't held up where the cluster was restored from a backup,
// or didn't answer for long: it would else insist on the version that it had, and pause for half a minute.
func Live(inner toolscache.ListerWatcher, pause time.Duration) toolscache.ListerWatcher {
	lw := toolscache.ToListerWatcherWithContext(inner)
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			return lw.ListWithContext(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return watchServer(ctx, lw, opts, pause)
		},
	}}
}

// watchServer begins a watch. Where the server takes no connections, it waits for that and returns errAway.
func watchServer(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions, most time.Duration) (watch.Interface, error) {
	w, err := lw.WatchWithContext(ctx, opts)
	if utilnet.IsConnectionRefused(err) {
		err = awaitServer(ctx, lw, opts, most)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// errAway has a reflector list anew.
var errAway = apierrors.NewResourceExpired("the API server was away: what it holds now may be what a backup held")

// awaitServer waits until a server that takes no connections does again, and returns errAway then. A reflector would go on
// where its watch had ended. If the cluster was restored from a backup meanwhile, it has gone back to earlier versions:
// what is older than the watch's isn't sent, and the cache would show for good what is no more. (A watch that fails
// otherwise is followed by a list anyway.)
func awaitServer(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions, most time.Duration) error {
	pause := wait.Backoff{Duration: min(FirstPause/2, most), Factor: 2, Jitter: 1, Steps: 20, Cap: most}
	for {
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
			return ctx.Err()
		}
		w, err := lw.WatchWithContext(ctx, opts)
		if err == nil {
			w.Stop()
			return errAway
		}
		if !utilnet.IsConnectionRefused(err) {
			return err
		}
	}
}

// sifted are the items of a list that belong to the shard, transformed, and how many there were with the others.
type sifted struct {
	kept    []runtime.Object
	arrived int64
}

// sift drops the items of a list that don't belong.
func (f *filter) sift(list runtime.Object) (sifted, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return sifted{}, fmt.Errorf("reading the items of a %T: %w", list, err)
	}
	result := sifted{kept: items[:0], arrived: int64(len(items))}
	for _, item := range items {
		if !f.belongs(item) {
			continue
		}
		if f.transform != nil {
			made, err := f.transform(item)
			if err != nil {
				return sifted{}, fmt.Errorf("transforming a %T: %w", item, err)
			}
			if object, ok := made.(runtime.Object); ok {
				item = object
			}
		}
		result.kept = append(result.kept, item)
	}
	return result, nil
}

// pass decides on one watch event; bookmarks and errors always pass.
func (f *filter) pass(e watch.Event) (watch.Event, bool) {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		return e, f.belongs(e.Object)
	}
	return e, true
}

// sieve is a watch that lets some events pass. Unlike watch.Filter it ends when it is stopped while nobody takes its
// events any more: a reflector that is stopped does just that, and each time a goroutine with all it holds would stay.
type sieve struct {
	inner   watch.Interface
	pass    func(watch.Event) (watch.Event, bool)
	events  chan watch.Event
	stopped chan struct{}
	stop    func() // closes stopped, once
}

func newSieve(inner watch.Interface, pass func(watch.Event) (watch.Event, bool)) *sieve {
	s := &sieve{inner: inner, pass: pass, events: make(chan watch.Event), stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	go s.run() // as every watch: its goroutine ends with Stop or with the inner watch
	return s
}

func (s *sieve) ResultChan() <-chan watch.Event { return s.events }

func (s *sieve) Stop() {
	s.stop()
	s.inner.Stop()
}

func (s *sieve) run() {
	defer close(s.events)
	for e := range s.inner.ResultChan() {
		e, keep := s.pass(e)
		if !keep {
			continue
		}
		select {
		case s.events <- e:
		case <-s.stopped:
			return
		}
	}
}

func (f *filter) belongs(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	if err != nil {
		return true // not an object: let the reflector complain
	}
	if f.keep(m) {
		f.traffic.Kept.Add(1)
		return true
	}
	f.traffic.Discarded.Add(1)
	return false
}
