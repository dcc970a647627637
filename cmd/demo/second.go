package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// replicateWithin bounds each wait of the second act.
	replicateWithin = time.Minute
	// What is done, and where.
	deletedIn, scaledIn, frozenIn = "east", "west", "north"
	scaledTo                      = 5
)

// replicate is the second act: Deployments in all clusters, two copies that somebody meddles with, and a cluster that
// freezes.
func (st *story) replicate(ctx context.Context) error {
	b, n := st.board, st.settings.deployments
	b.say(fmt.Sprintf("all %d Ats are DONE; %d Deployments are created, to be kept in all clusters", st.settings.ats, n))
	began, sources := time.Now(), planDeployments(n)
	for _, d := range sources {
		if err := st.fleet.Client(homeCluster).Create(ctx, d); err != nil {
			return fmt.Errorf("creating Deployment %s: %w", d.Name, err)
		}
	}
	all := func(now snapshot) bool { return now.replicated == n }
	if err := st.until(ctx, replicateWithin, "all Deployments are Replicated", all); err != nil {
		return err
	}
	st.second.within = time.Since(began)
	if err := st.meddle(ctx, sources[0].Name, sources[1].Name); err != nil {
		return err
	}
	if err := st.freeze(ctx, sources); err != nil {
		return err
	}
	if err := st.until(ctx, replicateWithin, "all Deployments are Replicated again", all); err != nil {
		return err
	}
	st.second.caught = time.Since(st.second.frozenAt) - st.second.frozen
	b.say(fmt.Sprintf("%s has caught up: everything is as wanted again", frozenIn))
	return nil
}

// meddle deletes one copy and scales another, and waits until both are as they were.
func (st *story) meddle(ctx context.Context, deleted, scaled string) error {
	b := st.board
	b.say(fmt.Sprintf("all are Replicated; %s in %s is deleted, %s in %s scaled by hand", deleted,
		deletedIn, scaled, scaledIn))
	st.second.deletedName, st.second.scaledName = deleted, scaled
	was := b.deployment(deletedIn, deleted)
	if err := st.fleet.Client(deletedIn).Delete(ctx, was.DeepCopy()); err != nil {
		return fmt.Errorf("deleting copy %s in cluster %s: %w", deleted, deletedIn, err)
	}
	target := b.deployment(scaledIn, scaled).DeepCopy()
	repaired := target.Generation + 2 // one for our change, one for that of the replicas
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: scaledTo}}
	scale.Namespace, scale.Name = target.Namespace, target.Name
	if err := st.fleet.Client(scaledIn).SubResource("scale").Update(ctx, target,
		client.WithSubResourceBody(scale)); err != nil {
		return fmt.Errorf("scaling copy %s in cluster %s: %w", scaled, scaledIn, err)
	}
	return st.until(ctx, replicateWithin, "both copies are repaired", func(snapshot) bool {
		again, back := b.deployment(deletedIn, deleted), b.deployment(scaledIn, scaled)
		return again.UID != was.UID && isCurrent(again, b.deployment(homeCluster, deleted)) &&
			back.Generation >= repaired && isCurrent(back, b.deployment(homeCluster, scaled))
	})
}

// freeze stops one cluster's API server while all Deployments change, and lets it go on once the others are through
// and the conditions show which one is away.
func (st *story) freeze(ctx context.Context, sources []*appsv1.Deployment) (err error) {
	b, plane := st.board, st.fleet.Planes.Cluster(frozenIn)
	b.say(fmt.Sprintf("both are repaired; %s is frozen (SIGSTOP), and all get another image", frozenIn))
	st.second.frozenAt = time.Now()
	if err := plane.Pause(); err != nil {
		return err
	}
	b.freeze(frozenIn)
	defer func() {
		st.second.frozen = time.Since(st.second.frozenAt)
		b.freeze("")
		err = errors.Join(err, plane.Resume())
	}()
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, nextImage)
	for _, d := range sources {
		if err := st.fleet.Client(homeCluster).Patch(ctx, d,
			client.RawPatch("application/json-patch+json", patch)); err != nil {
			return fmt.Errorf("changing the image of Deployment %s: %w", d.Name, err)
		}
	}
	shows := func(source *appsv1.Deployment) bool {
		return source.Spec.Template.Spec.Containers[0].Image == nextImage && showsAway(source, frozenIn)
	}
	away := "the other clusters are through, and the conditions show that " + frozenIn + " is away"
	err = st.until(ctx, replicateWithin, away,
		func(now snapshot) bool {
			for _, c := range now.clusters {
				if c.name != frozenIn && c.copies != len(sources) {
					return false
				}
			}
			st.second.shownBy = b.countSources(shows)
			return st.second.shownBy == len(sources)
		})
	st.second.shownAfter = time.Since(st.second.frozenAt)
	if err == nil {
		b.say(fmt.Sprintf("the other clusters are through, the conditions show %s; it goes on", frozenIn))
	}
	return err
}
