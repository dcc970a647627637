// Package labtest is package lab for tests, which alone import it. If something can't be started, the test fails.
// What was started is stopped when the test ends. A wait that fails reports the last state that it saw.
package labtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// Patience bounds every wait: tests are about what happens, not about how fast on a busy machine.
const Patience = 90 * time.Second

// Eventually waits until something no longer fails.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	Within(t, Patience, what, try)
}

// Within waits until something no longer fails, no longer than the test allows it to take.
func Within(t testing.TB, within time.Duration, what string, try func() error) {
	t.Helper()
	if err := lab.Eventually(t.Context(), within, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Until waits a minute at most until something holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, time.Minute, what, func() error {
		if !holds() {
			return errors.New("it doesn't hold")
		}
		return nil
	})
}

// Planes starts control planes for a test.
func Planes(t testing.TB, clusters ...localplane.ClusterConfig) *localplane.Planes {
	t.Helper()
	planes, err := localplane.Start(t.Context(), localplane.Config{TmpfsData: true, Clusters: clusters})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	return planes
}

// Workload starts one workload cluster with what config/workload installs.
func Workload(t testing.TB, name string) *localplane.Plane {
	t.Helper()
	plane := Planes(t, localplane.ClusterConfig{Name: name, Workload: true}).Cluster(name)
	must.Succeed(t, lab.InstallWorkload(t.Context(), plane))
	return plane
}

// Client is the admin's client of a cluster.
func Client(t testing.TB, plane *localplane.Plane) client.Client {
	t.Helper()
	c, err := client.New(plane.RESTConfig(), client.Options{Scheme: lab.Scheme()})
	must.Succeed(t, err)
	return c
}

// Allowed returns an error unless a cluster's API server says that a user may do something, or may not, as wanted. what
// is a resource, as "pods/portforward" or "ats.GROUP", in a namespace, or else a path.
func Allowed(ctx context.Context, c client.Client, want bool, user, verb, what, namespace string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}
	if strings.HasPrefix(what, "/") {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: verb, Path: what}
	} else {
		name, sub, _ := strings.Cut(what, "/")
		resource, group, _ := strings.Cut(name, ".")
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource,
			Subresource: sub, Namespace: namespace}
	}
	if err := c.Create(ctx, review); err != nil {
		return err
	}
	if got := review.Status; got.Allowed != want || got.EvaluationError != "" {
		return fmt.Errorf("may %s %s %s in namespace %q: %v, want %v (%s)", user, verb, what, namespace, got.Allowed, want,
			got.EvaluationError)
	}
	return nil
}

// audited are the *auditLogs by path. Tests look into the same log often, and reading the whole takes seconds.
var audited sync.Map

// auditLog is what was read of a log so far.
type auditLog struct {
	mu     sync.Mutex // guards all below
	offset int64
	events []audit.Event
}

// Audited returns the events to be kept of what a cluster's API server has logged, which must be something.
func Audited(t testing.TB, plane *localplane.Plane, keep func(*audit.Event) bool) (kept []audit.Event) {
	t.Helper()
	known, _ := audited.LoadOrStore(plane.AuditLog(), &auditLog{})
	log := known.(*auditLog)
	log.mu.Lock()
	defer log.mu.Unlock()
	must.Succeed(t, log.more(plane.AuditLog(), filepath.Join(t.TempDir(), "audit.log")))
	if len(log.events) == 0 {
		t.Fatalf("%s: no event at all", plane.AuditLog())
	}
	for i := range log.events {
		if keep(&log.events[i]) {
			kept = append(kept, log.events[i])
		}
	}
	return kept
}

// more reads what was added to the log since, by way of a file: package audit reads files.
func (l *auditLog) more(path, added string) error {
	whole, err := os.Open(path)
	if err != nil {
		return err
	}
	defer whole.Close()
	info, err := whole.Stat()
	if err != nil {
		return err
	}
	if info.Size() < l.offset {
		return fmt.Errorf("%s is shorter than what was read of it: was it rotated?", path)
	}
	text, err := io.ReadAll(io.NewSectionReader(whole, l.offset, 1<<40))
	text = text[:bytes.LastIndexByte(text, '\n')+1] // an event is in the log as a whole before its request is answered
	if err != nil || len(text) == 0 {
		return err
	}
	if err := os.WriteFile(added, text, 0o600); err != nil {
		return err
	}
	events, err := audit.All(added, func(*audit.Event) bool { return true })
	l.offset, l.events = l.offset+int64(len(text)), append(l.events, events...)
	return err
}

