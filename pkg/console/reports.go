package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// addReports adds what replicas report about clusters that can't be asked from here.
func (s *Snapshot) addReports(reports []Answer) {
	for _, a := range reports {
		i := slices.IndexFunc(s.Clusters, func(c Answer) bool { return c.Cluster == a.Cluster })
		if i < 0 {
			s.Clusters = append(s.Clusters, a)
		} else {
			s.Clusters[i].Reason, s.Clusters[i].Note, s.Clusters[i].Reported = a.Reason, a.Note, a.Reported
		}
	}
}

// Reports returns what the replicas of the snapshot reported last about each cluster, by their events of the last hour.
// It leaves out a cluster that never had trouble. It also leaves out trouble that wasn't reported again when it should
// have been: it is over, or the cluster was removed. And it leaves out what was said before the oldest of the replicas
// that are alive began: each reports what it finds. That a cluster has two names is reported by the
// coordinator, perhaps one that is gone: all that was said of it lately counts.
func Reports(ctx context.Context, home client.Client, s Snapshot) ([]Answer, error) {
	since := oldest(s)
	all, err := recentReports(ctx, home, s.Namespace, ofSecrets, func(e corev1.Event) bool {
		return !saidAt(e).Before(since)
	})
	if err != nil {
		return nil, err
	}
	names, err := recentReports(ctx, home, s.Namespace, ofShards, func(e corev1.Event) bool {
		return e.Reason == ReasonTwoNames
	})
	for _, n := range names { // trouble that replicas report comes first
		if !slices.ContainsFunc(all, func(a Answer) bool {
			return a.Cluster == n.Cluster && a.Reason != clusterhealth.ReasonUsable
		}) {
			all = append(all, n)
		}
	}
	return all, err
}

// Kinds of the objects that events are about.
const ofSecrets, ofShards = "Secret", "Shard"

// pageSize bounds how many events are in memory at a time: those of an hour may be many thousands.
const pageSize = 1000

// ReportsAbout is [Reports] about the cluster of one Secret as it is now. What was said before the oldest of the
// replicas that are alive in the snapshot began doesn't count.
func ReportsAbout(ctx context.Context, home client.Client, s Snapshot, secret *corev1.Secret) ([]Answer, error) {
	since := oldest(s)
	return recentReports(ctx, home, secret.Namespace, ofSecrets, func(e corev1.Event) bool {
		return isAbout(e, secret) && !saidAt(e).Before(since)
	})
}

// isAbout reports whether an event is about a Secret as it is now.
func isAbout(e corev1.Event, secret *corev1.Secret) bool {
	about := e.InvolvedObject
	return about.UID == secret.UID && about.ResourceVersion == secret.ResourceVersion
}

// saidAt is when home received an event, which is made anew each time that something is said. Home's clock orders what
// all replicas say, and what began when, in seconds: a replica may say something in the one in which it began.
// EventTime is by the clock of the replica, which may be off.
func saidAt(e corev1.Event) time.Time { return e.CreationTimestamp.Time }

func recentReports(ctx context.Context, home client.Client, namespace, kind string,
	of func(corev1.Event) bool) ([]Answer, error) {
	now := time.Now()
	all, err := reports(ctx, home, namespace, kind, of)
	return slices.DeleteFunc(all, func(a Answer) bool {
		return a.Reason != clusterhealth.ReasonUsable && now.Sub(a.Since) >= clusterhealth.TroubleEventMaxAge
	}), err
}

// oldest returns when the first of the replicas that are alive began; zero if there are none, as without sharding.
func oldest(s Snapshot) (began time.Time) {
	members := readLeases(s).byID
	for i := range s.Records.Leases {
		lease := &s.Records.Leases[i]
		r := members[protocol.Incarnation(lease.Name)]
		if r != nil && r.Acts() && (began.IsZero() || lease.CreationTimestamp.Time.Before(began)) {
			began = lease.CreationTimestamp.Time
		}
	}
	return began
}

// complaints returns what replicas report to be wrong with clusters that can't be judged from here:
//   - those of files in their folders, unless there is a Secret of that name, which is what serves the cluster then;
//   - those whose kubeconfigs only replicas may use;
//   - those whose kubeconfigs, as they are now, replicas refuse, which depends on their flags, or don't use, although
//     they serve the cluster by the one before.
//
// What was said before the oldest of the replicas began doesn't count.
func complaints(ctx context.Context, home client.Client, namespace string, secrets []corev1.Secret,
	only map[string]types.UID, oldest, now time.Time) ([]Answer, error) {
	all, err := reports(ctx, home, namespace, ofSecrets, func(e corev1.Event) bool {
		about := e.InvolvedObject
		_, here := kubeconfig.FileOf(about.UID)
		if i := slices.IndexFunc(secrets, func(s corev1.Secret) bool { return s.Name == about.Name }); i >= 0 {
			uid, ok := only[about.Name]
			asItIs := isAbout(e, &secrets[i])
			here = ok && uid == about.UID ||
				asItIs && (e.Reason == clusterhealth.ReasonBadConfig || e.Reason == clusterhealth.ReasonUsable ||
					e.Action == clusterhealth.ActionKeep)
		}
		return here && !saidAt(e).Before(oldest) && now.Sub(saidAt(e)) < clusterhealth.TroubleEventMaxAge
	})
	return slices.DeleteFunc(all, func(a Answer) bool { return a.Reason == clusterhealth.ReasonUsable }), err
}

func reports(ctx context.Context, home client.Client, namespace, kind string,
	of func(corev1.Event) bool) ([]Answer, error) {
	// A cluster that was removed and added again has another UID. Its trouble must not end with what is said late of the
	// one before.
	type about struct {
		name string
		uid  types.UID
	}
	last := map[about]corev1.Event{}
	for next := ""; ; {
		page := &corev1.EventList{}
		if err := home.List(ctx, page, client.InNamespace(namespace), client.MatchingFields{"involvedObject.kind": kind},
			client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, err
		}
		for _, e := range page.Items {
			// Invalid limits say nothing about the cluster, and no event reports that they were corrected.
			if e.ReportingController != clusterhealth.EventReporter || e.Reason == clusterhealth.ReasonBadLimits || !of(e) {
				continue
			}
			name := e.InvolvedObject.Name
			if kind == ofShards { // that is the layout of the name under which the cluster is served
				name, _, _ = strings.Cut(strings.TrimPrefix(e.Message, "cluster "), " ")
			}
			keepLast(last, about{name, e.InvolvedObject.UID}, e)
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	byName := map[string]corev1.Event{}
	for a, e := range last {
		if e.Reason != clusterhealth.ReasonRemoved {
			keepLast(byName, a.name, e)
		}
	}
	all := make([]Answer, 0, len(byName))
	for name, e := range byName {
		note := fmt.Sprintf("%s (said at %s)", strings.TrimPrefix(e.Message, "cluster "+name+": "),
			saidAt(e).Format(time.TimeOnly))
		all = append(all, Answer{Cluster: keyspace.ClusterName(name), Since: saidAt(e), Reason: e.Reason, Note: note,
			Reported: true})
	}
	return all, nil
}

// keepLast keeps an event unless what is there was said later.
func keepLast[K comparable](last map[K]corev1.Event, of K, e corev1.Event) {
	l, known := last[of]
	if !known || cmp.Or(saidAt(l).Compare(saidAt(e)), l.EventTime.Compare(e.EventTime.Time)) <= 0 {
		last[of] = e
	}
}
