package sharding

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

const (
	lease = 4 * time.Second
	// shardsOfCluster: small enough to settle fast, and 2 clusters of 8 don't divide by 3.
	shardsOfCluster = 8
	patience        = labtest.Patience
	// soonGone is a flag for tests that take clusters away for good: the default would only make them longer.
	soonGone = "--cluster-removal-grace=1s"
)

// shared are the planes of all tests of this package. Replicas are each test's own.
var shared struct {
	sync.Once
	fleet *lab.Fleet
	err   error
}

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if shared.fleet != nil {
		_, err := judge(shared.fleet, witness.Facts{Ats: facts.ats, Names: facts.names})
		if err != nil {
			err = fmt.Errorf("the tests were\n%s\n%w", strings.Join(facts.tests, "\n"), err)
		}
		if err := errors.Join(err, shared.fleet.Stop()); err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// judge lets the witness read all audit logs of a fleet, once. The logs of the shared fleet have the requests of
// all tests, and reading them takes seconds.
func judge(f *lab.Fleet, facts witness.Facts) (*witness.Report, error) {
	report, err := lab.Judge(f.Planes.Dir(), facts)
	if err == nil {
		err = report.Err()
	}
	if err == nil {
		return report, nil
	}
	dir, keepErr := f.Keep("failed")
	return report, errors.Join(err, keepErr, fmt.Errorf("logs are kept in %s", dir))
}

// rig is one test's view of the shared planes, or of its own.
type rig struct {
	*lab.Fleet
	t         *testing.T
	namespace string        // of the test's Ats, in every workload cluster
	made      *[]witness.At // in these planes
	before    int           // how many processes there were when the test began
	began     time.Time
}

// facts are the Ats and the names of all tests, since the witness reads whole logs. Tests run one after the other.
var facts struct {
	ats   []witness.At
	names map[string]string
	tests []string // with namespace and time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		shared.fleet, shared.err = lab.Start(ctx, lab.Options{
			Workloads: []string{"west", "east"}, LeaseDuration: lease, ShardsPerCluster: shardsOfCluster,
			Planes: localplane.Config{TmpfsData: true},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	r := newRigOn(t, shared.fleet, &facts.ats)
	t.Cleanup(r.close)
	return r
}

// newRigOn makes a namespace for a test's Ats, which are added to those made.
func newRigOn(t *testing.T, f *lab.Fleet, made *[]witness.At) *rig {
	t.Helper()
	r := &rig{Fleet: f, t: t, made: made, before: len(f.Replicas()), began: time.Now()}
	r.namespace = "test-" + strings.ToLower(fmt.Sprintf("%x", time.Now().UnixNano()))
	for _, cluster := range r.Workloads() {
		ns := &corev1.Namespace{}
		ns.Name = r.namespace
		must.Succeed(t, r.Client(cluster).Create(t.Context(), ns))
		r.eventually("the namespace has its service account", func() error {
			return r.Client(cluster).Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"},
				&corev1.ServiceAccount{})
		})
	}
	return r
}

// close ends the test's replicas in order.
func (r *rig) close() {
	labtest.Leave(r.t, r.Replicas()[r.before:]...)
	labtest.KeepIfFailed(r.t, r.Fleet)
	const clock = "15:04:05.000"
	facts.tests = append(facts.tests, fmt.Sprintf("%s to %s %s %s", r.began.UTC().Format(clock),
		time.Now().UTC().Format(clock), r.namespace, r.t.Name()))
}

func (r *rig) start(name string, flags ...string) *lab.Replica {
	r.t.Helper()
	return labtest.Replica(r.t, r.Fleet, name, flags...)
}

func (r *rig) settle() {
	r.t.Helper()
	labtest.Settle(r.t, r.Fleet, patience)
}

func (r *rig) eventually(what string, try func() error) {
	r.t.Helper()
	labtest.Eventually(r.t, what, try)
}

// createAts makes Ats that are due after a while, spread over the workload clusters.
func (r *rig) createAts(n int, after time.Duration, clusters ...string) []*cnatv1alpha1.At {
	r.t.Helper()
	if len(clusters) == 0 {
		clusters = r.Workloads()
	}
	var ats []*cnatv1alpha1.At
	for i := range n {
		at, err := r.createAt(clusters[i%len(clusters)], after)
		must.Succeed(r.t, err)
		ats = append(ats, at)
	}
	return ats
}

func (r *rig) createAt(cluster string, after time.Duration) (*cnatv1alpha1.At, error) {
	at := labtest.At(r.namespace, fmt.Sprintf("%s-%d", cluster, time.Now().UnixNano()), time.Now().Add(after))
	if err := r.Client(cluster).Create(r.t.Context(), at); err != nil {
		return nil, err
	}
	*r.made = append(*r.made, labtest.Fact(cluster, at))
	return at, nil
}

// serves waits until an At in each workload cluster is done, so that the logs hold writes to judge.
func (r *rig) serves() {
	r.t.Helper()
	r.createAts(len(r.Workloads()), 0)
	r.eventually("Ats that are due are done", func() error { return r.unfinished() })
}

// unfinished says which Ats of the test aren't DONE in some clusters. All that were made there must be there.
func (r *rig) unfinished(clusters ...string) error {
	if len(clusters) == 0 {
		clusters = r.Workloads()
	}
	made, found := 0, 0
	for _, at := range *r.made {
		if at.Namespace == r.namespace && slices.Contains(clusters, at.Cluster) {
			made++
		}
	}
	for _, cluster := range clusters {
		list := &cnatv1alpha1.AtList{}
		if err := r.Client(cluster).List(r.t.Context(), list, client.InNamespace(r.namespace)); err != nil {
			return err
		}
		for _, at := range list.Items {
			if at.Status.Phase != cnatv1alpha1.AtDone {
				return fmt.Errorf("%s/%s is %s", cluster, at.Name, at.Status.Phase)
			}
		}
		found += len(list.Items)
	}
	if made == 0 || found != made {
		return fmt.Errorf("%d Ats of %d that were made are in %v", found, made, clusters)
	}
	return nil
}

// holders are epoch and replica of every shard.
func (r *rig) holders() map[string]tenure {
	r.t.Helper()
	shards, err := r.Shards(r.t.Context())
	must.Succeed(r.t, err)
	all := map[string]tenure{}
	for i := range shards {
		all[lab.ShardName(&shards[i])] = tenure{lab.ReplicaOf(shards[i].Status.Holder), shards[i].Status.Epoch}
	}
	return all
}

type tenure struct {
	replica string
	epoch   int64
}
