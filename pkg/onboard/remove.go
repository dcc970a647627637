package onboard

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Remove takes the cluster from the fleet, and waits until the fleet has let go of it, at most so long; 0 doesn't wait.
// With an admin's connection it then deletes what Add created in the cluster, but no CustomResourceDefinition and
// nothing that others made.
func (o Onboarder) Remove(ctx context.Context, wait time.Duration) (r Report, err error) {
	if wait <= 0 && o.Workload != nil { // replicas would lose their rights while they work there
		return r, &console.UsageError{Text: "--wait 0: not with --kubeconfig or --context: the cluster is cleaned up once " +
			"the replicas have let go of it, so leave one of them out"}
	}
	home, err := o.home()
	if err != nil {
		return r, err
	}
	known, err := o.readSecrets(ctx, home)
	if err != nil {
		return r, err
	}
	snapshot, err := o.snapshot(ctx, false)
	if err != nil {
		return r, err
	}
	there, atHome, err := o.toClean(ctx, home, known, snapshot.Records.Layouts)
	if err != nil {
		return r, err
	}
	fleets, err := o.fleets(ctx, home)
	if err != nil {
		return r, err
	}
	if known.Own == nil && there == nil && serving(console.Assess(snapshot), o.Name).Taken == 0 && len(fleets) == 1 {
		return r, o.unknown(known)
	}
	if err := o.deleteSecret(ctx, home, known.Own, &r); err != nil {
		return r, err
	}
	if err := o.awaitReleases(ctx, home, fleets, wait, &r); err != nil {
		return r, err
	}
	if there == nil {
		r.Notes = append(r.Notes, o.untouched(known.Own)...)
		return r, nil
	}
	return o.clean(ctx, atHome, there, r)
}

// toClean connects to the cluster that is to be cleaned up, and makes sure that it is the one to remove. It also
// returns the home cluster's UID. It returns neither without an admin's connection.
func (o Onboarder) toClean(ctx context.Context, home client.Client, known clusterSecrets,
	layouts []tenurev1alpha1.Shard) (there client.Client, atHome string, err error) {
	if o.Workload == nil {
		return nil, "", nil
	}
	if there, err = o.workload(); err != nil {
		return nil, "", err
	}
	if atHome, err = uidOf(ctx, home); err != nil { // found out before anything is done
		return nil, "", fmt.Errorf("with --kubeconfig or --context the home cluster must be told from the one that is "+
			"cleaned up, by the right to get namespace %s in both: %w", metav1.NamespaceSystem, err)
	}
	if err := o.mayClean(ctx, home, there, atHome, known, layouts); err != nil {
		return nil, "", err
	}
	if _, err := readLive(ctx, there, nil); err != nil { // without the right to read it all, nothing is begun
		return nil, "", fmt.Errorf("cluster %s: %w: %s", o.Name, err, letsGo)
	}
	return there, atHome, nil
}

// letsGo is the way out where a cluster can't be cleaned up.
const letsGo = "so nothing was done; without --kubeconfig and --context the fleet lets go of it all the same"

// deleteSecret deletes the cluster's Secret, nil if there is none.
func (o Onboarder) deleteSecret(ctx context.Context, home client.Client, own *corev1.Secret, r *Report) error {
	secret := fmt.Sprintf("Secret %s/%s", o.Namespace, o.Name)
	if own == nil {
		r.line("home", secret, "not there")
		return nil
	}
	if value := own.Labels[kubeconfig.Label]; value != "true" {
		return fmt.Errorf("%s: label %s is %q, so it is no cluster's, and wasn't deleted", secret, kubeconfig.Label, value)
	}
	this := client.Preconditions{UID: &own.UID, ResourceVersion: &own.ResourceVersion}
	if err := client.IgnoreNotFound(home.Delete(ctx, own, this)); err != nil {
		return fmt.Errorf("deleting %s: %w", secret, err)
	}
	r.Changed = true
	r.line("home", secret, "%s", deleted)
	return nil
}

