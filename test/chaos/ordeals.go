package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

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
	f.Victim, f.Server = lab.Home, true
	r.save(ctx)
	saved, err := r.epochs(ctx)
	r.blame(err)
	for range 5 { // all may be pinned to where they are
		r.pinAll(ctx)
		moved := lab.Eventually(ctx, r.lease, func() error { // until moves begin, all looks at rest
			now, err := r.epochs(ctx)
			if err == nil && maps.Equal(now, saved) {
				err = errors.New("nothing has moved")
			}
			return err
		})
		_ = lab.Eventually(ctx, roundWithin, func() error { return r.fleet.Inactive(ctx) })
		if moved == nil {
			break
		}
	}
	if len(r.snapshots) == 0 {
		return // save has said why
	}
	sleep(ctx, age-time.Since(r.snapshots[0].at))
	at := len(r.snapshots) - 1
	for at > 0 && time.Since(r.snapshots[at].at) < age {
		at--
	}
	before, err := r.epochs(ctx)
	r.blame(err)
	f.Start, f.Sign = time.Now(), "records that went back"
	r.blame(r.fleet.Planes.Cluster(lab.Home).Restore(context.WithoutCancel(ctx), r.snapshots[at].path, bump))
	f.Since = time.Now()
	now, err := r.epochs(ctx)
	r.blame(err)
	for name, epoch := range before {
		if now[name] < epoch {
			f.Hits++
		}
	}
	if lag > 0 { // not before: a server that starts asks etcd for thousands of things, one after another
		r.lagFor(ctx, f, lag, 2*r.lease)
	}
	// Before that, the restored records may look as if all were at rest.
	sleep(ctx, r.lease)
	_ = lab.Eventually(ctx, settleWithin, func() error { return r.fleet.Inactive(ctx) }) // atRest complains
	r.blame(r.fleet.Unpin(ctx))
}

// epochs returns the epoch of each record.
func (r *run) epochs(ctx context.Context) (map[string]int64, error) {
	shards, err := r.fleet.Shards(ctx)
	all := map[string]int64{}
	for _, s := range shards {
		all[s.Name] = s.Status.Epoch
	}
	return all, err
}

// impose has a rule in force on connections for a while, and until it has hit a request on each of them.
func (r *run) impose(ctx context.Context, f *fault, victim string, rule faultproxy.Rule, d time.Duration,
	proxies ...*faultproxy.Proxy) {
	f.Victim, f.Rule = victim, fmt.Sprintf("%+v", rule)
	var all []*faultproxy.Injection
	for _, p := range proxies {
		all = append(all, p.Inject(rule))
	}
	sleep(ctx, d)
	unhurt := func(i *faultproxy.Injection) bool { return i.Hits() == 0 }
	for end := time.Now().Add(quietFor); slices.ContainsFunc(all, unhurt) && time.Now().Before(end) && ctx.Err() == nil; {
		sleep(ctx, 50*time.Millisecond)
	}
	var hits []int
	for _, injected := range all {
		injected.End()
		hits = append(hits, injected.Hits())
	}
	f.hit(hits)
}

// hit notes the requests that were hit on each connection. On several, those count on which any was: a fault of all
// replicas that one alone felt isn't the fault that was to be tested.
func (f *fault) hit(requests []int) {
	if len(requests) == 1 {
		f.Hits = requests[0]
		return
	}
	f.Of = len(requests)
	for _, n := range requests {
		f.Hits += min(n, 1)
	}
}

// cutOff keeps replicas from using a workload cluster, and nothing else.
func (r *run) cutOff(ctx context.Context, f *fault, most int, rule faultproxy.Rule) {
	cluster, whom := r.workload(), "all"
	if most == 1 {
		v := r.victim()
		if v == nil {
			f.missed(rule)
			return
		}
		// A replica may hold shards of the other cluster alone, and sends this one nothing then.
		if held := slices.Sorted(maps.Keys(r.tenures(ctx, v.Name))); len(held) > 0 {
			cluster, _, _ = strings.Cut(held[r.intN(len(held))], "/")
		}
		rule.Match.Processes, whom = []int{v.PID()}, v.Name
	}
	r.impose(ctx, f, whom+" to "+cluster, rule, 3*r.lease, r.fleet.Proxy(cluster))
	if most != 1 { // no replica could serve it before
		f.Since = time.Now()
	}
}

// hurtHome disturbs every replica's connection to home in the same way.
func (r *run) hurtHome(ctx context.Context, f *fault, rule faultproxy.Rule, d time.Duration) {
	var proxies []*faultproxy.Proxy
	for _, v := range r.fleet.Alive() {
		proxies = append(proxies, r.fleet.HomeProxy(v.Name))
	}
	r.impose(ctx, f, "all to home", rule, d, proxies...)
}

