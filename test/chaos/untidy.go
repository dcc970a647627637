package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

// untidy is the name of the scenario.
const untidy = "untidy"

const (
	// untidyRate is the load, in Ats per second.
	untidyRate = 20
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
		return func(a *account) time.Duration { return spreadOf(latenessOf(a.normal())).Max + plus }
	}
	forgets := func(kind string, age time.Duration, bump uint64, lag time.Duration) ordeal {
		return ordeal{kind, func(ctx context.Context, f *fault) { r.restore(ctx, f, age, bump, lag) },
			lease(10 * time.Second), many, many, untidyWrites, age}
	}
	// A minute each in a long run.
	long := min(time.Minute, time.Duration(r.untidy)*2*time.Second)
	network := func(kind string, lapses, moves int, wait func(*account) time.Duration, d time.Duration,
		rule faultproxy.Rule) ordeal {
		return ordeal{kind, func(ctx context.Context, f *fault) { r.hurtHome(ctx, f, rule, d) }, wait, lapses, moves, many, 0}
	}
	return []ordeal{
		forgets("home restored, 1 s old", time.Second, 0, 0),
		forgets("home restored, 1 s old, bumped", time.Second, bumpRevision, 0),
		forgets("home restored, 1 s old, one API server lags", time.Second, 0, r.lagBy()),
		forgets("home restored, 60 s old", time.Minute, 0, 0),
		forgets("home restored, 60 s old, bumped", time.Minute, bumpRevision, 0),
		forgets("home restored, 600 s old", 10*time.Minute, 0, 0),
		forgets("home restored, 600 s old, bumped", 10*time.Minute, bumpRevision, 0),
		{"one replica cut off a cluster", func(ctx context.Context, f *fault) { r.cutOff(ctx, f, 1) },
			lease(5 * time.Second), 0, 1, many, 0},
		{"all replicas cut off a cluster", func(ctx context.Context, f *fault) { r.cutOff(ctx, f, many) },
			lease(5 * time.Second), 0, 0, many, 0},
		network("home answers in a fifth of a lease", 0, many, lease(5*time.Second), long,
			faultproxy.Rule{Fault: faultproxy.Delay, Delay: r.lease / 5}),
		network("home refuses half of all writes", 0, many, lease(5*time.Second), long, faultproxy.Rule{
			Match: homeWrites, Fault: faultproxy.Answer, Status: 429, RetryAfter: 1, Probability: 0.5}),
		{"an API server of home lags", r.lag, lease(5 * time.Second), 0, many, many, 0},
		{"an API server of home stands still", r.stand, lease(10 * time.Second), many, many, many, 0},
		{"Secret rotated", r.rotate, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"Secret broken", r.breakSecret, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"Secret removed and added again", r.readd, calm(100 * time.Millisecond), 0, 0, many, 0},
		{"foreign record applied", r.foreign, calm(time.Second), 0, 0, many, 0},
		{"record deleted", r.deleteRecord, func(a *account) time.Duration { return 7*a.lease/2 + 2*time.Second }, 0, 1, many,
			0},
		{"Lease deleted", r.deleteLease, lease(3 * time.Second), 1, many, many, 0},
	}
}

// owed reports whether a kind of fault has still to be made in a run that has made so many of each: until there are as
// many faults in all as wanted, and in a run with room for every kind until each of them was made.
func owed(kind string, made map[string]int, wanted, kinds int) bool {
	all := 0
	for _, n := range made {
		all += n
	}
	return all < wanted || wanted >= kinds && made[kind] == 0
}

