package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
)

const (
	// handoffShards is how many shards each cluster has in this scenario: few, so that each can be large.
	handoffShards = 4
	// handoffReplicas are few too, so that each holds several shards.
	handoffReplicas = 3
	ballastSpace    = "ballast"
	ballastWorkers  = 24
)

// runHandoff measures handoffs of large shards under load: planned ones one at a time, clean exits, and crashes of
// whole replicas. Every other crash hits the coordinator.
func (r *run) runHandoff(ctx context.Context) error {
	r.replicas = handoffReplicas
	if err := r.addBallast(ctx); err != nil {
		return err
	}
	if err := r.startAll(ctx); err != nil {
		return err
	}
	r.say("%d replicas share %d shards of about %d objects", r.replicas, 2*r.shards, r.ballast)
	background, stop := context.WithCancel(ctx)
	var side sync.WaitGroup
	side.Go(func() { r.supervise(background) })
	loaded := func(do func()) {
		under, ease := context.WithCancel(background)
		var load sync.WaitGroup
		load.Go(func() { r.load.run(under) })
		sleep(ctx, 3*time.Second)
		r.calmly(do)
		ease()
		load.Wait()
	}
	crashes := max(2, r.handoffs/8)
	loaded(func() {
		moved := 0
		for ; moved < r.handoffs && !r.over(ctx); moved++ {
			r.blame(r.moveOne(ctx, moved))
		}
		r.reach("planned moves, one at a time", r.handoffs, moved)
		r.blame(r.fleet.Pin(ctx, "", func(int) string { return "" }))
		r.settle(ctx, settleWithin)
		r.say("%d planned moves", moved)
		exits, left := max(1, r.handoffs/10), 0
		for left < exits && !r.over(ctx) {
			left += r.oneThing(ctx, r.exit)
		}
		r.reach("clean exits", exits, left)
	})
	// The Ats that are DONE stay: a new holder lists only what is left to do.
	r.blame(r.catchUp(ctx))
	r.settle(ctx, settleWithin)
	loaded(func() {
		crashed := 0
		for kills := []ending{r.kill, r.killCoordinator}; crashed < crashes && !r.over(ctx); {
			crashed += r.oneThing(ctx, kills[crashed%2])
		}
		r.reach("crashes", crashes, crashed)
	})
	stop()
	side.Wait()
	r.rest(ctx)
	if ctx.Err() != nil {
		return nil
	}
	r.conclude(ctx)
	return nil
}

// addBallast fills the shards with Ats that are due in years: they are in every cache and cost nothing else.
func (r *run) addBallast(ctx context.Context) error {
	began := time.Now()
	due := time.Now().AddDate(5, 0, 0).UTC().Format(time.RFC3339)
	for _, cluster := range r.fleet.Workloads() {
		space := &corev1.Namespace{}
		space.Name = ballastSpace
		if err := r.fleet.Client(cluster).Create(ctx, space); err != nil {
			return fmt.Errorf("making the ballast's namespace in %s: %w", cluster, err)
		}
		numbers := make(chan int)
		errs := make([]error, ballastWorkers)
		var workers sync.WaitGroup
		for w := range ballastWorkers {
			workers.Go(func() {
				for n := range numbers {
					at := &cnatv1alpha1.At{Spec: cnatv1alpha1.AtSpec{Schedule: due, Command: "true"}}
					at.Namespace, at.Name = ballastSpace, fmt.Sprintf("ballast-%06d", n)
					errs[w] = errors.Join(errs[w], r.fleet.Client(cluster).Create(ctx, at))
				}
			})
		}
		for n := range r.ballast * r.shards {
			numbers <- n
		}
		close(numbers)
		workers.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("making ballast in %s: %w", cluster, err)
		}
	}
	r.say("%d Ats of ballast in %v", 2*r.ballast*r.shards, time.Since(began).Round(time.Second))
	return nil
}

// moveOne pins the i-th shard (modulo their number) to a random replica that doesn't hold it. It waits until that
// replica logs the shard's activation at a higher epoch, for 30 seconds at most, and fails if it doesn't. The pin
// stays.
func (r *run) moveOne(ctx context.Context, i int) error {
	shards, err := r.fleet.Shards(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	s := &shards[i%len(shards)]
	others := slices.DeleteFunc(r.fleet.Alive(), func(p *lab.Replica) bool {
		return p.Name == lab.ReplicaOf(s.Status.Holder)
	})
	if len(others) == 0 {
		return fmt.Errorf("moving shard %s: its holder is the only replica that is alive", s.Name)
	}
	to := others[r.intN(len(others))]
	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{"tenure.dev/pin":%q}}}`, to.Name))
	if err := r.fleet.Client(lab.Home).Patch(ctx, s, patch); err != nil {
		return fmt.Errorf("pinning shard %s: %w", s.Name, err)
	}
	name := lab.ShardName(s)
	err = lab.Eventually(ctx, min(30*time.Second, r.patience), func() error {
		lines, err := to.Log.Lines()
		if err != nil {
			return err
		}
		for _, l := range lines {
			if l.Activation() && l.Shard == name && l.Epoch > s.Status.Epoch {
				return nil
			}
		}
		return fmt.Errorf("shard %s isn't active at %s", name, to.Name)
	})
	sleep(ctx, 300*time.Millisecond)
	return err
}
