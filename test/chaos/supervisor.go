package main

import (
	"context"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

// watchMachine records when this process didn't run for a second, or for a part of one on a machine that does other
// things too. Then replicas may not have run either.
func (r *run) watchMachine(ctx context.Context) {
	const every = 100 * time.Millisecond
	late := time.Second
	if r.lenient {
		late = 300 * time.Millisecond
	}
	for last := time.Now(); ctx.Err() == nil; {
		sleep(ctx, every)
		now := time.Now()
		if now.Sub(last) > every+late {
			r.mu.Lock()
			r.crowds = append(r.crowds, fault{Kind: stalled, Victim: "all", Start: last, End: now})
			r.mu.Unlock()
		}
		last = now
	}
}

// supervise restarts replicas that ended by themselves, as a kubelet would. If one ends while nothing is done to it, or
// in the untidy scenario, that is a bug of ours. In a storm a replica may find no home cluster when it starts, or give
// an incarnation up.
func (r *run) supervise(ctx context.Context) {
	seen := map[*lab.Replica]bool{}
	for ctx.Err() == nil {
		for _, replica := range r.processes() {
			err := replica.DiedByItself()
			if err == nil || seen[replica] {
				continue
			}
			seen[replica] = true
			r.mu.Lock()
			blamed := r.calm || r.staysUp
			r.deaths = append(r.deaths, replica.LogPath)
			r.mu.Unlock()
			if blamed {
				r.blame(err)
			}
			r.say("%v", err)
			sleep(ctx, time.Second)
			if ctx.Err() == nil {
				r.start(replica.Name)
			}
		}
		sleep(ctx, 300*time.Millisecond)
	}
}
