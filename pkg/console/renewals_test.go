package console

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestOnlyAChangeThatWasSeenCountsAsARenewal(t *testing.T) {
	lease := func(version string) []coordinationv1.Lease {
		return []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "r0-a", ResourceVersion: version}}}
	}
	r, now := &Renewals{}, time.Unix(1000, 0)
	for _, c := range []struct {
		version string
		after   time.Duration
		want    LeaseWatch
	}{
		{"1", 0, LeaseWatch{Since: now}},
		{"1", time.Second, LeaseWatch{Since: now}}, // it is as it was found
		{"2", 2 * time.Second, LeaseWatch{Since: now.Add(2 * time.Second), Changed: true}},
		{"2", 5 * time.Second, LeaseWatch{Since: now.Add(2 * time.Second), Changed: true}},
		{"3", 25 * time.Second, LeaseWatch{Since: now.Add(25 * time.Second), Changed: true}},
		{"4", 46 * time.Second, LeaseWatch{Since: now.Add(46 * time.Second)}}, // it may have stopped long ago
	} {
		if got := r.See(lease(c.version), now.Add(c.after))["r0-a"]; got != c.want {
			t.Errorf("version %s, seen after %v: %+v, want %+v", c.version, c.after, got, c.want)
		}
	}
	if r.See(nil, now); len(r.leases) != 0 {
		t.Error("a Lease that is gone is remembered")
	}
	if seen := (*Renewals)(nil).See(lease("1"), now); seen != nil {
		t.Errorf("nobody looks, and %v were seen", seen)
	}
}

// The clock of a replica, or of whoever asks, may be off by any time.
func TestReplicasThatRenewAreAliveWhateverTheTimeInTheirLeases(t *testing.T) {
	scheme, err := Scheme()
	must.Succeed(t, err)
	const step = 10 * time.Second / 4 // of a live replica
	for name, c := range map[string]struct {
		off   []time.Duration // the replicas' clocks
		dead  []time.Duration // and those of replicas that died as long ago as an hour
		looks bool
	}{
		"all clocks are right":          {off: []time.Duration{0, 0}},
		"a clock is a little ahead":     {off: []time.Duration{9 * time.Second}},
		"all are behind":                {off: []time.Duration{-time.Minute, -time.Hour}, looks: true},
		"one is behind":                 {off: []time.Duration{0, -time.Minute}, looks: true},
		"one is ahead":                  {off: []time.Duration{0, 2 * time.Hour}, looks: true},
		"one is dead":                   {off: []time.Duration{0}, dead: []time.Duration{0}, looks: true},
		"one is dead, and was ahead":    {off: []time.Duration{0}, dead: []time.Duration{2 * time.Hour}, looks: true},
		"all are dead":                  {dead: []time.Duration{0, 0}, looks: true},
		"all are dead, and were ahead":  {dead: []time.Duration{2 * time.Hour, 3 * time.Hour}, looks: true},
		"one is ahead of one that died": {off: []time.Duration{time.Hour}, dead: []time.Duration{0}, looks: true},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			home := fake.NewClientBuilder().WithScheme(scheme).Build()
			want := map[string]ReplicaState{}
			add := func(name string, state ReplicaState, renewed time.Time) *coordinationv1.Lease {
				l := lease(name, 0)
				l.Namespace, l.ResourceVersion, l.Spec.RenewTime.Time = "ns", "", renewed
				must.Succeed(t, home.Create(t.Context(), &l))
				want[name] = state
				return &l
			}
			for i, off := range c.dead {
				add(fmt.Sprint("dead", i), Quiet, time.Now().Add(off-time.Hour))
			}
			for i, off := range c.off {
				l := add(fmt.Sprint("r", i), Live, time.Now().Add(off))
				var renew func()
				renew = func() {
					l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(step)
					if t.Context().Err() == nil && home.Update(t.Context(), l) == nil {
						time.AfterFunc(step, renew)
					}
				}
				time.AfterFunc(step, renew)
			}
			g, snapshot, began := Gatherer{Namespace: "ns"}, Snapshot{Now: time.Now()}, time.Now()
			snapshot.Records, err = inspect.Read(t.Context(), home, "ns", "")
			must.Succeed(t, err)
			must.Succeed(t, g.lookAgain(t.Context(), home, &snapshot))
			if took := time.Since(began); took > 10*time.Second/3 || (took > 0) != c.looks {
				t.Errorf("it took %v", took)
			}
			got := map[string]ReplicaState{}
			for _, r := range readLeases(snapshot).byID {
				got[r.Name] = r.State
			}
			expect.Equal(t, "states", want, got)
		})
	}
}

// Leases are listed after records.
func TestAReplicaThatEndsBetweenTwoListsIsNotTakenForDead(t *testing.T) {
	scheme, err := Scheme()
	must.Succeed(t, err)
	s := healthy()
	s.Now = time.Now()
	var all []client.Object
	for i := range s.Records.Leases {
		s.Records.Leases[i].Spec.RenewTime = &metav1.MicroTime{Time: s.Now}
		all = append(all, &s.Records.Leases[i])
	}
	for i := range s.Records.Shards {
		all = append(all, &s.Records.Shards[i])
	}
	for _, o := range all {
		o.SetNamespace("ns")
		o.SetResourceVersion("")
	}
	ends := all[1]
	between := func(ctx context.Context, home client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := home.List(ctx, list, opts...)
		if ends != nil {
			err = errors.Join(err, home.Delete(ctx, ends))
			for _, r := range list.DeepCopyObject().(*tenurev1alpha1.ShardList).Items {
				r.Spec.Assignee, r.Status.Holder = "r0-aaaaaa", "r0-aaaaaa"
				err = errors.Join(err, home.Update(ctx, &r))
			}
			ends = nil
		}
		return err
	}
	home := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).
		WithInterceptorFuncs(interceptor.Funcs{List: between}).Build()
	s.Records, err = inspect.Read(t.Context(), home, "ns", "")
	must.Succeed(t, err)
	must.Succeed(t, Gatherer{Namespace: "ns"}.lookAgain(t.Context(), home, &s))
	if f := Assess(s); !f.Healthy {
		t.Errorf("findings: %q", said(f))
	}
}

// A look is too short for it.
func TestWhetherAReplicaLivesThatSeldomRenewsMayStayUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := Scheme()
		must.Succeed(t, err)
		l := lease("r0", -time.Hour)
		l.Namespace, l.ResourceVersion, l.Spec.RenewTime.Time = "ns", "", time.Now().Add(time.Hour)
		l.Annotations[tenurev1alpha1.LeaseDurationAnnotation] = "1m"
		home, snapshot := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&l).Build(), Snapshot{Now: time.Now()}
		snapshot.Records, err = inspect.Read(t.Context(), home, "ns", "")
		must.Succeed(t, err)
		must.Succeed(t, Gatherer{Namespace: "ns"}.lookAgain(t.Context(), home, &snapshot))
		r := readLeases(snapshot).byID["r0-aaaaaa"]
		if r.State != Live || !r.Doubtful || r.RenewedAgo.Duration() != longestLook {
			t.Errorf("it is %+v", r)
		}
	})
}
