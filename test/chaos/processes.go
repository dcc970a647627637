package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// settleWithin bounds the wait for the fleet to be at rest on a busy machine.
const settleWithin = 90 * time.Second

// An ending does something to a replica. If that ended the replica, it returns its name, so that it can be started
// again.
type ending func(context.Context) (down string)

// aim returns a fault of a replica. ok is false if there is none, or if it has ended by itself.
func (r *run) aim(ctx context.Context, v *lab.Replica, kind string) (f fault, ok bool) {
	if v == nil {
		return fault{}, false
	}
	f = fault{Kind: kind, Victim: v.Name, Tenures: r.tenures(ctx, v.Name), Start: time.Now()}
	return f, !v.Ended()
}

// crash kills a replica and waits until its shards should be served again.
func (r *run) crash(ctx context.Context, victim *lab.Replica, kind string) (down string) {
	f, ok := r.aim(ctx, victim, kind)
	if !ok {
		return ""
	}
	f.Sign, f.Start = "processes that SIGKILL ended", victim.Kill()
	if endedBy(victim.State(), syscall.SIGKILL) {
		f.Hits++
	}
	sleep(ctx, r.lease+time.Second)
	r.note(ctx, f)
	return victim.Name
}

// endedBy reports whether a signal ended a process, which then had no say in it.
func endedBy(state *os.ProcessState, signal syscall.Signal) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

func (r *run) kill(ctx context.Context) (down string) { return r.crash(ctx, r.victim(), "SIGKILL") }

func (r *run) killCoordinator(ctx context.Context) (down string) {
	return r.crash(ctx, r.coordinator(ctx), "SIGKILL coordinator")
}

// exit asks a replica to leave.
func (r *run) exit(ctx context.Context) (down string) {
	f, ok := r.terminate(ctx, r.victim(), "SIGTERM")
	if !ok {
		return ""
	}
	r.note(ctx, f)
	return f.Victim
}

// andStart starts the ended replica again at once.
func (r *run) andStart(end ending) func(context.Context) {
	return func(ctx context.Context) {
		if down := end(ctx); down != "" {
			r.start(down)
		}
	}
}

// terminate asks a replica to leave, and waits until it has. ok is as of aim.
func (r *run) terminate(ctx context.Context, v *lab.Replica, kind string) (f fault, ok bool) {
	if f, ok = r.aim(ctx, v, kind); !ok {
		return f, false
	}
	f.Sign, f.Start = "processes that ended when asked", v.Terminate()
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
	if v.State().Exited() || endedBy(v.State(), syscall.SIGTERM) { // by the signal if it was just beginning
		f.Hits++
	}
	return f, true
}

// pause freezes a replica for three lease durations.
func (r *run) pause(ctx context.Context) (down string) {
	v := r.victim()
	f, ok := r.aim(ctx, v, paused)
	if !ok {
		return ""
	}
	f.Sign, f.Start = "processes that were stopped until the end", time.Now()
	r.blame(v.Pause())
	sleep(ctx, 3*r.lease)
	stopped, err := v.Stopped()
	if stopped {
		f.Hits++
	}
	r.blame(errors.Join(err, v.Resume()))
	r.note(ctx, f)
	return ""
}

// roll restarts all replicas in order, one at a time.
func (r *run) roll(ctx context.Context) {
	for _, v := range r.fleet.Alive() {
		f, ok := r.terminate(ctx, v, "rolling restart")
		if !ok {
			continue // the supervisor starts it again
		}
		f.Sign, f.Of = f.Sign+", and new incarnations", 2
		r.startAnew(ctx, &f)
		r.note(ctx, f)
		sleep(ctx, time.Second)
	}
}

// startAnew starts a fault's victim again. The sign is a new incarnation of it among the members.
func (r *run) startAnew(ctx context.Context, f *fault) {
	var before map[string]bool
	err := lab.Eventually(ctx, quietFor, func() (err error) {
		before, err = r.fleet.Members(ctx)
		return err
	})
	if r.start(f.Victim); err == nil {
		err = lab.Eventually(ctx, quietFor, func() error {
			now, err := r.fleet.Members(ctx)
			if err == nil && !joined(f.Victim, before, now) {
				err = errors.New("no new incarnation of it is a member")
			}
			return err
		})
	}
	if err != nil {
		r.say("start of %s: %v", f.Victim, err)
		return
	}
	f.Hits++
}

// joined reports whether a replica has an incarnation among the members that it hadn't before.
func joined(replica string, before, now map[string]bool) bool {
	for name := range now {
		if lab.ReplicaOf(name) == replica && !before[name] {
			return true
		}
	}
	return false
}

// restartAPIServer stops an API server and starts it again.
func (r *run) restartAPIServer(ctx context.Context, cluster string) {
	f := fault{Kind: "restart of the API server, " + role(cluster), Victim: cluster, Server: true, Start: time.Now()}
	f.Sign = servedAnew
	r.restart(ctx, &f, nil)
	r.note(ctx, f)
}

// servedAnew is the sign of restart.
const servedAnew = "API servers that answer from a new process"

// restart stops a fault's victim, an API server, starts it again with arguments that a function may change, and waits
// until it answers.
func (r *run) restart(ctx context.Context, f *fault, change func([]string) []string) {
	plane := r.fleet.Planes.Cluster(f.Victim)
	folders := map[string]string{f.Victim: plane.Dir()}
	before, err := record.Components(folders)
	if err == nil {
		err = plane.RestartAPIServer(context.WithoutCancel(ctx), change)
	}
	now, foundErr := record.Components(folders)
	if err = errors.Join(err, foundErr); err != nil {
		r.blame(fmt.Errorf("restarting the API server of %s: %w", f.Victim, err))
		return
	}
	if server := f.Victim + "/kube-apiserver"; now[server] != before[server] {
		f.Hits++
	}
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
		f.Sign, f.Of = "sets of arguments changed, and "+servedAnew, 2
		r.restart(ctx, &f, func(args []string) []string {
			args, n := replaceIn(args, change[0], change[1])
			f.Hits += min(n, 1)
			return args
		})
		r.note(ctx, f)
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
	f := fault{Kind: hogged, Sign: "hundredths of all processors' time that the hogs got", Of: hogsGet, Start: time.Now()}
	var hogs []*exec.Cmd
	for range runtime.GOMAXPROCS(0) {
		c := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if err := localplane.StartChild(c); err != nil {
			r.blame(fmt.Errorf("starting a hog: %w", err))
			continue
		}
		hogs = append(hogs, c)
	}
	sleep(ctx, r.between(2*time.Second, 5*time.Second))
	var used time.Duration
	for _, c := range hogs {
		_ = c.Process.Kill()
		_ = c.Wait()
		used += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	f.Hits = hundredths(used, time.Duration(runtime.GOMAXPROCS(0))*time.Since(f.Start))
	r.note(ctx, f)
}

// hogsGet is how many hundredths of all processors' time hogs get at least: they share it with everything else that
// wants to run.
const hogsGet = 5

func hundredths(part, whole time.Duration) int { return int(100 * part / max(whole, 1)) }
