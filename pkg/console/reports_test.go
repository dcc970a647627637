package console

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// paged is a client that lists events one at a time.
type paged struct{ client.Client }

func (p paged) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if err := p.Client.List(ctx, list, opts...); err != nil || o.Limit == 0 {
		return err
	}
	events := list.(*corev1.EventList)
	from, _ := strconv.Atoi(o.Continue)
	if events.Items = events.Items[from:]; len(events.Items) > 1 {
		events.Items, events.Continue = events.Items[:1], strconv.Itoa(from+1)
	}
	return nil
}

func TestTheLastThatReplicasSaidOfAClusterMayStandOnAnyPage(t *testing.T) {
	var events []client.Object
	for i, cluster := range []string{"away", "back", "away", "back"} {
		reason := clusterhealth.ReasonUsable
		if i == 1 || i == 2 {
			reason = clusterhealth.ReasonUnreachable
		}
		events = append(events, event(cluster, "", reason, time.Now().Add(time.Duration(i-10)*time.Minute)))
	}
	for range 2 { // whatever the order of the pages
		all, err := Reports(t.Context(), paged{homeWith(events...)}, Snapshot{Namespace: "ns"})
		must.Succeed(t, err)
		got := map[string]string{}
		for _, a := range all {
			got[string(a.Cluster)] = a.Reason
		}
		expect.Equal(t, "what was said last", map[string]string{
			"away": clusterhealth.ReasonUnreachable, "back": clusterhealth.ReasonUsable}, got)
		for i, name := range []string{"a", "b", "c", "d"} { // now the last come first
			events[len(events)-1-i].SetName(name)
		}
	}
}

// What replicas say is ordered, and its age taken, by home's clock, which is one for all of them.
func TestWhatAReplicaSaysCountsWhateverItsClock(t *testing.T) {
	const minute = time.Minute
	type saying struct {
		reason   string
		ago, off time.Duration // by home's clock; and what the replica's clock is ahead
	}
	bad, good := clusterhealth.ReasonBadConfig, clusterhealth.ReasonUsable
	for name, c := range map[string]struct {
		said             []saying
		all, of, replica string // the reasons that Reports, ReportsAbout and complaints return
	}{
		"trouble":                         {[]saying{{bad, minute, 0}}, bad, bad, bad},
		"by one that is behind":           {[]saying{{bad, minute, -120 * minute}}, bad, bad, bad},
		"by one that is ahead":            {[]saying{{bad, minute, 120 * minute}}, bad, bad, bad},
		"that is over":                    {[]saying{{bad, 10 * minute, 120 * minute}, {good, minute, 0}}, good, good, ""},
		"that came back":                  {[]saying{{good, 10 * minute, 0}, {bad, minute, -120 * minute}}, bad, bad, bad},
		"that isn't said any more":        {[]saying{{bad, 25 * minute, 120 * minute}}, "", "", ""},
		"from before the replica began":   {[]saying{{bad, 20*minute + 30*time.Second, 120 * minute}}, "", "", ""},
		"in the second in which it did":   {[]saying{{bad, 20 * minute, 0}}, bad, bad, bad},
		"twice in a second, over at last": {[]saying{{good, minute, 2}, {bad, minute, 1}}, good, good, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now().Truncate(time.Second)
			var events []client.Object
			for _, s := range c.said {
				e := event("west", "u", s.reason, now.Add(s.off-s.ago))
				e.CreationTimestamp, e.InvolvedObject.ResourceVersion = metav1.NewTime(now.Add(-s.ago)), "7"
				events = append(events, e)
			}
			home, secret, s := homeWith(events...), &corev1.Secret{}, Snapshot{Namespace: "ns", Now: now}
			secret.Namespace, secret.Name, secret.UID, secret.ResourceVersion = "ns", "west", "u", "7"
			l := lease("r0", 0)
			l.CreationTimestamp, l.Spec.RenewTime.Time = metav1.NewTime(now.Add(-20*minute)), now
			s.Records.Leases = append(s.Records.Leases, l)
			reason := func(all []Answer, err error) string {
				must.Succeed(t, err)
				if len(all) == 0 {
					return ""
				}
				return all[0].Reason
			}
			expect.Equal(t, "reasons of Reports, ReportsAbout and complaints", []string{c.all, c.of, c.replica}, []string{
				reason(Reports(t.Context(), home, s)), reason(ReportsAbout(t.Context(), home, s, secret)),
				reason(complaints(t.Context(), home, "ns", []corev1.Secret{*secret}, nil, oldest(s), now)),
			})
		})
	}
}

func TestTroubleOfAFileEndsWhenTheFileIsRemoved(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var events []client.Object
	for i, c := range []struct{ said, want string }{
		{clusterhealth.ReasonBadConfig, clusterhealth.ReasonBadConfig}, {clusterhealth.ReasonRemoved, ""},
		{clusterhealth.ReasonUnreachable, clusterhealth.ReasonUnreachable},
	} {
		events = append(events, event("typo", "file:/clusters/typo.yaml", c.said, now.Add(time.Duration(i-9)*time.Minute)))
		home, got := homeWith(events...), []string{"", ""}
		all, err := Reports(t.Context(), home, Snapshot{Namespace: "ns"})
		must.Succeed(t, err)
		here, err := complaints(t.Context(), home, "ns", nil, nil, time.Time{}, now)
		must.Succeed(t, err)
		for i, said := range [][]Answer{all, here} {
			if len(said) > 0 {
				got[i] = said[0].Reason
			}
		}
		expect.Equal(t, "reasons of Reports and complaints after "+c.said, []string{c.want, c.want}, got)
	}
}

// A rollout may have cured it, and a replica that starts says only what is wrong.
func TestTroubleFromBeforeTheOldestReplicaBeganIsNotShown(t *testing.T) {
	began := time.Now().Truncate(time.Second).Add(-5 * time.Minute)
	var secret corev1.Secret
	secret.Name, secret.UID, secret.ResourceVersion = "west", "u", "7"
	only := map[string]types.UID{"west": "u"}
	for at, want := range map[time.Time]int{began: 2, began.Add(-time.Second): 0} {
		home := homeWith(event("typo", "file:/clusters/typo.yaml", clusterhealth.ReasonBadConfig, at),
			event("west", "u", clusterhealth.ReasonUnreachable, at))
		said, err := complaints(t.Context(), home, "ns", []corev1.Secret{secret}, only, began, began.Add(time.Minute))
		if must.Succeed(t, err); len(said) != want {
			t.Errorf("said %v after the replica began: %v", at.Sub(began), said)
		}
	}
}

// Replicas may be late to say that a cluster was removed.
func TestTroubleOfAClusterThatWasAddedAgainDoesNotEndWithTheOneBefore(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	bad, worse, removed := clusterhealth.ReasonBadConfig, clusterhealth.ReasonUnreachable, clusterhealth.ReasonRemoved
	home := homeWith(event("west", "before", bad, now.Add(-4*time.Minute)),
		event("west", "now", worse, now.Add(-3*time.Minute)), event("west", "before", removed, now.Add(-time.Minute)),
		event("east", "before", bad, now.Add(-2*time.Minute)), event("east", "before", removed, now.Add(-time.Minute)))
	all, err := Reports(t.Context(), home, Snapshot{Namespace: "ns"})
	must.Succeed(t, err)
	got := map[string]string{}
	for _, a := range all {
		got[string(a.Cluster)] = a.Reason
	}
	expect.Equal(t, "trouble", map[string]string{"west": worse}, got)
}
