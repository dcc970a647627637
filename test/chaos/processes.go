package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// settleWithin bounds the wait for the fleet to be at rest on a busy machine.
const settleWithin = 90 * time.Second

// An ending does something to a replica. If that ended the replica, it returns its name, so that it can be started
// again.
type ending func(context.Context) (down string)

// crash kills a replica and waits until its shards should be served again.
func (r *run) crash(ctx context.Context, victim *lab.Replica, kind string) (down string) {
	if victim == nil {
		return ""
	}
	f := fault{Kind: kind, Victim: victim.Name, Tenures: r.tenures(ctx, victim.Name)}
	f.Start = victim.Kill()
	sleep(ctx, r.lease+time.Second)
	r.note(f)
	return victim.Name
}

func (r *run) kill(ctx context.Context) (down string) { return r.crash(ctx, r.victim(), "SIGKILL") }

func (r *run) killCoordinator(ctx context.Context) (down string) {
	return r.crash(ctx, r.coordinator(ctx), "SIGKILL coordinator")
}

// exit asks a replica to leave.
func (r *run) exit(ctx context.Context) (down string) {
	v := r.victim()
	if v == nil {
		return ""
	}
	r.terminate(ctx, v, "SIGTERM")
	return v.Name
}

// andStart starts the ended replica again at once.
func (r *run) andStart(end ending) func(context.Context) {
	return func(ctx context.Context) {
		if down := end(ctx); down != "" {
			r.start(down)
		}
	}
}

func (r *run) terminate(ctx context.Context, v *lab.Replica, kind string) {
	f := fault{Kind: kind, Victim: v.Name, Tenures: r.tenures(ctx, v.Name)}
	f.Start = v.Terminate()
	err := v.Wait(min(40*time.Second, r.patience))
	r.mu.Lock()
	calm := r.calm
	r.mu.Unlock()
	if calm || errors.Is(err, lab.ErrStillRuns) { // with other faults at the same time, a replica may have to give up
		r.blame(err)
	}
	if !v.Ended() {
		v.Kill()
	}
	r.note(f)
}

// pause freezes a replica for three lease durations.
func (r *run) pause(ctx context.Context) (down string) {
	v := r.victim()
	if v == nil {
		return ""
	}
	f := fault{Kind: paused, Victim: v.Name, Tenures: r.tenures(ctx, v.Name), Start: time.Now()}
	v.Pause()
	sleep(ctx, 3*r.lease)
	v.Resume()
	r.note(f)
	return ""
}

// roll restarts all replicas in order, one at a time.
func (r *run) roll(ctx context.Context) {
	for _, v := range r.fleet.Alive() {
		r.terminate(ctx, v, "rolling restart")
		r.start(v.Name)
		sleep(ctx, time.Second)
	}
}

// restartAPIServer stops an API server and starts it again.
func (r *run) restartAPIServer(ctx context.Context, cluster string) {
	f := fault{Kind: "restart of the API server, " + role(cluster), Victim: cluster, Server: true, Start: time.Now()}
	if err := r.fleet.Planes.Cluster(cluster).RestartAPIServer(context.WithoutCancel(ctx), nil); err != nil {
		r.blame(fmt.Errorf("restarting the API server of %s: %w", cluster, err))
	}
	r.note(f)
}

func role(cluster string) string {
	if cluster == lab.Home {
		return "home"
	}
	return "workload"
}

func (r *run) workload() string {
	return r.fleet.Workloads()[r.intN(len(r.fleet.Workloads()))]
}

// switchFiltering switches server-side filtering off under live watches, and on again.
func (r *run) switchFiltering(ctx context.Context) {
	cluster := r.workload()
	const on, off = "ShardedListAndWatch=true", "ShardedListAndWatch=false"
	for _, change := range [][2]string{{on, off}, {off, on}} {
		f := fault{Kind: "filtering on the server: " + change[1], Victim: cluster, Server: true, Start: time.Now()}
		f.Sign = "arguments changed"
		if err := r.fleet.Planes.Cluster(cluster).RestartAPIServer(context.WithoutCancel(ctx),
			func(args []string) []string {
				args, f.Hits = replaceIn(args, change[0], change[1])
				return args
			}); err != nil {
			r.blame(fmt.Errorf("restarting the API server of %s: %w", cluster, err))
		}
		r.note(f)
		sleep(ctx, 2*time.Second)
	}
}

// replaceIn replaces a text in arguments, and counts those that it changed.
func replaceIn(args []string, from, to string) (replaced []string, n int) {
	replaced = slices.Clone(args)
	for i, a := range args {
		if replaced[i] = strings.ReplaceAll(a, from, to); replaced[i] != a {
			n++
		}
	}
	return replaced, n
}

// hog uses all CPUs for a while.
func (r *run) hog(ctx context.Context) {
	f := fault{Kind: hogged, Start: time.Now()}
	var hogs []*exec.Cmd
	for range runtime.NumCPU() {
		c := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if err := localplane.StartChild(c); err != nil {
			r.blame(fmt.Errorf("starting a hog: %w", err))
			continue
		}
		hogs = append(hogs, c)
	}
	sleep(ctx, r.between(2*time.Second, 5*time.Second))
	for _, c := range hogs {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	r.note(f)
}