// deafen keeps a replica from hearing anything that others write to home.
func (r *run) deafen(ctx context.Context, f *fault, rule faultproxy.Rule) {
	if v := r.victim(); v != nil {
		r.impose(ctx, f, v.Name+" to home", rule, 3*r.lease, r.fleet.HomeProxy(v.Name))
	} else {
		f.missed(rule)
	}
}

// missed notes that no replica was alive to suffer a rule, so the fault counts as idle.
func (f *fault) missed(rule faultproxy.Rule) { f.Victim, f.Rule = "nobody", fmt.Sprintf("%+v", rule) }

// passedOn counts the replicas' requests so far to one of home's API servers: 0 is the first one, 1 the second.
func (r *run) passedOn(server int) (n int) {
	proxies := map[*faultproxy.Proxy]bool{} // a replica that is started again keeps its own
	for _, v := range r.processes() {
		proxies[r.fleet.HomeProxy(v.Name)] = true
	}
	for p := range proxies {
		n += p.PassedOn(server)
	}
	return n
}

// lag lets one of home's two API servers lag behind.
func (r *run) lag(ctx context.Context, f *fault) {
	f.Victim, f.Server = lab.Home, true
	r.lagFor(ctx, f, r.lagBy(), 4*r.lease)
}

func (r *run) lagFor(ctx context.Context, f *fault, by, d time.Duration) {
	f.Sign = "requests to the server that lags"
	before := r.passedOn(1)
	r.fleet.Second.Lag(by)
	sleep(ctx, d)
	r.fleet.Second.Lag(0)
	f.Hits = r.passedOn(1) - before
}

// stand freezes one of home's two API servers: it doesn't answer requests.
func (r *run) stand(ctx context.Context, f *fault) {
	f.Victim, f.Server, f.Sign = lab.Home, true, "requests to the server that stands still"
	home := r.fleet.Planes.Cluster(lab.Home)
	before := r.passedOn(0)
	r.blame(home.Pause())
	sleep(ctx, 2*r.lease)
	r.blame(home.Resume())
	f.Hits = r.passedOn(0) - before
}

// logged counts the living replicas that have logged a line about a cluster since the fault began. All of them must.
func (r *run) logged(f *fault, cluster string, is func(lab.Line) bool) {
	alive := r.fleet.Alive()
	f.Of = len(alive)
	for _, v := range alive {
		n, err := v.Log.Count(func(l lab.Line) bool { return l.Cluster == cluster && l.Time.After(f.Start) && is(l) })
		r.blame(err)
		f.Hits += min(n, 1)
	}
}

// replaced is what replicas log when they go over to the credentials of another Secret.
func replaced(l lab.Line) bool { return l.Msg == "cluster's credentials replaced" }

// rotate replaces the token in a cluster's Secret.
func (r *run) rotate(ctx context.Context, f *fault) {
	f.Victim, f.Sign = r.workload(), "replicas with new credentials"
	r.blame(r.fleet.AddCluster(ctx, f.Victim, f.Victim))
	sleep(ctx, 2*r.lease)
	r.logged(f, f.Victim, replaced)
}

// breakSecret replaces a cluster's Secret by garbage, and repairs it.
func (r *run) breakSecret(ctx context.Context, f *fault) {
	f.Victim, f.Sign = r.workload(), "replicas that can't use the kubeconfig"
	r.blame(r.fleet.AddKubeconfig(ctx, f.Victim, []byte("no kubeconfig")))
	sleep(ctx, 2*r.lease)
	r.logged(f, f.Victim, func(l lab.Line) bool { return l.Reason == clusterhealth.ReasonBadConfig })
	r.blame(r.fleet.AddCluster(ctx, f.Victim, f.Victim))
}

// readd deletes a cluster's Secret and creates it again a moment later.
func (r *run) readd(ctx context.Context, f *fault) {
	f.Victim, f.Sign = r.workload(), "replicas with new credentials"
	r.blame(r.fleet.RemoveCluster(ctx, f.Victim))
	r.blame(r.fleet.AddCluster(ctx, f.Victim, f.Victim))
	sleep(ctx, 2*r.lease)
	r.logged(f, f.Victim, replaced)
}

// alias gives a cluster a second name, another one each time, and takes it back.
func (r *run) alias(ctx context.Context, f *fault) {
	f.Victim, f.Sign = r.workload(), "replicas that know the second name"
	second := fmt.Sprintf("%s-%d", f.Victim, f.Start.Unix())
	r.blame(r.fleet.AddCluster(ctx, second, f.Victim))
	sleep(ctx, 3*r.lease)
	r.logged(f, second, func(l lab.Line) bool { return l.Msg == "cluster can be used" })
	records := &tenurev1alpha1.ShardList{}
	r.blame(r.fleet.Client(lab.Home).List(ctx, records, client.InNamespace(lab.Namespace)))
	for _, s := range records.Items {
		if s.Spec.Cluster == second {
			r.blame(fmt.Errorf("%s: a cluster is divided under its second name", s.Name))
		}
	}
	r.blame(r.fleet.RemoveCluster(ctx, second))
}

