package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
)

// watchFacts are how the Ats of one cluster reached the replicas.
type watchFacts struct {
	// filtered and unfiltered count the requests with and without a shard's selector.
	filtered, unfiltered int
	// kept counts the objects and events that replicas were sent, discarded those that belong to another shard than
	// the one that asked.
	kept, discarded int
}

// observation is everything that the judgement is about, as the API servers, their audit logs and the replicas'
// metrics show it at the end.
type observation struct {
	expected int
	lease    time.Duration
	ats      map[string][]cnatv1alpha1.At // by cluster
	logs     map[string]auditFacts        // by cluster
	shards   []tenurev1alpha1.Shard       // all of them
	live     map[string]string            // incarnation -> replica, of processes that run
	replicas []string                     // that run
	handoffs []handoff                    // as the watch showed them
	watches  map[string]watchFacts        // by cluster
	second   secondFacts
	traces   []traceFacts
	witness  *witness.Report
	took     time.Duration // from when the replicas were started until the Ats were DONE
}

// gather reads it all.
func (st *story) gather(ctx context.Context) (*observation, error) {
	now := st.board.snapshot()
	o := &observation{
		expected: st.settings.ats, lease: st.settings.leaseDuration, handoffs: now.handoffs, took: st.took,
		ats: map[string][]cnatv1alpha1.At{}, logs: map[string]auditFacts{},
		watches: map[string]watchFacts{}, live: map[string]string{},
	}
	for _, r := range st.board.allReplicas() {
		if !r.Ended() {
			o.replicas = append(o.replicas, r.Name)
		}
	}
	if err := o.readHome(ctx, st.fleet.Client(homeCluster)); err != nil {
		return nil, err
	}
	received, err := st.received(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range workloadClusters {
		if err := o.readWorkload(ctx, st.fleet, name, received[name]); err != nil {
			return nil, err
		}
	}
	if o.second, err = st.readSecond(o.logs); err != nil {
		return nil, err
	}
	if o.traces, err = st.findTraces(ctx); err != nil {
		return nil, err
	}
	o.witness, err = witness.Read(st.fleet.Planes.Dir(),
		witness.Options{Facts: o.facts(), Rules: witness.Rules{Users: []string{lab.AccountUser}}})
	if err != nil {
		return nil, fmt.Errorf("judging the audit logs: %w", err)
	}
	return o, nil
}

func (o *observation) readHome(ctx context.Context, home client.Client) error {
	shards := &tenurev1alpha1.ShardList{}
	if err := home.List(ctx, shards, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("reading the Shards: %w", err)
	}
	o.shards = slices.DeleteFunc(shards.Items, func(s tenurev1alpha1.Shard) bool { return s.Spec.Layout != nil })
	leases := &coordinationv1.LeaseList{}
	if err := home.List(ctx, leases, client.InNamespace(namespace),
		client.HasLabels{tenurev1alpha1.ReplicaLabel}); err != nil {
		return fmt.Errorf("reading the Leases: %w", err)
	}
	runs := map[string]bool{}
	for _, name := range o.replicas {
		runs[name] = true
	}
	for _, lease := range leases.Items {
		name, sealed := lease.Labels[tenurev1alpha1.ReplicaLabel], lease.Annotations[tenurev1alpha1.SealedAnnotation]
		if runs[name] && sealed == "" {
			o.live[lease.Name] = name
		}
	}
	return nil
}

func (o *observation) readWorkload(ctx context.Context, f *lab.Fleet, name string, w watchFacts) error {
	c := f.Client(name)
	for _, ns := range atNamespaces {
		ats := &cnatv1alpha1.AtList{}
		if err := c.List(ctx, ats, client.InNamespace(ns)); err != nil {
			return fmt.Errorf("reading the Ats of cluster %s: %w", name, err)
		}
		o.ats[name] = append(o.ats[name], ats.Items...)
	}
	facts, err := readAudit(f.Planes.Cluster(name).AuditLog(), lab.AccountUser)
	if err != nil {
		return err
	}
	o.logs[name] = facts
	w.filtered, w.unfiltered = facts.filtered, facts.unfiltered
	o.watches[name] = w
	return nil
}

// received asks the live replicas what they were sent, by cluster.
func (st *story) received(ctx context.Context) (map[string]watchFacts, error) {
	sum := map[string]watchFacts{}
	for _, r := range st.board.allReplicas() {
		if r.Ended() {
			continue
		}
		m, err := r.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		for _, cluster := range workloadClusters {
			of := map[string]string{"cluster": cluster}
			kept, unknown := m.Sum("tenure_watch_objects_kept_total", of)
			discarded, err := m.Sum("tenure_watch_objects_discarded_total", of)
			if err := errors.Join(unknown, err); err != nil {
				return nil, err
			}
			w := sum[cluster]
			w.kept, w.discarded = w.kept+int(kept), w.discarded+int(discarded)
			sum[cluster] = w
		}
	}
	return sum, nil
}

// facts returns what the witness must know and the audit logs don't show.
func (o *observation) facts() witness.Facts {
	facts := witness.Facts{Whole: true} // the control planes are new
	for cluster, ats := range o.ats {
		for _, at := range ats {
			facts.Ats = append(facts.Ats, witness.At{
				Cluster: cluster, Namespace: at.Namespace, Name: at.Name, UID: string(at.UID),
				Schedule: at.Spec.Schedule, Phase: string(at.Status.Phase),
			})
		}
	}
	return facts
}