// runUntidy does one thing after another, and waits after each until all is at rest.
func (r *run) runUntidy(ctx context.Context) {
	r.calmly(func() { sleep(ctx, time.Duration(min(calmWindows, r.untidy))*3*time.Second) })
	ordeals := slices.DeleteFunc(r.ordeals(), func(o ordeal) bool { return !r.kinds.MatchString(o.kind) })
	began, made := time.Now(), map[string]int{}
	wanted := func(o ordeal) bool { return owed(o.kind, made, r.untidy, len(ordeals)) }
	for next := 0; slices.ContainsFunc(ordeals, wanted) && !r.over(ctx) && !r.isBroken(); next++ {
		r.save(ctx)
		o := ordeals[next%len(ordeals)]
		if !wanted(o) || time.Since(began) < o.after { // there is no snapshot as old; it comes again
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		f := fault{Kind: o.kind, Start: time.Now(), Server: true}
		o.do(ctx, &f)
		if f.Since.IsZero() {
			f.Since = f.Start
		}
		f.Lifted = time.Now()
		r.note(f)
		r.atRest(ctx)
		made[o.kind]++
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

// snapshotEvery is the least time between two snapshots of home.
const snapshotEvery = 5 * time.Second

// snapshot is one of home, in a file.
type snapshot struct {
	at   time.Time
	path string
}

// save saves a snapshot of home, unless that was done just before.
func (r *run) save(ctx context.Context) {
	if n := len(r.snapshots); n > 0 && time.Since(r.snapshots[n-1].at) < snapshotEvery {
		return
	}
	s := snapshot{time.Now(), filepath.Join(r.fleet.Planes.Dir(), fmt.Sprintf("home-%d.db", time.Now().UnixNano()))}
	if err := r.fleet.Planes.Cluster(lab.Home).Snapshot(ctx, s.path); err != nil {
		r.blame(err)
		return
	}
	r.snapshots = append(r.snapshots, s)
}

// restore sets home back to an earlier state. Shards have moved since then.
func (r *run) restore(ctx context.Context, f *fault, age time.Duration, bump uint64, lag time.Duration) {
	f.Victim = lab.Home
	r.save(ctx)
	r.blame(r.fleet.Pin(ctx, "", func(int) string {
		if v := r.victim(); v != nil {
			return v.Name
		}
		return ""
	}))
	_ = lab.Eventually(ctx, roundWithin, func() error { return r.fleet.Inactive(ctx) })
	sleep(ctx, age-time.Since(r.snapshots[0].at))
	at := len(r.snapshots) - 1
	for at > 0 && time.Since(r.snapshots[at].at) < age {
		at--
	}
	f.Start = time.Now()
	r.blame(r.fleet.Planes.Cluster(lab.Home).Restore(context.WithoutCancel(ctx), r.snapshots[at].path, bump))
	f.Since = time.Now()
	if lag > 0 { // not before: a server that starts asks etcd for thousands of things, one after another
		r.fleet.Second.Lag(lag)
		sleep(ctx, 2*r.lease)
		r.fleet.Second.Lag(0)
	}
	// Until then the restored records may look as if all were at rest.
	sleep(ctx, r.lease)
	_ = lab.Eventually(ctx, settleWithin, func() error { return r.fleet.Inactive(ctx) }) // atRest complains
	r.blame(r.fleet.Pin(ctx, "", func(int) string { return "" }))
}

// cutOff cuts replicas off from a workload cluster, and from nothing else.
func (r *run) cutOff(ctx context.Context, f *fault, most int) {
	cluster := r.workload()
	var rule faultproxy.Rule
	rule.Fault, f.Victim = faultproxy.Blackhole, "all to "+cluster
	if v := r.victim(); most == 1 && v != nil {
		rule.Match.Processes, f.Victim = []int{v.PID()}, v.Name+" to "+cluster
	}
	f.Rule = fmt.Sprintf("%+v", rule)
	injected := r.fleet.Proxy(cluster).Inject(rule)
	hold := 3 * r.lease
	sleep(ctx, hold)
	injected.End()
	f.Hits = injected.Hits()
	if most != 1 { // no replica could serve it before
		f.Since = time.Now()
	}
}

// hurtHome disturbs every replica's connection to home in the same way.
func (r *run) hurtHome(ctx context.Context, f *fault, rule faultproxy.Rule, d time.Duration) {
	f.Victim, f.Rule = "all to home", fmt.Sprintf("%+v", rule)
	var all []*faultproxy.Injection
	for _, v := range r.fleet.Alive() {
		all = append(all, r.fleet.HomeProxy(v.Name).Inject(rule))
	}
	sleep(ctx, d)
	for _, injected := range all {
		injected.End()
		f.Hits += injected.Hits()
	}
}

// lag lets one of home's two API servers lag behind.
func (r *run) lag(ctx context.Context, f *fault) {
	f.Victim = lab.Home
	r.fleet.Second.Lag(r.lagBy())
	sleep(ctx, 4*r.lease)
	r.fleet.Second.Lag(0)
}

// stand freezes one of home's two API servers: it doesn't answer requests.
func (r *run) stand(ctx context.Context, f *fault) {
	f.Victim = lab.Home
	home := r.fleet.Planes.Cluster(lab.Home)
	r.blame(home.Pause())
	sleep(ctx, 2*r.lease)
	r.blame(home.Resume())
}

// rotate replaces the token in a cluster's Secret.
func (r *run) rotate(ctx context.Context, f *fault) {
	f.Victim = r.workload()
	r.blame(r.fleet.AddCluster(ctx, f.Victim, f.Victim))
	sleep(ctx, 2*r.lease)
}

// breakSecret replaces a cluster's Secret by garbage, and repairs it.
func (r *run) breakSecret(ctx context.Context, f *fault) {
	f.Victim = r.workload()
	r.blame(r.fleet.AddKubeconfig(ctx, f.Victim, []byte("no kubeconfig")))
	sleep(ctx, 2*r.lease)
	r.blame(r.fleet.AddCluster(ctx, f.Victim, f.Victim))
}

// readd deletes a cluster's Secret and creates it again a moment later.
func (r *run) readd(ctx context.Context, f *fault) {
	f.Victim = r.workload()
	r.blame(r.fleet.RemoveCluster(ctx, f.Victim))
	r.blame(r.fleet.AddCluster(ctx, f.Victim, f.Victim))
	sleep(ctx, 2*r.lease)
}

// foreign applies a record that no replica made, for slots that others cover, and deletes it again.
func (r *run) foreign(ctx context.Context, f *fault) {
	cluster := r.workload()
	foreign := &tenurev1alpha1.Shard{Spec: tenurev1alpha1.ShardSpec{Cluster: cluster, Prefix: "0"}}
	foreign.Namespace, foreign.Name, f.Victim = lab.Namespace, cluster+".p0", cluster+".p0"
	r.blame(r.fleet.Client(lab.Home).Create(ctx, foreign))
	sleep(ctx, 3*r.lease)
	r.blame(client.IgnoreNotFound(r.fleet.Client(lab.Home).Delete(ctx, foreign)))
}

// deleteRecord deletes a held shard's record.
func (r *run) deleteRecord(ctx context.Context, f *fault) {
	shards, err := r.fleet.Shards(ctx)
	if r.blame(err); err != nil || len(shards) == 0 {
		return
	}
	s := shards[r.intN(len(shards))]
	f.Victim = s.Name
	r.blame(r.fleet.Client(lab.Home).Delete(ctx, &s))
	sleep(ctx, time.Second)
}

// deleteLease deletes a live replica's Lease.
func (r *run) deleteLease(ctx context.Context, f *fault) {
	v := r.victim()
	members, err := r.fleet.Members(ctx)
	if r.blame(err); err != nil || v == nil {
		return
	}
	f.Victim = v.Name
	for name := range members {
		if lab.ReplicaOf(name) == v.Name {
			lease := &coordinationv1.Lease{}
			lease.Namespace, lease.Name = lab.Namespace, name
			r.blame(client.IgnoreNotFound(r.fleet.Client(lab.Home).Delete(ctx, lease)))
		}
	}
	sleep(ctx, time.Second)
}

// refusal is a write that home refused.
type refusal struct {
	replica string
	at      time.Time
}

// refusals returns the replicas' writes that home's API servers refused, by their audit logs.
func (r *run) refusals() (all []refusal, err error) {
	logs, err := audit.Logs(filepath.Join(r.evidence.dir, lab.Home))
	if err != nil {
		return nil, err
	}
	var in audit.Reader
	for _, log := range logs {
		for e, err := range in.Read(log) {
			if err != nil {
				return nil, err
			}
			if e.Ours() && e.Ended() && e.Mutating() && e.Outcome() == audit.Rejected {
				all = append(all, refusal{lab.ReplicaOf(audit.ParseAgent(e.UserAgent).Incarnation), e.Answered()})
			}
		}
	}
	return all, nil
}

// outcome is the result of one fault.
type outcome struct {
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
		if at.due.Before(f.Since) {
			at.late = served.Sub(f.Since)
		}
		if at.late > o.wait.late {
			o.wait = at
		}
	}
	for _, at := range a.never {
		if at.due.Before(f.End) {
			o.wait = lateAt{madeAt: at, late: a.taken.Sub(at.due)} // at least
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
		n := 0
		for _, f := range a.faults {
			if f.Kind != o.kind {
				continue
			}
			n++
			got := a.outcome(f)
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
		all = append(all, target{name + "longest wait of an At", worst.wait, most, worst.wait.late <= most})
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