// redo changes the layout of a cluster as a person might, and returns it as it was written.
func (r *run) redo(ctx context.Context, f *fault,
	change func(client.Client, *tenurev1alpha1.Shard) error) *tenurev1alpha1.Shard {
	layout := &tenurev1alpha1.Shard{}
	layout.Namespace, layout.Name = lab.Namespace, r.workload()+".layout"
	f.Victim = layout.Name
	home := r.fleet.Client(lab.Home)
	err := home.Get(ctx, client.ObjectKeyFromObject(layout), layout)
	if err == nil {
		err = change(home, layout)
	}
	if r.blame(err); err == nil {
		sleep(ctx, 4*r.lease) // a deleted one is made again, and all shards of an edited one
	}
	return layout
}

func (r *run) deleteLayout(ctx context.Context, f *fault) {
	f.Sign = "layouts that were made again"
	layout := r.redo(ctx, f, func(home client.Client, layout *tenurev1alpha1.Shard) error {
		return home.Delete(ctx, layout)
	})
	again := &tenurev1alpha1.Shard{}
	err := r.fleet.Client(lab.Home).Get(ctx, client.ObjectKeyFromObject(layout), again)
	if r.blame(client.IgnoreNotFound(err)); err == nil && again.UID != layout.UID {
		f.Hits++
	}
}

// editLayout asks for the same shards anew, under other names.
func (r *run) editLayout(ctx context.Context, f *fault) {
	f.Sign = "shards held under their new names"
	layout := r.redo(ctx, f, func(home client.Client, layout *tenurev1alpha1.Shard) error {
		layout.Spec.Layout.Generation++
		return home.Update(ctx, layout)
	})
	if layout.Spec.Layout == nil {
		return // it couldn't be read
	}
	shards, err := r.fleet.Shards(ctx)
	r.blame(err)
	for _, s := range shards {
		asked := s.Spec.Cluster == layout.Spec.Cluster && s.Spec.Generation >= layout.Spec.Layout.Generation
		if asked && s.Status.Holder != "" {
			f.Hits++
		}
	}
}

// foreign applies a record that no replica made, for slots that others cover, and deletes it again.
func (r *run) foreign(ctx context.Context, f *fault) {
	cluster := r.workload()
	foreign := &tenurev1alpha1.Shard{Spec: tenurev1alpha1.ShardSpec{Cluster: cluster, Prefix: "0"}}
	shards, err := r.fleet.Shards(ctx)
	r.blame(err)
	for _, s := range shards { // a record of an earlier layout would count as left from that
		if s.Spec.Cluster == cluster {
			foreign.Spec.Generation = s.Spec.Generation
		}
	}
	foreign.Namespace, foreign.Name = lab.Namespace, cluster+".p0"
	if g := foreign.Spec.Generation; g > 1 {
		foreign.Name += fmt.Sprintf("-g%d", g)
	}
	f.Victim = foreign.Name
	f.Sign = "replicas that count a foreign record"
	r.blame(r.fleet.Client(lab.Home).Create(ctx, foreign))
	sleep(ctx, 3*r.lease)
	alive := r.fleet.Alive()
	f.Of = len(alive)
	for _, v := range alive {
		if page, err := v.Metrics(ctx); err == nil && page.By("tenure_odd_records", "reason")[inspect.Foreign] > 0 {
			f.Hits++
		}
	}
	r.blame(client.IgnoreNotFound(r.fleet.Client(lab.Home).Delete(ctx, foreign)))
}

// deleteRecord deletes a held shard's record.
func (r *run) deleteRecord(ctx context.Context, f *fault) {
	f.Sign = "records deleted"
	shards, err := r.fleet.Shards(ctx)
	if r.blame(err); err != nil || len(shards) == 0 {
		return
	}
	s := shards[r.intN(len(shards))]
	f.Victim = lab.ReplicaOf(s.Status.Holder) + " of " + s.Name
	if err := r.fleet.Client(lab.Home).Delete(ctx, &s); err != nil {
		r.blame(err)
		return
	}
	f.Hits++
	sleep(ctx, 4*r.lease) // the coordinator makes it again, and it moves once
}

// deleteLease deletes a live replica's Lease.
func (r *run) deleteLease(ctx context.Context, f *fault) {
	f.Sign = "Leases deleted"
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
			err := r.fleet.Client(lab.Home).Delete(ctx, lease)
			if err == nil {
				f.Hits++
			}
			r.blame(client.IgnoreNotFound(err))
		}
	}
	sleep(ctx, time.Second)
}
