package sharding

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// edit changes the cluster and the user of a kubeconfig.
type edit func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)

// edited returns a kubeconfig, if it could be had, with a change.
func (r *rig) edited(content []byte, err error, change edit) []byte {
	r.t.Helper()
	must.Succeed(r.t, err)
	config, err := clientcmd.Load(content)
	must.Succeed(r.t, err)
	for _, cluster := range config.Clusters {
		for _, user := range config.AuthInfos {
			change(cluster, user)
		}
	}
	content, err = clientcmd.Write(*config)
	must.Succeed(r.t, err)
	return content
}

func TestAClusterThatCannotBeUsedIsReportedAndStopsNoOther(t *testing.T) {
	r := newRig(t)
	mark, pipe := filepath.Join(t.TempDir(), "executed"), filepath.Join(t.TempDir(), "pipe")
	must.Succeed(t, syscall.Mkfifo(pipe, 0o600))
	asked := make(chan struct{}, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	defer elsewhere.Close()
	edited := func(change edit) []byte {
		west, err := r.ClusterKubeconfig(t.Context(), "west")
		return r.edited(west, err, change)
	}
	bad := map[string]struct {
		kubeconfig []byte
		reason     string
	}{
		"exec": {edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = ""
			u.Exec = &clientcmdapi.ExecConfig{
				Command: "/bin/sh", Args: []string{"-c", "touch " + mark}, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		}), "BadKubeconfig"},
		"broken": {[]byte("clusters: [" + canary), "BadKubeconfig"},
		"endless": {edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token, u.TokenFile = "", "/dev/zero"
		}), "BadKubeconfig"},
		"file": {edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = pipe }),
			"BadKubeconfig"},
		"detour": {edited(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.ProxyURL = elsewhere.URL + "/" + canary
		}), "BadKubeconfig"},
		"pretender": {edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = canary }),
			"BadKubeconfig"},
		"credulous": {edited(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}), "BadKubeconfig"},
		"down": {edited(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "https://127.0.0.1:1" }),
			"Unreachable"},
		"refused": {edited(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = canary }),
			"AccessRefused"},
	}
	for name, b := range bad {
		must.Succeed(t, r.AddKubeconfig(t.Context(), name, b.kubeconfig))
		defer func() {
			if err := r.RemoveCluster(t.Context(), name); err != nil {
				t.Error(err)
			}
		}()
	}
	replica, other := r.start("e1"), r.start("e2")
	r.settleWestAndEast()
	r.createAts(10, 0)
	r.eventually("the Ats of the good clusters are DONE", func() error { return r.unfinished() })
	for name, b := range bad {
		r.eventually(name+" is in the metrics", func() error {
			m, err := replica.Metrics(t.Context())
			if err != nil {
				return err
			}
			const usable = "tenure_cluster_usable"
			labels := map[string]string{"cluster": name, "reason": b.reason}
			if n, v := m.Count(usable, labels); n != 1 || v != 0 {
				return fmt.Errorf("%d series of %v, in sum %v: %v", n, labels, v, m[usable])
			}
			return nil
		})
		r.eventually(name+" has an event", func() error { return r.hasEvent(name, b.reason) })
		r.eventually(name+" is in the log", func() error {
			n, err := replica.Log.Count(func(l lab.Line) bool { return l.Cluster == name && l.Reason == b.reason })
			if n == 0 {
				return fmt.Errorf("no line names cluster %s with reason %s (%v)", name, b.reason, err)
			}
			return nil
		})
	}
	r.eventually("the other replica has met them all", func() error {
		m, err := other.Metrics(t.Context())
		if n := len(m["tenure_cluster_usable"].GetMetric()); err != nil || n < len(bad)+2 {
			return fmt.Errorf("it knows %d clusters: %v", n, err)
		}
		return nil
	})
	if _, err := os.Stat(mark); err == nil {
		t.Error("the exec plugin of a kubeconfig was run")
	}
	if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		f.Close()
		t.Error("the file that a kubeconfig names was opened")
	}
	if len(asked) > 0 {
		t.Error("the proxy that a kubeconfig names was asked")
	}
	for _, replica := range []*lab.Replica{replica, other} {
		if most := labtest.Memory(t, replica).VmHWM; most > 700<<20 {
			t.Errorf("%s took %d MiB", replica.Name, most>>20)
		}
		if log, err := os.ReadFile(replica.LogPath); err != nil || bytes.Contains(log, []byte(canary)) {
			t.Errorf("the log of %s repeats what is in a kubeconfig (%v)", replica.Name, err)
		}
	}
	told := map[string]int{}
	for _, e := range r.events() {
		if e.Reason == "BadKubeconfig" {
			told[e.Regarding.Name]++
		}
		if strings.Contains(e.Note, canary) {
			t.Errorf("an event repeats what is in a kubeconfig: %s", e.Note)
		}
	}
	for name, n := range told {
		if n > 2 { // two where ten minutes ended in between
			t.Errorf("%d events about Secret %s for one cause", n, name)
		}
	}
}

