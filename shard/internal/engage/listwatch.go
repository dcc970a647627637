package engage

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/shard/internal/cas"
)

// listed makes an informer fill its cache by one list, as before WatchList. WatchList sends each object as a watch
// event of its own. That takes longer, above all on a busy machine, and a new holder waits until a shard is warm. A
// shard lists its part of the kind only, in pages ([filter.list]).
type listed struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported tells client-go's reflectors to list.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// wrap narrows a list-watch to the filter. Its lists have only objects that belong, transformed. Objects that a watch
// sends still have to go through [filter.take].
func (f *filter) wrap(inner toolscache.ListerWatcher) toolscache.ListerWatcher {
	lw, watched := toolscache.ToListerWatcherWithContext(inner), &streamHistory{}
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			watched.forget()
			list, err := f.list(ctx, lw, opts)
			if err != nil {
				f.fails(err)
			}
			if f.mayRefuse(err) {
				_ = sleep(ctx, wait.Jitter(forbiddenPause, 0.5)) // whether it ends early or not, the error counts
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.ShardSelector, opts.LabelSelector, opts.FieldSelector = f.shards.ofWatch(), f.labels, f.fields.ofWatch()
			w, err := watchServer(ctx, lw, opts, watched, LastPause, f.fails)
			for f.leavesOut(err, &opts) {
				w, err = watchServer(ctx, lw, opts, watched, LastPause, f.fails)
			}
			switch {
			case f.mayRefuse(err): // after a list that it allowed: the cache has objects, and isn't kept up to date
				f.fails(fmt.Errorf("it may be listed, but not watched: %v", err)) // not one that mayRefuse excuses
				_ = sleep(ctx, wait.Jitter(forbiddenPause, 0.5))                  // a list follows
			case err != nil:
				f.fails(err)
			default:
				f.failing.Store(nil)
			}
			return w, err
		},
	}}
}

// mayRefuse reports whether a list or a watch failed because the cluster forbids it, and need not allow it.
func (f *filter) mayRefuse(err error) bool {
	return f.optional && apierrors.IsForbidden(err) && !cas.ByProxy(err)
}

// forbiddenPause is how long a list or a watch is left alone that its cluster need not allow, and doesn't.
const forbiddenPause = 30 * time.Second

// listLost is after how long a list counts as lost: as one of a shard does.
const listLost = longestAnswer + listStallAfter

// Live returns a list-watch for a few objects. Its lists show what there is now, and it pauses for about pause, twice
// that at most, between two attempts while a server doesn't serve. So an informer isn't held up if the cluster was
// restored from a backup, didn't answer for long, or refused requests: otherwise it would insist on the version that it
// had, and pause for half a minute. (It still does if the server goes away and comes back five times in a few minutes.)
// A list that takes longer than listLost is tried again, too, since something between may have lost it. tell is called
// with the error of each failed list, and of each watch that is refused by 429. A watch that ended in any other way
// than streamHistory says may resume: a caller that must know of that has to check when a watch begins again.
func Live(inner toolscache.ListerWatcher, pause time.Duration, tell func(error)) toolscache.ListerWatcher {
	lw, watched := toolscache.ToListerWatcherWithContext(inner), &streamHistory{}
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			watched.forget()
			between := apart(pause)
			for {
				bounded, cancel := context.WithTimeout(ctx, listLost)
				list, err := lw.ListWithContext(bounded, opts)
				cancel()
				if err == nil {
					_, err = aboutList(list)
				}
				if err == nil || ctx.Err() != nil || !passes(err) {
					return list, err
				}
				tell(err)
				if err := sleep(ctx, between.Step()); err != nil {
					return nil, err
				}
			}
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return watchServer(ctx, lw, opts, watched, pause, tell)
		},
	}}
}

// passes reports whether the same request may succeed later: the server wasn't there, couldn't serve it, or doesn't
// know yet who may send it.
func passes(err error) bool {
	code := apierror.Code(err)
	return code == 0 || code >= http.StatusInternalServerError || code == http.StatusTooManyRequests ||
		code == http.StatusForbidden || code == http.StatusUnauthorized
}

// apart returns the backoff between attempts, which grows to most.
func apart(most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: min(FirstPause/2, most), Factor: 2, Jitter: 1, Steps: 20, Cap: most}
}

// sleep waits; it fails only with the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LiveInformer makes informers with a [Live] list-watch, in the form of cache.Options.NewInformer.
func LiveInformer(pause time.Duration, tell func(error)) func(toolscache.ListerWatcher, runtime.Object, time.Duration,
	toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(Live(lw, pause, tell), obj, resync, indexers)
	}
}

