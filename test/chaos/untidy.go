package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

// untidy is the name of the scenario.
const untidy = "untidy"

const (
	// calmWindows are looked at before anything is done: what comes later is held against the worst of them.
	calmWindows = 20
	// bumpRevision is by how much a restored home's revision is raised: by more than it can have grown since.
	bumpRevision = 1_000_000
)

// ordeal is a fault of the untidy scenario, and what must hold for it.
type ordeal struct {
	kind string
	// do makes the fault and ends its cause. It notes in f whom it hits, and since when the fleet could cope with it.
	do func(ctx context.Context, f *fault)
	// wait is how long an At may wait, from its due time or from when the fleet could cope, whichever is later.
	wait func(a *account) time.Duration
	// Upper bounds: lapses, moves of one shard until the cause ended, and refused writes to home per second and
	// replica.
	lapses, moves int
	refused       float64
	// after is how long the scenario must have run before this fault.
	after time.Duration
}

const (
	many         = 1 << 20
	untidyWrites = 2.0 // refused writes to home per second and replica
)

// lagBy is how late the second API server of home sees everything in etcd. Its watches lag by that, and a write through
// it takes several times as long.
func (r *run) lagBy() time.Duration { return r.lease / 5 }

// ordeals returns all kinds of faults, in the order in which they first occur.
func (r *run) ordeals() []ordeal {
	lease := func(plus time.Duration) func(*account) time.Duration {
		return func(a *account) time.Duration { return a.lease + plus }
	}
	calm := func(plus time.Duration) func(*account) time.Duration {
		return func(a *account) time.Duration { return lab.Millis(witness.SpreadOf(latenessOf(a.normal())).Max) + plus }
	}
	forgets := func(kind string, age time.Duration, bump uint64, lag time.Duration) ordeal {
		return ordeal{kind, func(ctx context.Context, f *fault) { r.restore(ctx, f, age, bump, lag) },
			lease(10 * time.Second), many, many, untidyWrites, age}
	}
	network := func(kind string, lapses, moves int, wait func(*account) time.Duration, rule faultproxy.Rule) ordeal {
		return ordeal{kind, func(ctx context.Context, f *fault) { r.hurtHome(ctx, f, rule, r.disturb) }, wait, lapses, moves,
			many, 0}
	}
	cutOff := func(kind string, replicas, moves int, rule faultproxy.Rule) ordeal {
		return ordeal{kind, func(ctx context.Context, f *fault) { r.cutOff(ctx, f, replicas, rule) },
			lease(5 * time.Second), 0, moves, many, 0}
	}
	deafen := func(kind string, lapses int, rule faultproxy.Rule) ordeal {
		return ordeal{kind, func(ctx context.Context, f *fault) { r.deafen(ctx, f, rule) },
			lease(5 * time.Second), lapses, many, many, 0}
	}
	return []ordeal{
		forgets("home restored, 1 s old", time.Second, 0, 0),
		forgets("home restored, 1 s old, bumped", time.Second, bumpRevision, 0),
		forgets("home restored, 1 s old, one API server lags", time.Second, 0, r.lagBy()),
		forgets("home restored, 60 s old", time.Minute, 0, 0),
		forgets("home restored, 60 s old, bumped", time.Minute, bumpRevision, 0),
		forgets("home restored, 600 s old", 10*time.Minute, 0, 0),
		forgets("home restored, 600 s old, bumped", 10*time.Minute, bumpRevision, 0),
		cutOff("one replica cut off a cluster", 1, 1, faultproxy.Rule{Fault: faultproxy.Blackhole}),
		cutOff("all replicas cut off a cluster", many, 0, faultproxy.Rule{Fault: faultproxy.Blackhole}),
		cutOff("a cluster takes one replica for a stranger", 1, 1, faultproxy.Rule{Fault: faultproxy.Answer, Status: 401}),
		deafen("home's watches stand still for one replica", 0, faultproxy.Rule{Fault: faultproxy.FreezeWatch}),
		deafen("one replica can't read home", many, faultproxy.Rule{Fault: faultproxy.Blackhole, Match: faultproxy.Match{
			Verbs: []string{"get", "list", "watch"}}}),
		network("home answers in a fifth of a lease", 0, many, lease(5*time.Second),
			faultproxy.Rule{Fault: faultproxy.Delay, Delay: r.lease / 5}),
		network("home refuses half of all writes", 0, many, lease(5*time.Second), faultproxy.Rule{
			Match: homeWrites, Fault: faultproxy.Answer, Status: 429, RetryAfter: 1, Probability: 0.5}),
		{"an API server of home lags", r.lag, lease(5 * time.Second), 0, many, many, 0},
		{"an API server of home stands still", r.stand, lease(10 * time.Second), many, many, many, 0},
		{"Secret rotated", r.rotate, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"Secret broken", r.breakSecret, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"Secret removed and added again", r.readd, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"cluster added under a second name", r.alias, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"layout deleted", r.deleteLayout, calm(time.Second), 0, 0, many, 0},
		{"layout edited", r.editLayout, lease(5 * time.Second), 0, 1, many, 0},
		{"foreign record applied", r.foreign, calm(time.Second), 0, 0, many, 0},
		{"record deleted", r.deleteRecord, func(a *account) time.Duration { return 7*a.lease/2 + 2*time.Second }, 0, 1, many,
			0},
		{"Lease deleted", r.deleteLease, lease(3 * time.Second), 1, many, many, 0},
	}
}

