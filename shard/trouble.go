package shard

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/internal/cas"
)

// trouble tells of what goes wrong at the home cluster: one line a minute for each cause, which says how many more
// there were like it. All of it is tried again. It is safe for concurrent use.
type trouble struct {
	log    logr.Logger
	budget *budget.Budget
}

func newTrouble(log logr.Logger) *trouble {
	return &trouble{log: log, budget: budget.New(budget.Config{Burst: 1, Every: time.Minute, PerSecond: 1})}
}

// tell logs a write, read or watch that failed.
func (t *trouble) tell(what string, err error) {
	cause := cas.Cause(err)
	left, ok := t.budget.Take(cause.String(), time.Now())
	if !ok {
		return
	}
	log := t.log
	if left > 0 {
		log = log.WithValues("moreLikeIt", left)
	}
	log.Info("request to the home cluster failed; trying again", "cause", cause.String(), "what", what,
		"error", err.Error())
}

// askedToWait is where a request's context holds how long the API server asked to wait.
type askedToWait struct{}

// obedient hands the API server's Retry-After to whoever sent the request. Without, the client would wait and try again
// by itself, behind the back of what decides when a write may be repeated.
type obedient struct{ next http.RoundTripper }

func (o obedient) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.next.RoundTrip(req)
	if err != nil {
		return res, err
	}
	if text := res.Header.Get("Retry-After"); text != "" {
		res.Header.Del("Retry-After")
		wait, mine := req.Context().Value(askedToWait{}).(*time.Duration)
		if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 && mine {
			*wait = time.Duration(min(seconds, 3600)) * time.Second
		}
	}
	return res, nil
}

// obeying returns a context for one request, and where it will be said how long the API server asked to wait.
func obeying(ctx context.Context) (context.Context, *time.Duration) {
	wait := new(time.Duration)
	return context.WithValue(ctx, askedToWait{}, wait), wait
}
