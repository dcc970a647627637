package at

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// answers is a reconciler that gives one answer after the other, the last one for
// ever, and notes when it was asked.
type answers struct {
	start   time.Time
	results []ctrl.Result
	errs    []error
	asked   []time.Duration
}

func (a *answers) Reconcile(context.Context, mcreconcile.Request) (ctrl.Result, error) {
	n := min(len(a.asked), len(a.results)-1)
	a.asked = append(a.asked, time.Since(a.start))
	return a.results[n], a.errs[n]
}

// askedWithin runs a real controller with the rate limiter of this package, puts
// one key into its queue, and says when the reconciler was asked.
func askedWithin(t *testing.T, span time.Duration, priorityQueue bool, a *answers) []time.Duration {
	t.Helper()
	a.start = time.Now()
	c, err := controller.NewTypedUnmanaged("queue-test", controller.TypedOptions[mcreconcile.Request]{
		Reconciler:         reconcile.TypedReconciler[mcreconcile.Request](a),
		RateLimiter:        NewRateLimiter(),
		UsePriorityQueue:   new(priorityQueue),
		SkipNameValidation: new(true),
		Logger:             logr.Discard(),
	})
	must.Succeed(t, err)
	enqueue := func(_ context.Context, queue workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
		queue.Add(testRequest)
		return nil
	}
	must.Succeed(t, c.Watch(source.TypedFunc[mcreconcile.Request](enqueue)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	time.Sleep(span)
	synctest.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the controller ended with %v", err)
	}
	return a.asked
}

func TestTheFiveMeaningsOfAResult(t *testing.T) {
	failed := errors.New("failed")
	wait := ctrl.Result{RequeueAfter: 90 * time.Second}
	for _, c := range []struct {
		name    string
		results []ctrl.Result
		errs    []error
		want    []time.Duration
	}{
		{name: "done is not asked again", results: []ctrl.Result{{}}, errs: []error{nil}, want: []time.Duration{0}},
		{name: "an error is retried after 1 s, doubling up to 5 min", results: []ctrl.Result{{}}, errs: []error{failed},
			want: []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second,
				63 * time.Second, 127 * time.Second, 255 * time.Second, 511 * time.Second, 811 * time.Second, 1111 * time.Second}},
		{name: "requeue after is asked again exactly then, not more slowly each time", results: []ctrl.Result{wait},
			errs: []error{nil},
			want: []time.Duration{0, 90 * time.Second, 180 * time.Second, 270 * time.Second, 360 * time.Second,
				450 * time.Second, 540 * time.Second, 630 * time.Second, 720 * time.Second, 810 * time.Second, 900 * time.Second,
				990 * time.Second, 1080 * time.Second, 1170 * time.Second}},
		{name: "requeue is retried as an error is", results: []ctrl.Result{retryLater, retryLater, retryLater, {}},
			errs: []error{nil, nil, nil, nil}, want: []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second}},
		{name: "an error wins over requeue after", results: []ctrl.Result{wait, wait, {}},
			errs: []error{failed, failed, nil}, want: []time.Duration{0, 1 * time.Second, 3 * time.Second}},
		{name: "success starts the backoff anew", results: []ctrl.Result{{}, {}, wait, {}, {}},
			errs: []error{failed, failed, nil, failed, nil},
			want: []time.Duration{0, 1 * time.Second, 3 * time.Second, 93 * time.Second, 94 * time.Second}},
		{name: "a terminal error is not retried", results: []ctrl.Result{{}}, errs: []error{reconcile.TerminalError(failed)},
			want: []time.Duration{0}},
	} {
		for queue, priority := range map[string]bool{"priority queue": true, "plain queue": false} {
			bubble.Run(t, c.name+" ("+queue+")", func(t *testing.T) {
				got := askedWithin(t, 20*time.Minute, priority, &answers{results: c.results, errs: c.errs})
				expect.Equal(t, "asked at", c.want, got)
			})
		}
	}
}

func TestEachKeyHasItsOwnBackoff(t *testing.T) {
	limiter := NewRateLimiter()
	other := testRequest
	other.ClusterName = "east"
	for range 100 {
		limiter.When(testRequest)
	}
	if got := limiter.When(other); got != time.Second {
		t.Errorf("the first failure in another cluster waits %s, want 1s", got)
	}
	if got := limiter.When(testRequest); got != 5*time.Minute {
		t.Errorf("the 101st failure waits %s, want 5m", got)
	}
}