// awaitReleases waits until the fleets have let go of the cluster, at most so long for all together; 0 doesn't wait.
func (o Onboarder) awaitReleases(ctx context.Context, home client.Client, fleets []keyspace.Fleet, wait time.Duration,
	r *Report) error {
	began := time.Now()
	for _, fleet := range fleets {
		of, what := o, "shards"
		if of.Fleet = fleet; fleet != o.Fleet {
			what = fmt.Sprintf("shards of fleet %q", fleet)
			alive, err := of.alive(ctx, home, wait)
			if err != nil {
				return err
			}
			if !alive {
				r.note(fmt.Sprintf("%s weren't waited for: no replica of it renews its Lease", what))
				continue
			}
		}
		within := wait
		if within > 0 {
			within = max(within-time.Since(began), time.Millisecond) // 0 would mean not to wait
		}
		s, err := of.awaitRelease(ctx, home, within, r.Changed)
		if err != nil {
			return err
		}
		if s.Taken > 0 {
			r.line("home", what, "%s", s)
			r.note("replicas weren't waited for: they let go of these shards by themselves")
		} else {
			r.line("home", what, "let go of, after %.1fs", time.Since(began).Seconds())
		}
		if s.Shards > 0 && s.Taken == 0 {
			r.line("home", fmt.Sprintf("%d Shard records", s.Shards), "left, held by nobody")
			r.note("Shard records stay for their epochs, which go on if the cluster comes back")
		}
	}
	return nil
}

