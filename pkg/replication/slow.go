package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// A target's admission webhooks may take 30 s for a write. Few do, and what a reconcile waits for in one target holds
// up the source's other copies. So a write gets little time at first, and more once one has taken too long.

// write writes in the target. If the time is over first, the target's admission webhooks may need more.
func (c *copyActor) write(ctx context.Context, do func(context.Context) error) error {
	err := do(ctx)
	own := errors.Is(err, kubeconfig.ErrLimited) || errors.Is(err, errHome) // says nothing about the target
	if err != nil && ctx.Err() != nil && noAnswer(err) && !own {
		c.note(func(n *copyNote) { n.Slow = true })
	}
	return err
}

const (
	// longestWebhook is how long Kubernetes lets an admission webhook take at most, and slowTimeout bounds a slow write.
	longestWebhook, slowTimeout = 30 * time.Second, 35 * time.Second
	// slowWrites bounds the slow writes in one target at a time, since each holds a worker and the source's other copies.
	slowWrites = 2
	// mostSlow bounds the slow writes of one copy in one reconcile: its namespace, the copy, and once more after a
	// conflict.
	mostSlow = 3
)

// errUnanswered says that a write wasn't answered in the longest time that webhooks may take.
var errUnanswered = errors.New("a write takes longer than 30 s: see the cluster's admission webhooks")

// errBusy says that the target's slow writes must end first.
var errBusy = errors.New("its writes take long")

// slowWrite writes in a target in which an earlier write took too long.
func (c *copyActor) slowWrite(ctx context.Context, do func(context.Context) error) error {
	if !c.r.slow.enter(c.target) {
		return errBusy
	}
	defer c.r.slow.leave(c.target)
	ctx, cancel := context.WithTimeout(ctx, slowTimeout)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	took := time.Since(began)
	switch {
	case err == nil && took < c.r.config.TargetTimeout:
		c.note(func(n *copyNote) { n.Slow = false })
	case err != nil && noAnswer(err) && apierror.Code(err) != http.StatusInternalServerError && took >= longestWebhook:
		err = fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return err
}

// turns counts what is under way in each target. It is safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	taken map[multicluster.ClusterName]int
}

func (t *turns) enter(target multicluster.ClusterName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[target] >= slowWrites {
		return false
	}
	if t.taken == nil {
		t.taken = map[multicluster.ClusterName]int{}
	}
	t.taken[target]++
	return true
}

func (t *turns) leave(target multicluster.ClusterName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[target]--; t.taken[target] == 0 {
		delete(t.taken, target)
	}
}
