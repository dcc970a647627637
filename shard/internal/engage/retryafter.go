package engage

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Asked has what came of a context's requests: the longest time for which API servers asked, by Retry-After, that
// their sender waits, and whether connections were lost. It is safe for concurrent use.
type Asked struct {
	longest atomic.Int64
	lost    atomic.Bool
}

// Wait returns the longest time that was asked for, 0 if none was.
func (a *Asked) Wait() time.Duration { return time.Duration(a.longest.Load()) }

// Lost reports whether the connection of a request of a shard's client was refused or lost. A request that is merely
// answered too late may be the fault of its object.
func (a *Asked) Lost() bool { return a.lost.Load() }

// askedKey is the key of an Asked in the context of the requests.
type askedKey struct{}

// askedOf returns the Asked of a request's context, nil if it has none.
func askedOf(ctx context.Context) *Asked {
	asked, _ := ctx.Value(askedKey{}).(*Asked)
	return asked
}

// Obeying returns a context for requests, and an Asked that will have what came of them.
func Obeying(ctx context.Context) (context.Context, *Asked) {
	asked := &Asked{}
	return context.WithValue(ctx, askedKey{}, asked), asked
}

// Obedient is a transport that hands the API server's Retry-After to the sender of a request, by [Obeying]. Without
// it, client-go would wait and try again by itself, and the sender couldn't decide when a write is repeated.
func Obedient(next http.RoundTripper) http.RoundTripper { return obedient{next} }

type obedient struct{ next http.RoundTripper }

func (o obedient) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.next.RoundTrip(req)
	if err == nil {
		tellRetryAfter(req.Context(), res)
		res.Header.Del("Retry-After")
	}
	return res, err
}

// WrappedRoundTripper returns the inner transport, so that its idle connections can be closed.
func (o obedient) WrappedRoundTripper() http.RoundTripper { return o.next }

// longestSleep bounds how long a client waits by itself before it tries again.
const longestSleep = 5 * time.Second

// tellRetryAfter returns for how long an API server asks to be left alone. If the request's context has an Asked, the
// time is recorded there and taken out of the answer: otherwise the client would wait by itself, ten times, and hold
// a worker. Without an Asked, the client waits, but for longestSleep at most.
func tellRetryAfter(ctx context.Context, res *http.Response) time.Duration {
	wait := retryAfter(res)
	asked := askedOf(ctx)
	switch {
	case asked != nil:
		res.Header.Del("Retry-After")
		for last := asked.longest.Load(); int64(wait) > last && !asked.longest.CompareAndSwap(last, int64(wait)); {
			last = asked.longest.Load()
		}
	case wait == 0:
		res.Header.Del("Retry-After") // zero, or less: the client would try again at once, ten times
	case wait > longestSleep:
		if _, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil { // the client ignores a date
			res.Header.Set("Retry-After", strconv.Itoa(int(longestSleep.Seconds())))
		}
	}
	return wait
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
