package engage

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// listed is a list-watch that an informer fills its cache from with one list, as it did before WatchList. That sends
// each object as a watch event of its own, which takes longer, the more so on a busy machine, and warming a shard is
// what a new holder waits for. What a shard lists is a part of the kind, taken in pages ([filter.list]).
type listed struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go's reflectors ask.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// wrap narrows a list-watch to the filter: all that a list has belongs, and is transformed. What a watch sends is still
// to be taken, one by one.
func (f *filter) wrap(inner toolscache.ListerWatcher) toolscache.ListerWatcher {
	lw := toolscache.ToListerWatcherWithContext(inner)
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if err := f.traffic.lists.Enter(ctx, listsAtOnce); err != nil {
				return nil, err
			}
			defer f.traffic.lists.Leave()
			return f.list(ctx, lw, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.ShardSelector, opts.LabelSelector, opts.FieldSelector = f.shardSelector, f.labels, f.fields.ofWatch()
			return watchServer(ctx, lw, opts, LastPause)
		},
	}}
}

// Live is a list-watch of a few objects, whose lists show what there is now, and which pauses for no longer than that
// between two tries to reach a server. An informer that has it isn't held up where the cluster was restored from a
// backup, or didn't answer for long: it would else insist on the version that it had, and pause for half a minute. A
// watch whose connection was lost may go on all the same: whoever has to know asks when one begins anew.
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

// LiveInformer is an informer with a [Live] list-watch, in the form of cache.Options.NewInformer.
func LiveInformer(pause time.Duration) func(toolscache.ListerWatcher, runtime.Object, time.Duration,
	toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(Live(lw, pause), obj, resync, indexers)
	}
}

// Noting is a transport that tells a [Live] list-watch of all attempts that weren't answered. Without it, one that
// client-go repeats by itself is not noticed: behind a load balancer none is refused.
func Noting(base http.RoundTripper) http.RoundTripper { return &noting{base} }

type noting struct{ base http.RoundTripper }

func (n *noting) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := n.base.RoundTrip(req)
	if watches(req) && req.Context().Err() == nil {
		noteAttempt(req.Context(), res, err)
	}
	return res, err
}

// WrappedRoundTripper is the one below.
func (n *noting) WrappedRoundTripper() http.RoundTripper { return n.base }

// watchServer begins a watch. Where the server didn't answer an attempt, it waits until it does, and returns errAway.
func watchServer(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions,
	most time.Duration) (watch.Interface, error) {
	w, made, err := attempt(ctx, lw, opts)
	if !made.lost {
		return w, err
	}
	if w != nil {
		w.Stop()
	}
	if made.away {
		return nil, awaitServer(ctx, lw, opts, most)
	}
	return nil, errAway
}

// errAway has a reflector list anew.
var errAway = apierrors.NewResourceExpired("the API server was away: what it holds now may be what a backup held")

// awaitServer waits until a server that answers nothing does again, whatever it is, and returns errAway then. A
// reflector would go on where its watch had ended. If the cluster was restored from a backup meanwhile, it has gone
// back to earlier versions: what is older than the watch's isn't sent, and the cache would show for good what is no
// more.
func awaitServer(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions,
	most time.Duration) error {
	pause := wait.Backoff{Duration: min(FirstPause/2, most), Factor: 2, Jitter: 1, Steps: 20, Cap: most}
	for {
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
			return ctx.Err()
		}
		w, made, _ := attempt(ctx, lw, opts)
		if w != nil {
			w.Stop()
		}
		if !made.away {
			return errAway
		}
	}
}

// attempts are those that client-go makes, by itself, to begin one watch. If they fail in certain ways it makes a few
// more, and goes on as if nothing had been, or gives up with a watch that is empty and no error. So the transport notes
// what becomes of each.
type attempts struct {
	lost bool // one wasn't answered, or by what stands before the server
	away bool // the last wasn't answered
}

// attemptsKey is that of attempts in the context of their requests.
type attemptsKey struct{}

// noteAttempt notes what became of a request to watch.
func noteAttempt(ctx context.Context, res *http.Response, err error) {
	if a, _ := ctx.Value(attemptsKey{}).(*attempts); a != nil {
		a.away = err != nil
		a.lost = a.lost || a.away || res.StatusCode >= http.StatusInternalServerError
	}
}

// attempt tries to begin a watch.
func attempt(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions) (watch.Interface, attempts,
	error) {
	made := &attempts{}
	w, err := lw.WatchWithContext(context.WithValue(ctx, attemptsKey{}, made), opts)
	if utilnet.IsConnectionRefused(err) { // where the transport is another's
		made.lost, made.away = true, true
	}
	if err != nil {
		return nil, *made, err
	}
	return w, *made, nil
}
