package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// startAll starts the first replicas and waits until they share the shards.
func (r *run) startAll(ctx context.Context) error {
	defer r.crowd(time.Now())
	for i := range r.replicas {
		if _, err := r.fleet.StartReplica(fmt.Sprintf("r%d", i+1), r.flags...); err != nil {
			return err
		}
	}
	return r.fleet.AwaitSettled(ctx, settleWithin)
}

func (r *run) over(ctx context.Context) bool {
	return ctx.Err() != nil || time.Now().After(r.deadline)
}

// calmly runs something during which only one thing is done at a time.
func (r *run) calmly(do func()) {
	began := time.Now()
	r.mu.Lock()
	r.calm = true
	r.mu.Unlock()
	do()
	r.mu.Lock()
	r.calm = false
	r.calms = append(r.calms, window{began, time.Now()})
	r.mu.Unlock()
}

const (
	// calmPause is the time between two things in a calm scenario.
	calmPause = 3 * time.Second
	// calmTail is the part of that time that belongs to the previous thing.
	calmTail = time.Second
)

// runCalm does one thing at a time to one process.
func (r *run) runCalm(ctx context.Context) {
	endings := []ending{r.kill, r.exit, r.pause, r.killCoordinator, r.exit}
	made := 0
	for made < r.settings.calm && !r.over(ctx) {
		made += r.oneThing(ctx, endings[made%len(endings)])
	}
	r.reach("faults in calm", r.settings.calm, made)
}

// oneThing does something to a process and waits until everything is at rest, with one replica less if it ended.
// Starting it again is another thing, as in a cluster: the cost of a start (on one machine mostly CPU, which the API
// servers lack then) mustn't be mistaken for that of the ending. It returns how many things took effect: 0 if there was
// no process to do one to.
func (r *run) oneThing(ctx context.Context, end ending) (done int) {
	before := r.done()
	down := end(ctx)
	done = r.done() - before
	r.atRest(ctx)
	if down == "" || ctx.Err() != nil {
		return done
	}
	f := fault{Kind: started, Victim: down, Sign: "new incarnations", Start: time.Now()}
	r.startAnew(ctx, &f)
	r.note(ctx, f)
	r.atRest(ctx)
	return done
}

// atRest waits until everything is at rest, which ends the last thing. Nothing happens for a while after that.
func (r *run) atRest(ctx context.Context) {
	r.settle(ctx, settleWithin)
	r.mu.Lock()
	if n := len(r.faults); n > 0 {
		r.faults[n-1].End = time.Now()
	}
	r.mu.Unlock()
	sleep(ctx, calmPause)
}

// networkLanes is how many network faults there are at a time in a storm, beside one of a process.
const networkLanes = 2

// runStorm does things to processes and to the network at the same time, until there were enough of them.
func (r *run) runStorm(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, r.deadline)
	defer cancel()
	enough := func() bool { return ctx.Err() != nil || r.done() >= r.settings.faults }
	processes := []func(context.Context){
		r.andStart(r.kill), r.andStart(r.exit), r.andStart(r.pause), r.andStart(r.kill), r.andStart(r.killCoordinator),
		r.andStart(r.exit), r.roll, r.hog,
		func(ctx context.Context) { r.restartAPIServer(ctx, lab.Home) },
		func(ctx context.Context) { r.restartAPIServer(ctx, r.workload()) },
		r.switchFiltering,
	}
	network := r.networkFaults()
	var lanes sync.WaitGroup
	lanes.Go(func() { r.lane(ctx, processes, enough) })
	for range networkLanes {
		lanes.Go(func() { r.lane(ctx, network, enough) })
	}
	lanes.Wait()
	r.reach("faults by the end of the storm", r.settings.faults, r.done())
}

// reach records how much of a quota was reached.
func (r *run) reach(what string, want, got int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quotas = append(r.quotas, quota{what, want, got})
}

// lane does each thing once, in an order that the seed decides, and then again in another order.
func (r *run) lane(ctx context.Context, things []func(context.Context), enough func() bool) {
	for {
		r.mu.Lock()
		order := r.rand.Perm(len(things))
		r.mu.Unlock()
		for _, i := range order {
			if enough() {
				return
			}
			things[i](ctx)
			sleep(ctx, r.between(200*time.Millisecond, time.Second))
		}
	}
}

// roundWithin bounds the wait for one round of pins. The next round goes on with what is left.
const roundWithin = 15 * time.Second

// runMoves moves shards around by pinning them to replicas, until the replicas' logs show enough planned moves.
func (r *run) runMoves(ctx context.Context) {
	r.settle(ctx, settleWithin)
	before, err := r.planned() // a storm causes planned moves, too
	r.blame(err)
	for !r.over(ctx) {
		n, err := r.planned()
		n -= before
		r.blame(err)
		if err != nil || n >= r.settings.moves {
			break
		}
		r.say("%d of %d planned moves", n, r.settings.moves)
		r.pinAll(ctx)
		// A plan that changes before it was carried out moves nothing.
		sleep(ctx, time.Second)
		_ = lab.Eventually(ctx, roundWithin, func() error { return r.fleet.Inactive(ctx) })
	}
	n, err := r.planned()
	r.blame(err)
	r.reach("planned moves", r.settings.moves, n-before)
	r.blame(r.fleet.Unpin(ctx))
	r.settle(ctx, settleWithin)
}

// pinAll pins each shard to a replica chosen at random.
func (r *run) pinAll(ctx context.Context) {
	r.blame(r.fleet.Pin(ctx, "", func(int) string {
		if v := r.victim(); v != nil {
			return v.Name
		}
		return ""
	}))
}

// planned counts the planned moves in the replicas' logs.
func (r *run) planned() (int, error) {
	lines, err := lab.Activations(r.fleet.Replicas())
	n := 0
	for _, l := range lines {
		if l.Kind == protocol.Planned {
			n++
		}
	}
	return n, err
}
