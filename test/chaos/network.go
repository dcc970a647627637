package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

// line is one connection that can be disturbed: a replica's to home, or one replica's (or all replicas') to a workload
// cluster.
type line struct {
	proxy  *faultproxy.Proxy
	agents []string
	name   string
	role   string // home or workload
	// serves reports whether the line's replica serves shards of the cluster; nil if the line is of all replicas,
	// or to home.
	serves func(context.Context) bool
}

func (r *run) homeLine() (line, bool) {
	v := r.victim()
	if v == nil {
		return line{}, false
	}
	return line{proxy: r.fleet.HomeProxy(v.Name), name: v.Name + " to home", role: "home"}, true
}

// workloadLine picks a single replica's line only if the replica serves shards of the cluster. Otherwise it writes
// nothing there.
func (r *run) workloadLine(ctx context.Context) (line, bool) {
	v, cluster := r.victim(), r.workload()
	if v == nil {
		return line{}, false
	}
	l := line{proxy: r.fleet.Proxy(cluster), name: "all to " + cluster, role: "workload"}
	serves := func(ctx context.Context) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(r.tenures(ctx, v.Name))), func(shard string) bool {
			return strings.HasPrefix(shard, cluster+"/")
		})
	}
	if r.intN(2) == 0 && serves(ctx) {
		l.agents, l.name, l.serves = []string{lab.Agent(v.Name)}, v.Name+" to "+cluster, serves
	}
	return l, true
}

// quietFor is how much longer a rule stays in force while it has hit no request. Its victim may be paused for three
// lease durations, and has to join again after that; and a watch may be silent but for a bookmark a minute.
const quietFor = 75 * time.Second

// hurt applies a rule to a line for a time, and until it has hit a request.
func (r *run) hurt(ctx context.Context, l line, kind string, rule faultproxy.Rule, d time.Duration) {
	rule.Match.Agents = l.agents
	f := fault{Kind: kind + ", " + l.role, Start: time.Now()}
	if r.impose(ctx, &f, l.name, rule, d, l.proxy); f.Hits == 0 && l.serves != nil && !l.serves(ctx) {
		return // the victim's shards have moved meanwhile, so there was nothing to hit
	}
	r.note(ctx, f)
}

var (
	homeWrites = faultproxy.Match{Verbs: []string{"create", "update", "patch"},
		Resources: []string{"leases", "shards", "shards/status"}}
	workloadWrites = faultproxy.Match{Verbs: []string{"create", "update", "patch"},
		Resources: []string{"pods", "ats/status"}}
	watches = faultproxy.Match{Verbs: []string{"list", "watch"}}
)

func writes(role string) faultproxy.Match {
	if role == "home" {
		return homeWrites
	}
	return workloadWrites
}

// side picks a line of one of the two kinds.
func (r *run) side(ctx context.Context) (line, bool) {
	if r.intN(2) == 0 {
		return r.homeLine()
	}
	return r.workloadLine(ctx)
}

// networkFaults returns the faults of a line.
func (r *run) networkFaults() []func(context.Context) {
	do := func(kind string, rule func(l line) faultproxy.Rule, low, high time.Duration) func(context.Context) {
		return func(ctx context.Context) {
			if l, ok := r.side(ctx); ok {
				r.hurt(ctx, l, kind, rule(l), r.between(low, high))
			}
		}
	}
	faults := []func(context.Context){
		do("lost replies", func(l line) faultproxy.Rule {
			return faultproxy.Rule{Match: writes(l.role), Fault: faultproxy.LoseReply, Probability: 0.4}
		}, time.Second, 4*time.Second),
		do("lost replies", func(l line) faultproxy.Rule {
			return faultproxy.Rule{Match: writes(l.role), Fault: faultproxy.LoseReply}
		}, 500*time.Millisecond, 2*time.Second),
		do("frozen watches", func(line) faultproxy.Rule { return faultproxy.Rule{Fault: faultproxy.FreezeWatch} },
			time.Second, r.lease),
		do("late watches", func(line) faultproxy.Rule {
			return faultproxy.Rule{Fault: faultproxy.DelayWatch, Delay: 700 * time.Millisecond}
		}, time.Second, 4*time.Second),
		do("cut watches", func(line) faultproxy.Rule {
			return faultproxy.Rule{Fault: faultproxy.CutWatch, Probability: 0.5}
		}, 500*time.Millisecond, 2*time.Second),
		do("replies dropped", func(line) faultproxy.Rule { return faultproxy.Rule{Fault: faultproxy.DropReplies} },
			time.Second, 2*r.lease),
		do("partition", func(line) faultproxy.Rule { return faultproxy.Rule{Fault: faultproxy.Blackhole} },
			time.Second, 2*r.lease),
		r.expire,
	}
	for _, status := range []int{409, 429, 500} {
		faults = append(faults, do(fmt.Sprint(status), func(l line) faultproxy.Rule {
			rule := faultproxy.Rule{Match: writes(l.role), Fault: faultproxy.Answer, Status: status, Probability: 0.4}
			if status == 429 {
				rule.RetryAfter = 1
			}
			return rule
		}, time.Second, 4*time.Second))
	}
	return faults
}

// expire ends watches, and for a while answers those that resume that their version is too old.
func (r *run) expire(ctx context.Context) {
	l, ok := r.side(ctx)
	if !ok {
		return
	}
	over, end := context.WithCancel(ctx)
	defer end()
	go func() { // repeatedly: an open watch ends with its next chunk, and none may come for a while
		for over.Err() == nil {
			cut := l.proxy.Inject(faultproxy.Rule{Match: faultproxy.Match{Agents: l.agents}, Fault: faultproxy.CutWatch})
			sleep(over, time.Second)
			cut.End()
			sleep(over, 2*time.Second)
		}
	}()
	r.hurt(ctx, l, "410 to watches", faultproxy.Rule{Match: watches, Fault: faultproxy.Answer, Status: 410,
		Probability: 0.5}, r.between(2*time.Second, 4*time.Second))
}