// watchServer begins a watch, after a pause if several in a row were short. If the last one was lost, it returns
// errAway: the server may have gone, and its cluster been restored, behind something that answers for it. If an attempt
// got no answer, it waits until the server answers, and returns errAway. If the server has too many requests (429), it
// tells so and tries again: a reflector would pause for up to half a minute.
func watchServer(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions, watched *streamHistory,
	most time.Duration, tell func(error)) (watch.Interface, error) {
	if watched.takeLost() {
		return nil, errAway
	}
	if err := sleep(ctx, watched.pause(most)); err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, streamHistoryKey{}, watched)
	w, made, err := attempt(ctx, lw, opts)
	for between := apart(most); apierrors.IsTooManyRequests(err) && !made.lost; w, made, err = attempt(ctx, lw, opts) {
		tell(err)
		if err := sleep(ctx, between.Step()); err != nil {
			return nil, err
		}
	}
	if !made.lost {
		if err == nil {
			watched.begins()
		}
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

// errAway makes a reflector list anew.
var errAway = apierrors.NewResourceExpired("the API server was away: what it holds now may be what a backup held")

// awaitServer waits until a server that doesn't answer does, whatever the answer is, and returns errAway. A reflector
// would otherwise resume where its watch had ended. If the cluster was restored from a backup meanwhile, it has gone
// back to earlier versions. A resumed watch sends nothing that is older than its own version, so the cache would show
// for good what no longer exists.
func awaitServer(ctx context.Context, lw toolscache.WatcherWithContext, opts metav1.ListOptions,
	most time.Duration) error {
	for between := apart(most); ; {
		if err := sleep(ctx, between.Step()); err != nil {
			return err
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

// attempts records the attempts that client-go makes, by itself, to begin one watch. If they fail in certain ways, it
// makes a few more. Then it goes on as if nothing had happened, or returns an empty watch and no error. So the
// transport records the result of each.
type attempts struct {
	lost bool // one got no answer, or a server error, perhaps from a proxy
	away bool // the last one got no answer
}

// cutsApart is the least time between two lists after streams that were cut. A proxy may cut each stream after half a
// minute, and a reflector's pauses before a list double, up to half a minute, unless they are two minutes apart.
const cutsApart = 2*time.Minute + 10*time.Second

// streamHistory is what a list-watch knows of the streams of its watches. It is safe for concurrent use.
type streamHistory struct {
	mu sync.Mutex // guards all below
	// heard reports whether anything has come since the last list. If nothing ever comes, silence proves nothing.
	heard bool
	// lost says that a list is due: a stream was cut, or was silent for too long, after something had come by it or by an
	// earlier one. A watch that is resumed from a later version than that of a restored cluster is silent from the
	// beginning.
	lost bool
	// owed says that a stream was cut soon after another one. The watch is resumed, and the list is due cutsApart after
	// the last that followed a cut.
	owed  bool
	cut   time.Time
	began time.Time // when the last watch did
	short int       // how many watches in a row were short, since the last list
}

// A watch that lasts less than shortWatch is short. A reflector makes no pause after one that brought something,
// however soon it ended.
const shortWatch = time.Second

// freeWatches is how many short watches in a row are followed by another one without a pause: a server that shuts down
// may end several, and so may changes of a CRD. firstWatchPause is the least pause after that; the pause doubles.
const freeWatches, firstWatchPause = 3, 25 * time.Millisecond

// begins is called when a watch begins.
func (h *streamHistory) begins() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Now()
}

// pause returns how long to wait before the next watch.
func (h *streamHistory) pause(most time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.began) >= shortWatch {
		h.short = 0
		return 0
	}
	if h.short++; h.short <= freeWatches {
		return 0
	}
	return wait.Jitter(min(firstWatchPause<<min(h.short-freeWatches-1, 10), most), 1)
}

// forget is called before each list, which shows what there is now.
func (h *streamHistory) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard, h.lost, h.owed, h.short = false, false, false, 0
}

// hears is called when something comes by a stream.
func (h *streamHistory) hears() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = true
}

// ended is called when a stream was cut, or, with final, when it isn't believed any more.
func (h *streamHistory) ended(final bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch now := time.Now(); {
	case !h.heard:
	case final, now.Sub(h.cut) >= cutsApart:
		h.lost, h.cut = true, now
	default:
		h.owed = true
	}
}

// takeLost reports whether a list is due, once.
func (h *streamHistory) takeLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.lost
	h.lost = false
	return lost
}

// due returns when the list that is owed is due; ok is false if none is.
func (h *streamHistory) due() (in time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.cut.Add(cutsApart)), h.owed
}

// streamHistoryKey is the key of a streamHistory in the context of a request to watch.
type streamHistoryKey struct{}

// historyOf returns the history of the list-watch that a request is for; ok is false if it is for none.
func historyOf(ctx context.Context) (_ *streamHistory, ok bool) {
	if h, ok := ctx.Value(streamHistoryKey{}).(*streamHistory); ok {
		return h, true
	}
	return &streamHistory{}, false
}

// attemptsKey is the key of attempts in the context of their requests.
type attemptsKey struct{}

// noteAttempt records the result of a request to watch.
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
	if utilnet.IsConnectionRefused(err) { // if another transport than Noting is used
		made.lost, made.away = true, true
	}
	if err != nil {
		return nil, *made, err
	}
	return w, *made, nil
}
