package engage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Asked has what came of a context's requests, for each cluster by itself: a reconcile may work in several. It is safe
// for concurrent use.
type Asked struct {
	// cluster and namespace are those of the key whose requests these are; nil if they aren't those of a key.
	cluster   *Breaker
	namespace string

	mu sync.Mutex
	by []askedBy // clusters of which there is anything to tell
}

// askedBy is what came of the requests to one cluster.
type askedBy struct {
	cluster *Breaker // nil for home
	longest time.Duration
	lost    bool
	busy    bool
}

// Wait returns the longest time for which a cluster asked, by Retry-After, that its requests wait; 0 if it didn't. The
// cluster is the one that the breaker judges, nil for home.
func (a *Asked) Wait(cluster *Breaker) time.Duration { return a.about(cluster).longest }

// Lost reports whether the connection of a request to a cluster was refused or lost. A request that is merely answered
// too late may be the fault of its object.
func (a *Asked) Lost(cluster *Breaker) bool { return a.about(cluster).lost }

// Busy reports whether a cluster, or a proxy before it, gave an answer that is busy by [IsBusy].
func (a *Asked) Busy(cluster *Breaker) bool { return a.about(cluster).busy }

func (a *Asked) about(cluster *Breaker) askedBy {
	if a == nil {
		return askedBy{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, by := range a.by {
		if by.cluster == cluster {
			return by
		}
	}
	return askedBy{}
}

// note records what came of a request to a cluster.
func (a *Asked) note(what askedBy) {
	if a == nil || what == (askedBy{cluster: what.cluster}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.by, func(by askedBy) bool { return by.cluster == what.cluster })
	if i < 0 {
		a.by = append(a.by, what)
		return
	}
	by := &a.by[i]
	by.longest, by.lost, by.busy = max(by.longest, what.longest), by.lost || what.lost, by.busy || what.busy
}

// askedKey is the key of an Asked in the context of the requests.
type askedKey struct{}

// askedOf returns the Asked of a request's context, nil if it has none.
func askedOf(ctx context.Context) *Asked {
	asked, _ := ctx.Value(askedKey{}).(*Asked)
	return asked
}

// Obeying returns a context for requests, and an Asked that will have what came of them.
func Obeying(ctx context.Context) (context.Context, *Asked) { return ObeyingFor(ctx, nil, "") }

// ObeyingFor is Obeying for what is done for a key of a cluster's namespace. What that cluster refuses counts for this
// namespace, wherever the request was sent: it is the key that is put off.
func ObeyingFor(ctx context.Context, cluster *Breaker, namespace string) (context.Context, *Asked) {
	asked := &Asked{cluster: cluster, namespace: namespace}
	return context.WithValue(ctx, askedKey{}, asked), asked
}

// AskedToWait returns for how long a cluster asked to wait in what the context belongs to, 0 if it didn't or if the
// context isn't one of [Obeying].
func AskedToWait(ctx context.Context, cluster *Breaker) time.Duration {
	return askedOf(ctx).Wait(cluster)
}

// Obedient is a transport of home that hands the API server's Retry-After to the sender of a request, by [Obeying].
// Without it, client-go would wait and try again by itself, and the sender couldn't decide when a write is repeated.
func Obedient(next http.RoundTripper) http.RoundTripper { return obedient{next} }

type obedient struct{ next http.RoundTripper }

func (o obedient) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.next.RoundTrip(req)
	if err == nil {
		tellRetryAfter(req.Context(), nil, res)
		res.Header.Del("Retry-After")
	}
	return res, err
}

// WrappedRoundTripper returns the inner transport, so that its idle connections can be closed.
func (o obedient) WrappedRoundTripper() http.RoundTripper { return o.next }

// longestSleep bounds how long a client waits by itself before it tries again.
const longestSleep = 5 * time.Second

// tellRetryAfter returns for how long an API server of a cluster, nil for home, asks to be left alone. If the request's
// context has an Asked, the answer is recorded there, and the time taken out of it: otherwise the client would wait by
// itself, ten times, and hold a worker. Without an Asked, the client waits, but for longestSleep at most.
func tellRetryAfter(ctx context.Context, of *Breaker, res *http.Response) time.Duration {
	wait := retryAfter(res)
	asked := askedOf(ctx)
	switch {
	case asked != nil:
		res.Header.Del("Retry-After")
		asked.note(askedBy{cluster: of, longest: wait, busy: IsBusy(res.StatusCode)})
	case wait == 0:
		res.Header.Del("Retry-After") // zero, or less: the client would try again at once, ten times
	case wait > longestSleep:
		if _, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil { // the client ignores a date
			res.Header.Set("Retry-After", strconv.Itoa(int(longestSleep.Seconds())))
		}
	}
	return wait
}

// IsBusy reports whether the code of an answer says that a server, or a proxy before it, can't serve the request at the
// moment. 504 doesn't: it may be the fault of an object, which an admission webhook takes too long for.
func IsBusy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway ||
		status == http.StatusServiceUnavailable
}

// retryAfter returns for how long an API server, or a proxy before it, asks to be left alone: in seconds or until a
// date, at most an hour; 0 if it doesn't.
func retryAfter(res *http.Response) time.Duration {
	text := res.Header.Get("Retry-After")
	if text == "" { // as in nearly all answers: don't try to read it
		return 0
	}
	wait := time.Duration(0)
	// A number that is too large for an int comes with the largest.
	if seconds, err := strconv.Atoi(text); err == nil || errors.Is(err, strconv.ErrRange) {
		wait = time.Duration(max(0, min(seconds, 3600))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		wait = time.Until(date)
	}
	return max(0, min(wait, time.Hour))
}