// canary is in kubeconfigs and must be nowhere else.
const canary = "canary-5e9c1f"

// settleWestAndEast waits until the shards of west and east are served. A cluster that is down has no holders.
func (r *rig) settleWestAndEast() {
	r.t.Helper()
	r.eventually("west and east are served", func() error {
		n := 0
		for name, now := range r.holders() {
			if good := strings.HasPrefix(name, "west/") || strings.HasPrefix(name, "east/"); good && now.replica != "" {
				n++
			}
		}
		if n < 2*shardsOfCluster {
			return fmt.Errorf("%d shards are held", n)
		}
		return nil
	})
}

// events are those of the home cluster since the test began.
func (r *rig) events() []eventsv1.Event {
	r.t.Helper()
	list := &eventsv1.EventList{}
	must.Succeed(r.t, r.Client(lab.Home).List(r.t.Context(), list, client.InNamespace(lab.Namespace)))
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.CreationTimestamp.Time.Before(r.began.Truncate(time.Second)) // of another test
	})
}

func (r *rig) hasEvent(secret, reason string) error {
	all := r.events()
	for _, e := range all {
		if e.Regarding.Name == secret && e.Reason == reason && e.Type == corev1.EventTypeWarning {
			return nil
		}
	}
	return fmt.Errorf("none of %d events is about Secret %s with reason %s", len(all), secret, reason)
}

// A cluster with two names is served under one of them, and an event says so. When that name goes, the other takes over
// all that has begun.
func TestAClusterWithTwoNamesIsServedOnce(t *testing.T) {
	r := newRig(t)
	n1 := r.start("n1", "--lease-duration=10s", soonGone) // no stall of the machine ends it
	n2 := r.start("n2", "--lease-duration=10s", soonGone)
	r.settle()
	const second = "occident" // the first by alphabet, but west has a layout
	facts.names = map[string]string{second: "west"}
	must.Succeed(t, r.AddCluster(t.Context(), second, "west"))
	r.eventually("an event tells of the second name", func() error {
		return r.hasEvent("west.layout", "ClusterHasTwoNames")
	})
	r.serves()
	if records := r.recordsOf(second); len(records) > 0 {
		t.Errorf("the second name has %d records, the first of them %s", len(records), records[0].Name)
	}

	begin := func() []*cnatv1alpha1.At { return r.createAts(10, 10*time.Second, "west") }
	remove := func(name string) {
		t.Helper()
		must.Succeed(t, r.RemoveCluster(t.Context(), name))
		r.eventually("nobody holds anything under the name that was removed", func() error {
			for _, s := range r.recordsOf(name) {
				if s.Status.Holder != "" {
					return fmt.Errorf("%s still holds %s", s.Status.Holder, s.Name)
				}
			}
			return nil
		})
		if r.unfinished("west") == nil {
			t.Error("all Ats were done before the name had gone: the test has tested nothing")
		}
	}
	begun := begin()
	remove("west")
	r.eventually("the second name takes over", func() error { return held(r.recordsOf(second)) })
	r.createAts(10, 0, "west")
	r.eventually(fmt.Sprintf("the %d Ats that began under the first name are DONE too", len(begun)),
		func() error { return r.unfinished("west") })

	// Both have layouts now. The first by alphabet serves on, until it goes.
	must.Succeed(t, r.AddCluster(t.Context(), "west", "west"))
	r.eventually("an event tells of the first name", func() error {
		return r.hasEvent(second+".layout", "ClusterHasTwoNames")
	})
	r.eventually("the shards of the first name, which nobody holds, raise no alert", func() error {
		for _, n := range []*lab.Replica{n1, n2} {
			m, err := n.Metrics(t.Context())
			if err != nil {
				return err
			}
			if s, err := m.Sum("tenure_shard_without_holder_seconds", nil); err != nil || s != 0 {
				return fmt.Errorf("%s: a shard has had no holder for %v s (%v)", n.Name, s, err)
			}
		}
		return nil
	})
	begun = begin()
	if err := held(r.recordsOf(second)); err != nil {
		t.Error(err)
	}
	remove(second)
	r.settle()
	r.eventually(fmt.Sprintf("the %d Ats that began under the second name are DONE", len(begun)),
		func() error { return r.unfinished("west") })
}