// fleets returns the fleets whose replicas may work in the cluster: the one that was named, and any other of the
// namespace that holds shards of it, since they all read the same Secrets.
func (o Onboarder) fleets(ctx context.Context, home client.Client) ([]keyspace.Fleet, error) {
	records := &tenurev1alpha1.ShardList{}
	if err := home.List(ctx, records, client.InNamespace(o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Shard records in namespace %s of the home cluster: %w", o.Namespace, err)
	}
	all := []keyspace.Fleet{o.Fleet}
	for _, s := range records.Items {
		fleet := keyspace.Fleet(s.Labels[tenurev1alpha1.FleetLabel])
		if s.Spec.Cluster == o.Name && s.Status.Holder != "" && !slices.Contains(all, fleet) {
			all = append(all, fleet)
		}
	}
	return all, nil
}

// alive reports whether any replica of the fleet may still work. Those that look quiet, or whose Leases' times are far
// ahead, are watched for as long as their Leases last, within a bound: a clock may be off.
func (o Onboarder) alive(ctx context.Context, home client.Reader, within time.Duration) (bool, error) {
	seen, began := &console.Renewals{}, time.Now()
	for {
		_, f, err := o.records(ctx, home, seen)
		if err != nil || slices.ContainsFunc(f.Replicas, func(r console.Replica) bool { return r.Acts() && !r.Doubtful }) {
			return err == nil, err
		}
		watched := time.Since(began)
		if watched >= within || !slices.ContainsFunc(f.Replicas, func(r console.Replica) bool {
			return (r.State == console.Quiet || r.Doubtful) && watched < r.LeaseDuration.Duration()
		}) { // it isn't known whether those live whose Leases' times are still to come
			return slices.ContainsFunc(f.Replicas, console.Replica.Acts), nil
		}
		select {
		case <-time.After(pollMost):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// mayClean refuses to clean up in a cluster that isn't the one to remove, that is served under another name or from
// another namespace, or that is another fleet's home: not the one with the UID atHome. Without a Secret, the fleet's
// layout must name the cluster: a mistyped name must not take another fleet's account away.
func (o Onboarder) mayClean(ctx context.Context, home, there client.Client, atHome string, known clusterSecrets,
	layouts []tenurev1alpha1.Shard) error {
	this := target{Server: o.Workload.Host}
	var err error
	if this.UID, err = o.identify(ctx, there); err != nil {
		return fmt.Errorf("%w: %s", err, letsGo)
	}
	for i := range known.Others {
		if field, value := same(&known.Others[i], this); field != "" {
			return fmt.Errorf("--kubeconfig: this is cluster %s (its Secret has %s %s), not %s", known.Others[i].Name,
				field, value, o.Name)
		}
	}
	if err := o.servedElsewhere(ctx, home, this.UID); err != nil {
		return err
	}
	switch isOne, err := isHome(ctx, there); {
	case err != nil:
		return fmt.Errorf("cluster %s: %w: %s", o.Name, err, letsGo)
	case isOne && this.UID != atHome:
		return fmt.Errorf("--kubeconfig: %s, whose replicas run with the service account that would be deleted, %s",
			o.othersHome(), letsGo)
	}
	if known.Own != nil {
		if err := known.whose(this); err != nil {
			return fmt.Errorf("--kubeconfig isn't of this cluster, so nothing was done: %w", err)
		}
		return nil
	}
	if !served(layouts, o.Name, this.UID) {
		return fmt.Errorf("%w; and no record says that this fleet served the cluster at %s under that name, so nothing was "+
			"done there. If --namespace, --fleet and the home cluster are right, tenure cluster add %s --wait 0 with the same "+
			"--kubeconfig first, and then this again; or delete by hand what has the label %s=%s",
			o.unknown(known), this.Server, o.Name, madeByLabel, madeBy)
	}
	return nil
}

// aliveWithin bounds for how long a fleet's Leases are watched before it counts as dead. It is enough for lease
// durations of up to four minutes: a live replica renews four times in one.
const aliveWithin = time.Minute

// servedElsewhere returns an error if replicas serve the cluster of that UID under another name, or from another
// namespace of home. Secrets don't show that: the cluster may be of a folder's file. It looks at all fleets of the
// namespace, and at those of all namespaces if the user may list all records.
func (o Onboarder) servedElsewhere(ctx context.Context, home client.Client, uid string) error {
	records := &tenurev1alpha1.ShardList{}
	err := home.List(ctx, records)
	if apierrors.IsForbidden(err) {
		err = home.List(ctx, records, client.InNamespace(o.Namespace))
	}
	if err != nil {
		return fmt.Errorf("listing the Shard records of the home cluster: %w: %s", err, letsGo)
	}
	type fleet struct {
		namespace string
		name      keyspace.Fleet
	}
	dead := map[fleet]bool{}
	for _, s := range records.Items {
		its := fleet{s.Namespace, keyspace.Fleet(s.Labels[tenurev1alpha1.FleetLabel])}
		if s.Spec.Layout == nil || s.Spec.Layout.ClusterUID != uid || dead[its] {
			continue
		}
		of, name := o, o.Name
		of.Namespace, of.Fleet = its.namespace, its.name
		if of.Namespace != o.Namespace {
			name = "" // no name is the right one there
		}
		snapshot, f, err := of.records(ctx, home, nil)
		if err != nil {
			return fmt.Errorf("%w: %s", err, letsGo)
		}
		other := servedAs(f, snapshot.Records.Layouts, name, uid)
		if other == "" {
			continue
		}
		o.tell("waiting up to %s to see whether replicas in namespace %s live, which serve the cluster as %s",
			span(aliveWithin), its.namespace, other)
		switch alive, err := of.alive(ctx, home, aliveWithin); {
		case err != nil:
			return fmt.Errorf("%w: %s", err, letsGo)
		case !alive: // no replica of it renews its Lease, so what it holds isn't served
			dead[its] = true
		default:
			return fmt.Errorf("--kubeconfig: replicas in namespace %s serve this cluster as %s, by its layout in home, and may "+
				"use the service account that would be deleted, so nothing was done. Leave out --kubeconfig and --context to take "+
				"away %s in namespace %s alone; if you have just taken the other away, try again when its shards are let go of "+
				"(tenure status)", of.Namespace, other, o.Name, o.Namespace)
		}
	}
	return nil
}

// served reports whether a fleet's layouts name the cluster of that UID. Layouts outlast the cluster's Secret.
func served(layouts []tenurev1alpha1.Shard, name, uid string) bool {
	return slices.ContainsFunc(layouts, func(l tenurev1alpha1.Shard) bool {
		return l.Spec.Cluster == name && uid != "" && l.Spec.Layout.ClusterUID == uid
	})
}

// clean deletes what Add created in the cluster. atHome is the home cluster's UID.
func (o Onboarder) clean(ctx context.Context, atHome string, there client.Client, r Report) (Report, error) {
	found, err := readLive(ctx, there, nil)
	if err != nil {
		return r, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	keep, err := o.keeper(ctx, atHome, there)
	if err != nil {
		return r, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	made, err := carryOut(ctx, there, decideRemoval(found, keep))
	done := summarize(o.Name, made)
	r.Lines, r.Notes, r.Changed = append(r.Lines, done.Lines...), append(r.Notes, done.Notes...), r.Changed || done.Changed
	if err != nil {
		return r, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	if leavesTokens(made, keep) {
		r.note(fmt.Sprintf("tokens of the service account that is left stay valid until they expire, or "+
			"until it is deleted: kubectl -n %s delete serviceaccount %s", accountNamespace, accountName))
	}
	if n := countAts(ctx, there); n > 0 {
		r.note(fmt.Sprintf("%d Ats are left, and their Pods", n))
	}
	r.Notes = append(r.Notes, o.unmanaged(ctx, there, Roles)...)
	return r, nil
}

// untouched says what stays in a cluster in which nothing is cleaned up. own is its Secret, nil if there was none.
func (o Onboarder) untouched(own *corev1.Secret) []string {
	notes := []string{"nothing was touched in the cluster itself, and its tokens stay valid until they expire; " +
		"--kubeconfig or --context of it cleans up there"}
	if own != nil {
		if was, told := accessOf(own); !told || slices.Contains(was.Roles, DeploymentSource) {
			notes = append(notes, "if Deployments of it are copied to other clusters, "+o.toDelete())
		}
	}
	return notes
}

// unmanaged says which Deployments of a cluster nobody manages any more when the fleet loses the rights of these roles.
// Without the right to list them, that isn't known.
func (o Onboarder) unmanaged(ctx context.Context, there client.Client, roles []Role) (notes []string) {
	if len(roles) == 0 {
		return nil
	}
	copies, sources := countDeployments(ctx, there)
	if copies > 0 && slices.Contains(roles, Deployments) {
		notes = append(notes, fmt.Sprintf("copies of Deployments left: %d. Nobody keeps or deletes them: delete them "+
			"there if they aren't wanted. Their sources can't be deleted until %s, or another name of it, is off their "+
			"annotation %s", copies, o.Name, replication.AnnotationCopies))
	}
	if sources > 0 && slices.Contains(roles, DeploymentSource) {
		notes = append(notes, fmt.Sprintf("Deployments left that are copied to other clusters: %d; %s", sources,
			o.toDelete()))
	}
	return notes
}

// toDelete says how Deployments get rid of the finalizer that waits for their copies to be deleted.
func (o Onboarder) toDelete() string {
	return fmt.Sprintf("they can't be deleted until the finalizer %s is removed: tenure cluster add %s with %s among the "+
		"roles of --role, and take their label %s away, which deletes their copies, too; or leave the copies, and remove "+
		"the finalizer by kubectl -n NAMESPACE edit deployment NAME", replication.Finalizer, o.Name, DeploymentSource,
		replication.LabelReplicate)
}

// leavesTokens reports whether the service account is left because Add didn't create it. (Where the replicas run with
// it, it must stay; SECURITY.md says how they get another.)
func leavesTokens(made []step, keep func(*unstructured.Unstructured) string) bool {
	return slices.ContainsFunc(made, func(s step) bool {
		return s.Action == left && s.Object.GetKind() == kindAccount && !ours(s.Object) && keep(s.Object) == ""
	})
}

// keeper returns a function that says why an object stays although it is ours: the replicas run with it, or the
// namespace has other users.
func (o Onboarder) keeper(ctx context.Context, atHome string,
	there client.Client) (func(*unstructured.Unstructured) string, error) {
	uid, err := uidOf(ctx, there)
	if err != nil {
		return nil, err
	}
	others, unknown := inhabitants(ctx, o.Workload, accountNamespace) // not fatal: an aggregated API may be away
	return func(object *unstructured.Unstructured) string {
		shared := object.GetKind() == kindNamespace || object.GetKind() == kindAccount
		switch {
		case shared && uid == atHome:
			return "the replicas run with it: this is the home cluster"
		case object.GetKind() == kindNamespace && unknown != nil:
			return "what else it holds isn't known: " + unknown.Error()
		case object.GetKind() == kindNamespace && len(others) > 0:
			return "it holds " + few(others)
		}
		return ""
	}, nil
}
