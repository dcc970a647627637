package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
)

const (
	// atNamespace holds the Ats of the load.
	atNamespace = "default"
	// keepFinished is how long a finished At is kept in a long run: longer than any pause, and short enough to keep the
	// load small.
	keepFinished = 90
	// soonest is the shortest time from an At's creation to its due time.
	soonest = 5 * time.Second
	// createWithin bounds the creation of an At. An API server that restarts on a busy machine takes a minute and a half.
	createWithin = 5 * time.Minute
)

// madeAt is one At of the load.
type madeAt struct {
	cluster, name, uid string
	due                time.Time // its schedule, or its creation if that came later
	schedule           string
}

// load creates Ats at a fixed rate, however the fleet does.
type load struct {
	fleet *lab.Fleet
	rate  float64
	rand  *rand.Rand
	ttl   *int32 // seconds; nil keeps finished Ats for good

	wg   sync.WaitGroup
	mu   sync.Mutex // guards all below
	made []madeAt
	next int
	// ran is for how long Ats have been created.
	ran    time.Duration
	failed error // the first creation that failed for good
}

// run creates Ats until the context ends, and returns when every creation has been answered.
func (l *load) run(ctx context.Context) {
	began := time.Now()
	for i := 0; ; i++ {
		intended := began.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(intended)):
		case <-ctx.Done():
			l.mu.Lock()
			l.ran += time.Since(began)
			l.mu.Unlock()
			l.wg.Wait()
			return
		}
		cluster := l.fleet.Workloads()[i%len(l.fleet.Workloads())]
		schedule := time.Now()
		if l.rand.IntN(2) == 1 {
			schedule = schedule.Add(time.Duration(l.rand.Int64N(int64(soonest))))
		}
		l.mu.Lock()
		l.next++
		name := fmt.Sprintf("at-%06d", l.next)
		l.mu.Unlock()
		l.wg.Go(func() { l.create(context.WithoutCancel(ctx), cluster, name, schedule) })
	}
}

// persist repeats what fails, with pauses that double up to 4 s, until it succeeds or the time is over.
func persist(ctx context.Context, within, pause time.Duration, try func(context.Context) error) error {
	for end := time.Now().Add(within); ; pause = min(2*pause, 4*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		cancel()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(pause) // hundreds of creations wait here while an API server is down
	}
}

// create creates one At. That may take long: an API server may be down.
func (l *load) create(ctx context.Context, cluster, name string, schedule time.Time) {
	at := &cnatv1alpha1.At{}
	at.Namespace, at.Name = atNamespace, name
	at.Spec = cnatv1alpha1.AtSpec{Schedule: schedule.UTC().Format(time.RFC3339Nano), Command: "true"}
	at.Spec.TTLSecondsAfterFinished = l.ttl
	err := persist(ctx, createWithin, 500*time.Millisecond, func(ctx context.Context) error {
		at.ResourceVersion = ""
		err := l.fleet.Client(cluster).Create(ctx, at)
		if apierrors.IsAlreadyExists(err) {
			err = l.fleet.Client(cluster).Get(ctx, client.ObjectKeyFromObject(at), at)
		}
		return err
	})
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failed == nil {
			l.failed = fmt.Errorf("creating At %s in cluster %s: not within %v: %w", name, cluster, createWithin, err)
		}
		return
	}
	due := schedule
	if now := time.Now(); now.After(due) {
		due = now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, madeAt{cluster: cluster, name: name, uid: string(at.UID), due: due,
		schedule: at.Spec.Schedule})
}

// least is how many Ats must have been served: half of what the rate makes in the time. Without it, a run without
// Ats would pass.
func (l *load) least() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.rate * l.ran.Seconds() / 2)
}

func (l *load) all() []madeAt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.made)
}

// facts returns what the witness has to know about the load.
func (l *load) facts() witness.Facts {
	var facts witness.Facts
	for _, m := range l.all() {
		facts.Ats = append(facts.Ats, witness.At{Cluster: m.cluster, Namespace: atNamespace, Name: m.name, UID: m.uid,
			Schedule: m.schedule})
	}
	return facts
}

// clear deletes all Ats of the load, and their Pods, and waits until they are gone.
func (l *load) clear(ctx context.Context) error {
	for _, cluster := range l.fleet.Workloads() {
		c := l.fleet.Client(cluster)
		for _, kind := range []client.Object{&cnatv1alpha1.At{}, &corev1.Pod{}} {
			if err := c.DeleteAllOf(ctx, kind, client.InNamespace(atNamespace), client.GracePeriodSeconds(0)); err != nil {
				return fmt.Errorf("deleting what is finished in %s: %w", cluster, err)
			}
		}
		if err := lab.Eventually(ctx, restWithin, func() error {
			left := &corev1.PodList{}
			err := c.List(ctx, left, client.InNamespace(atNamespace), client.Limit(1))
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%s is left", left.Items[0].Name)
			}
			return err
		}); err != nil {
			return fmt.Errorf("deleting what is finished in %s: %w", cluster, err)
		}
	}
	return nil
}

// unfinished counts the Ats of the load that aren't DONE, and names one.
func (l *load) unfinished(ctx context.Context) (left int, err error) {
	var example string
	for _, cluster := range l.fleet.Workloads() {
		list := &cnatv1alpha1.AtList{}
		if err := l.fleet.Client(cluster).List(ctx, list, client.InNamespace(atNamespace)); err != nil {
			return 0, fmt.Errorf("listing the Ats of %s: %w", cluster, err)
		}
		for _, at := range list.Items {
			if at.Status.Phase != cnatv1alpha1.AtDone {
				left++
				example = fmt.Sprintf("%s/%s is %s (schedule %s, conditions %v)", cluster, at.Name, at.Status.Phase,
					at.Spec.Schedule, at.Status.Conditions)
			}
		}
	}
	if left > 0 {
		return left, fmt.Errorf("%d Ats aren't DONE, for one %s", left, example)
	}
	return 0, nil
}
