package sharding

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

func TestAReplicaCachesTheObjectsOfItsShardsAndNoOthers(t *testing.T) {
	r := newRig(t)
	replicas := []*lab.Replica{r.start("a1"), r.start("a2"), r.start("a3")}
	r.settle()
	r.createAts(60, time.Hour)
	r.createAts(20, 0)
	r.eventually("the Ats that are due are DONE", func() error {
		for _, cluster := range r.Workloads() {
			list := &cnatv1alpha1.AtList{}
			if err := r.Client(cluster).List(t.Context(), list); err != nil {
				return err
			}
			for _, at := range list.Items {
				due, err := time.Parse(time.RFC3339Nano, at.Spec.Schedule)
				if err != nil || (due.Before(time.Now()) && at.Status.Phase != cnatv1alpha1.AtDone) {
					return fmt.Errorf("%s/%s is %s (%v)", cluster, at.Name, at.Status.Phase, err)
				}
			}
		}
		return nil
	})
	r.eventually("every shard's cache has the objects of its slots", func() error { return r.cachesRight(replicas) })
	r.eachWatchAsksForItsShard()
}

// cachesRight compares what replicas say they cache with what the API servers have.
func (r *rig) cachesRight(replicas []*lab.Replica) error {
	want := map[string]int{}
	for name := range r.holders() {
		want[name] = 0
	}
	for _, cluster := range r.Workloads() {
		list := &cnatv1alpha1.AtList{}
		if err := r.Client(cluster).List(r.t.Context(), list); err != nil {
			return err
		}
		for _, at := range list.Items {
			if !at.Status.Over { // something is left to do for it
				want[cluster+"/"+fmt.Sprintf("%08b", audit.SlotOf(string(at.UID)))[:3]]++
			}
		}
	}
	cached := map[string]int{}
	for _, replica := range replicas {
		m, err := replica.Metrics(r.t.Context())
		if err != nil {
			return err
		}
		discarded := m.By("tenure_watch_objects_discarded_total", "cluster")
		for name, value := range m.By("tenure_shard_objects", "shard") {
			if holder := r.holders()[name].replica; holder != replica.Name {
				return fmt.Errorf("%s caches shard %s, which is %s's", replica.Name, name, holder)
			}
			cached[name] += int(value)
			cluster, _, _ := strings.Cut(name, "/")
			if value, counted := discarded[cluster]; !counted || value != 0 {
				return fmt.Errorf("%s was sent %v objects of other shards of %s (counted: %t)", replica.Name, value, cluster,
					counted)
			}
		}
	}
	for name, n := range want {
		if cached[name] != n {
			return fmt.Errorf("shard %s: %d objects cached, %d exist", name, cached[name], n)
		}
	}
	return nil
}

var bounds = regexp.MustCompile(`shardRange\(object\.metadata\.uid, '0x([0-9a-f]+)', '0x([0-9a-f]+)'\)`)

// eachWatchAsksForItsShard reads in the API servers' own logs what lists and watches of Ats asked for.
func (r *rig) eachWatchAsksForItsShard() {
	r.t.Helper()
	for _, cluster := range r.Workloads() {
		asked := map[string]bool{}
		for _, e := range r.audited(cluster) {
			if !e.IsAt() || !e.Ours() || !slices.Contains([]string{"list", "watch"}, e.Verb) {
				continue
			}
			u, err := url.ParseRequestURI(e.URI)
			must.Succeed(r.t, err)
			found := bounds.FindStringSubmatch(u.Query().Get("shardSelector"))
			shard := regexp.MustCompile(`shard=([^;]+);`).FindStringSubmatch(e.UserAgent)
			if found == nil || shard == nil {
				r.t.Fatalf("%s of Ats without a shard: %s by %s", e.Verb, e.URI, e.UserAgent)
			}
			prefix := strings.TrimPrefix(shard[1], cluster+"/")
			low, err := strconv.ParseUint(found[1], 16, 64)
			if err != nil || fmt.Sprintf("%064b", low)[:len(prefix)] != prefix {
				r.t.Errorf("shard %s asked for %s", shard[1], found[0])
			}
			asked[prefix] = true
		}
		if len(asked) != shardsOfCluster {
			r.t.Errorf("%s: watches of %d shards in the API server's log, want %d", cluster, len(asked), shardsOfCluster)
		}
	}
}

// audited returns what an API server logged since this test began. Its log also has what the tests before this one
// did.
func (r *rig) audited(cluster string) []audit.Event {
	r.t.Helper()
	since := func(e *audit.Event) bool { return e.Answered().After(r.began) }
	return labtest.Audited(r.t, r.Planes.Cluster(cluster), since)
}
