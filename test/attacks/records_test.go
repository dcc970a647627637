package attacks

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/test/must"
)

// recordCase is described in testdata/records.yaml.
type recordCase struct {
	Name         string
	Shard, Lease map[string]any
	Text         string
}

func (c recordCase) caseName() string { return c.Name }

// sound are the records of one replica that holds all of a cluster in two shards.
func sound(now time.Time) inspect.Records {
	r := inspect.Records{Leases: []coordinationv1.Lease{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "r1-aaaaaa", ResourceVersion: "1", Labels: map[string]string{
				tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember, tenurev1alpha1.ReplicaLabel: "r1",
			}, Annotations: map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s"}},
			Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now))},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "tenure-coordinator", ResourceVersion: "2", Labels: map[string]string{
				tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleCoordinator,
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("r1-aaaaaa")},
		},
	}}
	for _, prefix := range []string{"0", "1"} {
		r.Shards = append(r.Shards, tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: "west.p" + prefix, ResourceVersion: "3"},
			Spec:       tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: prefix, Generation: 1},
			Status:     tenurev1alpha1.ShardStatus{Holder: "r1-aaaaaa", Epoch: 1},
		})
	}
	return r
}

// Forged records are reported, and all others are judged as before. The tests of the protocol check that replicas
// don't act on forged records.
func TestRecords(t *testing.T) {
	now := time.Now().UTC()
	fill := strings.NewReplacer("${LONG}", repeat("long", 1<<20/4), "${NOW}", now.Format(metav1.RFC3339Micro))
	for _, c := range read[recordCase](t, "records") {
		t.Run(c.Name, func(t *testing.T) {
			records := sound(now)
			if c.Shard != nil {
				var s tenurev1alpha1.Shard
				forge(t, c.Shard, &s, fill)
				s.Spec.Generation = max(s.Spec.Generation, 1) // the CRD's default
				if s.Name == records.Shards[0].Name {
					records.Shards = records.Shards[1:] // the forged record takes its place
				}
				records.Shards = append(records.Shards, s)
			} else {
				var l coordinationv1.Lease
				forge(t, c.Lease, &l, fill)
				if l.Labels[tenurev1alpha1.RoleLabel] == tenurev1alpha1.RoleMember &&
					l.Annotations[tenurev1alpha1.LeaseDurationAnnotation] == "" {
					// without this annotation nothing else of the Lease is read
					metav1.SetMetaDataAnnotation(&l.ObjectMeta, tenurev1alpha1.LeaseDurationAnnotation, "10s")
				}
				records.Leases = append(records.Leases, l)
			}
			var screen strings.Builder
			var fleet console.Fleet
			bounded(t, func() {
				fleet = console.Assess(console.Snapshot{
					Home: "https://home", Namespace: "tenure-system", Now: now, Records: records, Registered: true,
					Clusters: []console.Answer{{Cluster: "west", Since: now.Add(-time.Hour), Reason: "Usable"}},
				})
				if err := (&console.Screen{To: &screen}).Status(fleet); err != nil {
					t.Error(err)
				}
			})
			for line := range strings.Lines(screen.String()) {
				shown(t, strings.TrimSuffix(line, "\n"))
				if line := strings.TrimSuffix(line, "\n"); text.Line(line, len(line)+1) != line {
					t.Errorf("a line that steers who reads it: %q", line)
				}
			}
			if screen.Len() > 16<<10 {
				t.Errorf("%d bytes are shown", screen.Len())
			}
			if all := strings.Join(strings.Fields(screen.String()), " "); !strings.Contains(all, c.Text) {
				t.Errorf("it isn't told that %q:\n%s", c.Text, screen.String())
			}
			served := false
			for _, s := range fleet.Shards {
				served = served || s.ID.String() == "west/1" && s.Served && s.Replica == "r1"
			}
			if !served {
				t.Errorf("a sound shard isn't shown as served any more:\n%s", screen.String())
			}
		})
	}
}

// forge makes an object of a case. A missing resourceVersion is added, because no object comes from an API server
// without one.
func forge(t testing.TB, from map[string]any, to any, fill *strings.Replacer) {
	t.Helper()
	full := filled(from, fill).(map[string]any)
	if meta := full["metadata"].(map[string]any); meta["resourceVersion"] == nil {
		meta["resourceVersion"] = "7"
	}
	content, err := yaml.Marshal(full)
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(content, to))
}
