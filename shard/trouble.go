package shard

import (
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/internal/cas"
)

// trouble logs failed requests to the home cluster: one line a minute for each cause, with the number of failures
// like it that were left out. All of these requests are tried again. It is safe for concurrent use.
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
