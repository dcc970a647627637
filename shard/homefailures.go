package shard

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/internal/cas"
)

// homeFailures logs failed requests to the home cluster: one line a minute for each cause, with the number of failures
// like it that were left out. All of these requests are tried again. It is safe for concurrent use.
type homeFailures struct {
	log    logr.Logger
	budget *budget.Budget
}

func newHomeFailures(log logr.Logger) *homeFailures {
	return &homeFailures{log: log, budget: budget.OnceAMinute()}
}

// report logs a write, read or watch that failed.
func (f *homeFailures) report(what string, err error) {
	cause := cas.Cause(err)
	left, ok := f.budget.Take(cause.String(), time.Now())
	if !ok {
		return
	}
	log := f.log
	if left > 0 {
		log = log.WithValues("leftOut", left)
	}
	log.Info("request to the home cluster failed; trying again", "cause", cause.String(), "what", what,
		"error", err.Error())
}
