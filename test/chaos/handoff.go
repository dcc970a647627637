package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	benchload "github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/scenario"
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
	loaded := func(do func()) {
		beside(ctx, r.load.run, func() {
			sleep(ctx, 3*time.Second)
			r.calmly(do)
		})
	}
	crashes := max(2, r.handoffs/8)
	r.around(ctx, func() {
		loaded(func() {
			moved := 0
			for ; moved < r.handoffs && !r.over(ctx); moved++ {
				r.blame(r.moveOne(ctx, moved))
			}
			r.reach("planned moves, one at a time", r.handoffs, moved)
			r.blame(r.fleet.Unpin(ctx))
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
	})
	return nil
}

// addBallast fills the shards with Ats that are due tomorrow: they are in every cache and cost nothing else.
func (r *run) addBallast(ctx context.Context) error {
	began := time.Now()
	workloads := r.fleet.Workloads()
	ballast := &benchload.Generator{Namespace: ballastSpace, Load: scenario.Load{
		Preload: len(workloads) * r.ballast * r.shards, Clients: ballastWorkers,
	}}
	for _, name := range workloads {
		if err := lab.AddNamespace(ctx, r.fleet.Client(name), ballastSpace); err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		cluster, err := benchload.NewCluster(name, r.fleet.Planes.Cluster(name).RESTConfig())
		if err != nil {
			return err
		}
		ballast.Clusters = append(ballast.Clusters, cluster)
	}
	if err := ballast.Preload(ctx, false); err != nil {
		return fmt.Errorf("making ballast: %w", err)
	}
	r.say("%d Ats of ballast in %v", ballast.Load.Preload, time.Since(began).Round(time.Second))
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
	if err := r.fleet.PinShard(ctx, s, to.Name); err != nil {
		return err
	}
	err = lab.Eventually(ctx, min(30*time.Second, r.patience), func() error {
		lines, err := lab.Activations([]*lab.Replica{to})
		if err == nil && lab.FirstActive(lines, lab.ShardName(s), s.Status.Epoch+1, time.Time{}) == nil {
			err = fmt.Errorf("shard %s isn't active at %s", lab.ShardName(s), to.Name)
		}
		return err
	})
	sleep(ctx, 300*time.Millisecond)
	return err
}