// owed reports whether one more fault of a kind has to be made. made counts those so far, by kind. It is true until
// there are as many in all as wanted. If wanted leaves room for every kind, it is also true until there was one of
// this kind.
func owed(kind string, made map[string]int, wanted, kinds int) bool {
	all := 0
	for _, n := range made {
		all += n
	}
	return all < wanted || wanted >= kinds && made[kind] == 0
}

// runUntidy does one thing after another, and waits after each until all is at rest.
func (r *run) runUntidy(ctx context.Context) {
	r.mu.Lock()
	r.staysUp = true
	r.mu.Unlock()
	r.calmly(func() { sleep(ctx, time.Duration(min(calmWindows, r.untidy))*3*time.Second) })
	ordeals := slices.DeleteFunc(r.ordeals(), func(o ordeal) bool { return !r.kinds.MatchString(o.kind) })
	if r.disturb = time.Minute; r.untidy < len(ordeals) { // not even one of each kind
		r.disturb = 8 * time.Second
	}
	began, made := time.Now(), map[string]int{}
	wanted := func(o ordeal) bool { return owed(o.kind, made, r.untidy, len(ordeals)) }
	for next := 0; slices.ContainsFunc(ordeals, wanted) && !r.over(ctx) && !r.isBroken(); next++ {
		r.save(ctx)
		o := ordeals[next%len(ordeals)]
		if !wanted(o) || time.Since(began) < o.after { // no snapshot is old enough yet; its turn comes again
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		f := fault{Kind: o.kind, Start: time.Now()}
		o.do(ctx, &f)
		if f.Since.IsZero() {
			f.Since = f.Start
		}
		f.Lifted = time.Now()
		r.note(ctx, f)
		r.atRest(ctx)
		if f.tookEffect() {
			made[o.kind]++
		}
	}
	all := 0
	for _, o := range ordeals {
		all += made[o.kind]
		if r.untidy >= len(ordeals) {
			r.reach("faults of the kind: "+o.kind, 1, made[o.kind])
		}
	}
	r.reach("faults in the untidy scenario", r.untidy, all)
}

// refusal is a write that home refused.
type refusal struct {
	replica string
	at      time.Time
}

// refusals returns the replicas' writes that home's API servers refused, by their audit logs.
func (r *run) refusals() (all []refusal, err error) {
	refused, err := audit.Refused(filepath.Join(r.evidence.dir, lab.Home))
	for _, e := range refused {
		all = append(all, refusal{lab.ReplicaOf(audit.ParseAgent(e.UserAgent).Incarnation), e.Answered()})
	}
	return all, err
}

// outcome is the result of one fault.
type outcome struct {
	ats           int    // how many could have waited because of it
	wait          lateAt // the At that waited longest
	lapses, moves int
	refused       float64 // writes per second and replica, while the fleet may take to be served again
}

func (a *account) outcome(f fault) outcome {
	var o outcome
	for _, at := range a.ats {
		served := at.due.Add(at.late)
		if served.Before(f.Since) || served.Before(f.Start) || at.due.After(f.End) {
			continue
		}
		o.ats++
		if at.due.Before(f.Since) {
			at.late = served.Sub(f.Since)
		}
		if at.late > o.wait.late {
			o.wait = at
		}
	}
	for _, at := range a.never {
		if at.due.Before(f.End) {
			o.ats++
			if late := a.taken.Sub(at.due); late > o.wait.late {
				o.wait = lateAt{madeAt: at, late: late} // at least
			}
		}
	}
	moves, refused := map[string]int{}, map[string]int{}
	for _, l := range a.logs {
		if l.Lapse() && (window{f.Start, f.End}).holds(l.Time) {
			o.lapses++
		}
		if l.Activation() && (window{f.Start, f.Lifted}).holds(l.Time) {
			moves[l.Shard]++
			o.moves = max(o.moves, moves[l.Shard])
		}
	}
	felt := a.lease + 10*time.Second
	for _, x := range a.refused {
		if (window{f.Since, f.Since.Add(felt)}).holds(x.at) {
			refused[x.replica]++
			o.refused = max(o.refused, float64(refused[x.replica])/felt.Seconds())
		}
	}
	return o
}

// untidyTargets returns the worst result of each kind of fault with its bounds.
func (a *account) untidyTargets() (all []target) {
	for _, o := range a.ordeals {
		var worst outcome
		n, unseen := 0, false
		for _, f := range a.faults {
			if f.Kind != o.kind {
				continue
			}
			n++
			got := a.outcome(f)
			unseen = unseen || got.ats == 0
			if got.wait.late > worst.wait.late {
				worst.wait = got.wait
			}
			worst.lapses, worst.moves, worst.refused = max(worst.lapses, got.lapses), max(worst.moves, got.moves),
				max(worst.refused, got.refused)
		}
		if n == 0 {
			continue
		}
		name := fmt.Sprintf("%s (%d): ", o.kind, n)
		most := time.Duration(float64(o.wait(a)) * a.slack)
		if unseen {
			all = append(all, unmeasured(name+"longest wait of an At", most))
		} else {
			all = append(all, target{name + "longest wait of an At", worst.wait, most, worst.wait.late <= most})
		}
		if o.lapses < many {
			all = append(all, target{name + "lapses", worst.lapses, o.lapses, worst.lapses <= o.lapses})
		}
		if o.moves < many {
			all = append(all, target{name + "moves of a shard until it ended", worst.moves, o.moves, worst.moves <= o.moves})
		}
		if o.refused < many {
			all = append(all, target{name + "refused writes a second and replica", fmt.Sprintf("%.2f", worst.refused),
				fmt.Sprintf("%.2f", o.refused), worst.refused <= o.refused})
		}
	}
	return all
}
