package engage

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Asked is for how long API servers asked, by Retry-After, that the sender of a context's requests wait. It is safe for
// concurrent use.
type Asked struct{ longest atomic.Int64 }

// Wait is the longest that was asked for, 0 if nothing was.
func (a *Asked) Wait() time.Duration { return time.Duration(a.longest.Load()) }

// askedKey is that of an Asked in the context of the requests.
type askedKey struct{}

// Obeying returns a context for requests, and where it will be said how long their API servers asked to wait.
func Obeying(ctx context.Context) (context.Context, *Asked) {
	asked := &Asked{}
	return context.WithValue(ctx, askedKey{}, asked), asked
}

// Obedient hands the API server's Retry-After to whoever sent the request, by [Obeying]. Without, the client would wait
// and try again by itself, behind the back of what decides when a write may be repeated.
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

// longestSleep bounds for how long a client waits by itself before it tries again.
const longestSleep = 5 * time.Second

// tellRetryAfter returns for how long an API server asks to be left alone. If the request's context has room for it, it
// is noted there and taken out of the answer: the client would wait by itself, ten times, in a worker that others wait
// for. Without, the client waits, but not for minutes.
func tellRetryAfter(ctx context.Context, res *http.Response) time.Duration {
	wait := retryAfter(res)
	asked, _ := ctx.Value(askedKey{}).(*Asked)
	switch {
	case asked != nil:
		res.Header.Del("Retry-After")
		for last := asked.longest.Load(); int64(wait) > last && !asked.longest.CompareAndSwap(last, int64(wait)); {
			last = asked.longest.Load()
		}
	case wait > longestSleep:
		if _, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil { // the client takes no notice of a date
			res.Header.Set("Retry-After", strconv.Itoa(int(longestSleep.Seconds())))
		}
	}
	return wait
}

// retryAfter is for how long an API server, or what is in front of it, asks to be left alone: in seconds or until a
// date, at most an hour. It is 0 if it doesn't.
func retryAfter(res *http.Response) time.Duration {
	text := res.Header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.Atoi(text); err == nil {
		wait = time.Duration(max(0, min(seconds, 3600))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		wait = time.Until(date)
	}
	return max(0, min(wait, time.Hour))
}