// Kubectl runs kubectl as the admin of a cluster, which must succeed.
func Kubectl(t testing.TB, plane *localplane.Plane, args ...string) string {
	t.Helper()
	out, err := plane.Kubectl(t.Context(), "", args...)
	must.Succeed(t, err)
	return out
}

// Fleet starts a fleet for a test, with etcd's data in memory so that it isn't the machine's disk that is measured. At
// the end its replicas leave, and nothing may have crashed.
func Fleet(t testing.TB, o lab.Options) *lab.Fleet {
	t.Helper()
	o.Planes.TmpfsData = true
	ctrllog.SetLogger(logr.Discard()) // what matters is in the replicas' own logs
	f, err := lab.Start(t.Context(), o)
	must.Succeed(t, err)
	t.Cleanup(func() {
		Leave(t, f.Replicas()...)
		KeepIfFailed(t, f)
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Judge has the witness judge a fleet's audit logs. The test fails if an invariant broke or a log lacks something.
func Judge(t testing.TB, f *lab.Fleet, facts witness.Facts) *witness.Report {
	t.Helper()
	report, err := lab.Judge(f.Planes.Dir(), facts)
	must.Succeed(t, err)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	return report
}

// KeepIfFailed keeps all logs of a test that has failed.
func KeepIfFailed(t testing.TB, f *lab.Fleet) {
	t.Helper()
	if t.Failed() {
		dir, err := f.Keep("failed")
		t.Logf("logs are kept in %s %v", dir, err)
	}
}

// Replica starts a replica.
func Replica(t testing.TB, f *lab.Fleet, name string, flags ...string) *lab.Replica {
	t.Helper()
	r, err := f.StartReplica(name, flags...)
	must.Succeed(t, err)
	return r
}

// Replicas starts replicas.
func Replicas(t testing.TB, f *lab.Fleet, names ...string) {
	t.Helper()
	for _, name := range names {
		Replica(t, f, name)
	}
}

// Settle waits until a fleet's shards have come to rest.
func Settle(t testing.TB, f *lab.Fleet, within time.Duration) {
	t.Helper()
	must.Succeed(t, f.AwaitSettled(t.Context(), within))
}

// Tenure returns the replicas' binary without the race detector, with which it takes a multiple of time and memory.
func Tenure(t testing.TB) string {
	t.Helper()
	path, err := lab.Build(t.Context(), t.TempDir(), "tenure", false)
	must.Succeed(t, err)
	return path
}

// Memory is what the kernel says of the memory of a replica's process.
func Memory(t testing.TB, r *lab.Replica) procfs.ProcStatus {
	t.Helper()
	process, err := procfs.NewProc(r.PID())
	must.Succeed(t, err)
	status, err := process.NewStatus()
	must.Succeed(t, err)
	return status
}

// InParallel does something n times, a few at once.
func InParallel(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	must.Succeed(t, group.Wait())
}

// tailLines is how many lines of a replica's log are shown when a test fails.
const tailLines = 30

// Leave has replicas leave in order. Those that weren't killed must end well, and no log may tell of a crash or a data
// race.
func Leave(t testing.TB, replicas ...*lab.Replica) {
	t.Helper()
	for _, r := range replicas {
		if err := r.DiedByItself(); err != nil {
			t.Error(err)
		}
		r.Resume()
		r.Terminate()
	}
	for _, r := range replicas {
		if err := r.Wait(Patience); err != nil && r.KilledAt().IsZero() {
			t.Error(err)
		}
		lines, err := r.Log.Lines()
		if err != nil {
			t.Error(err)
		}
		for n, l := range lines {
			if l.Crashed() {
				t.Errorf("%s:%d: %s", r.LogPath, n+1, l.Text)
			}
		}
		if !t.Failed() {
			continue
		}
		t.Logf("the end of the log of %s:", r.Name)
		for _, l := range lines[max(0, len(lines)-tailLines):] {
			t.Log(l.Text)
		}
	}
}
