package sharding

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

// housed is a replica with a Pod, made of the Deployment that config/ ships. No kubelet runs it: the test is its
// kubelet.
type housed struct {
	*lab.Replica
	pod *corev1.Pod
	log string // its termination log
}

func (r *rig) startInPod(name string, flags ...string) housed {
	r.t.Helper()
	home, deployment := r.Client(lab.Home), &appsv1.Deployment{}
	must.Succeed(r.t, home.Get(r.t.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: "tenure"}, deployment))
	template := deployment.Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name, Labels: template.Labels},
		Spec: template.Spec}
	must.Succeed(r.t, home.Create(r.t.Context(), pod))
	r.t.Cleanup(func() { _ = home.Delete(r.t.Context(), pod, client.GracePeriodSeconds(0)) })
	log := filepath.Join(r.t.TempDir(), name)
	must.Succeed(r.t, os.WriteFile(log, nil, 0o600))
	return housed{r.start(name, append(flags, "--pod="+environment(pod)["TENURE_POD"], "--termination-log="+log)...), pod,
		log}
}

// environment is that of a Pod's first container, as its kubelet makes it.
func environment(pod *corev1.Pod) map[string]string {
	env := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env {
		value := e.Value
		for name, known := range env { // what comes later isn't known yet
			value = strings.ReplaceAll(value, "$("+name+")", known)
		}
		if e.ValueFrom != nil {
			value = map[string]string{
				"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
			}[e.ValueFrom.FieldRef.FieldPath]
		}
		env[e.Name] = value
	}
	return env
}

// report writes what a kubelet says of the replica's container: that it has ended, with this message.
func (r *rig) report(h housed, message string) {
	r.t.Helper()
	end := &corev1.ContainerStateTerminated{ContainerID: "cri://1", ExitCode: 137, Reason: "OOMKilled", Message: message}
	h.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: h.pod.Spec.Containers[0].Name, Image: "tenure", State: corev1.ContainerState{Terminated: end},
	}}
	must.Succeed(r.t, r.Client(lab.Home).Status().Update(r.t.Context(), h.pod))
}

var (
	deathLease  = flag.Duration("death-lease", 30*time.Second, "the lease `duration` of the replicas of which one dies")
	deathWithin = flag.Duration("death-within", 0,
		"how long its shards may be unserved after its kubelet's report: 2s on a quiet machine; 0: half a lease duration")
)

// TestADeathThatAPodProvesDoesNotWaitForTheLease kills a replica, and has its Pod say so.
func TestADeathThatAPodProvesDoesNotWaitForTheLease(t *testing.T) {
	r := newRig(t)
	lease := "--lease-duration=" + deathLease.String()
	survivor, victim := r.startInPod("w1", lease), r.startInPod("w2", lease) // together: no shard has to move
	r.settle()
	r.seasoned("w1", "w2") // what others held isn't left to a replica that has just begun
	r.serves()
	// A kubelet's report of the death of an incarnation that doesn't exist must not count for the one that does.
	r.report(survivor, `{"tenure.dev/incarnation":"w1-000000"}`)
	name, err := os.ReadFile(victim.log)
	must.Succeed(t, err)
	victim.Kill()
	r.report(victim, string(name))
	told := time.Now()
	r.createAts(4*shardsOfCluster, 0)
	asked := time.Since(told) // on a busy machine the test's own requests take most of the time
	r.eventually("the dead replica's Ats are worked on", func() error {
		for _, cluster := range r.Workloads() {
			list := &cnatv1alpha1.AtList{}
			if err := r.Client(cluster).List(t.Context(), list, client.InNamespace(r.namespace)); err != nil {
				return err
			}
			for _, at := range list.Items {
				if at.Status.Phase == cnatv1alpha1.AtPending {
					return fmt.Errorf("%s/%s is pending", cluster, at.Name)
				}
			}
		}
		return nil
	})
	took := time.Since(told)
	t.Logf("all of the dead replica's shards are served %v after its kubelet's report", took.Round(time.Millisecond))
	// It is just above 1 s where nothing else runs.
	if most := cmp.Or(*deathWithin, *deathLease/2); took > most+asked {
		t.Errorf("they are served %v after the report, at a lease of %v; want %v", took, *deathLease, most)
	}
	r.settle()
	for shard, holder := range r.holders() {
		if holder.replica != "w1" {
			t.Errorf("%s is held by %s", shard, holder.replica)
		}
	}
	lapsed(t, survivor.Replica)
	metrics, err := survivor.Metrics(t.Context())
	must.Succeed(t, err)
	sealed, err := metrics.Sum("tenure_record_writes_total",
		map[string]string{"write": "SealEnded", "outcome": "committed"})
	_, unanswered := metrics.Count("tenure_record_writes_total", // in time: it may have been carried out
		map[string]string{"write": "SealEnded", "outcome": "unknown"})
	if err != nil || sealed > 1 || sealed+unanswered < 1 {
		t.Errorf("%v Leases were sealed for a container's end (%v), want 1", sealed, err)
	}
}