// recordsOf are all records of shards under a cluster's name.
func (r *rig) recordsOf(cluster string) []tenurev1alpha1.Shard {
	r.t.Helper()
	list := &tenurev1alpha1.ShardList{}
	must.Succeed(r.t, r.Client(lab.Home).List(r.t.Context(), list, client.InNamespace(lab.Namespace)))
	return slices.DeleteFunc(list.Items, func(s tenurev1alpha1.Shard) bool {
		return s.Spec.Cluster != cluster || s.Spec.Layout != nil
	})
}

// held says which of some records nobody holds.
func held(records []tenurev1alpha1.Shard) error {
	for _, s := range records {
		if s.Status.Phase != tenurev1alpha1.ShardHeld {
			return fmt.Errorf("%s is %s, held by %q", s.Name, s.Status.Phase, s.Status.Holder)
		}
	}
	if len(records) != shardsOfCluster {
		return fmt.Errorf("%d records, want %d", len(records), shardsOfCluster)
	}
	return nil
}

func TestClustersComeAndGoWhileReplicasRun(t *testing.T) {
	r := newRig(t)
	r.start("k1", soonGone)
	r.start("k2", soonGone)
	r.settle()
	for _, way := range []struct {
		what string
		take func() error
	}{
		{"deleted", func() error { return r.RemoveCluster(t.Context(), "west") }},
		{"unlabelled", func() error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: "west"}}
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, lab.ClusterLabel)
			return r.Client(lab.Home).Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, patch))
		}},
	} {
		east := r.holders()
		must.Succeed(t, way.take())
		t.Logf("west's Secret is %s", way.what)
		r.heldBy("west/", "")
		gone := r.holders()
		late := r.createAts(10, 0, "west")
		r.createAts(10, 0, "east")
		r.eventually("east is served while west is gone", func() error { return r.unfinished("east") })
		must.Succeed(t, r.AddCluster(t.Context(), "west", "west"))
		r.settle()
		r.eventually(fmt.Sprintf("the %d Ats of west are DONE", len(late)), func() error { return r.unfinished("west") })
		for name, now := range r.holders() {
			if was := gone[name].epoch; strings.HasPrefix(name, "west/") && now.epoch <= was {
				t.Errorf("%s came back in epoch %d after %d", name, now.epoch, was)
			}
			if strings.HasPrefix(name, "east/") && now.epoch < east[name].epoch {
				t.Errorf("%s fell from epoch %d to %d", name, east[name].epoch, now.epoch)
			}
		}
	}
}
