package sharding

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	rotationObjects = flag.Int("rotation-objects", 500, "how many Ats wait in the cluster whose credentials are rotated")
	rotationPhase   = flag.Duration("rotation-phase", 1500*time.Millisecond,
		"time between two changes of its Secret; calm before them is four times that")
	rotationAllowed = flag.Duration("rotation-allowed", 500*time.Millisecond,
		"how much later than in calm, or than in the other cluster, an At may be; 100ms on a quiet machine")
)

// TestRotatedBrokenAndMovedCredentialsAreNotNoticed changes west's Secret in every way that leaves it the same
// cluster, under 20 Ats a second. It compares the worst lateness after each change with that of the calm before,
// and with east's at the same time. The same replicas serve as many Ats in east, so whatever else the machine does
// affects both; the test's own requests show when an API server stalls. The time that an API server takes for an At's
// requests isn't counted: on a busy machine it is longer than what the test is about. But an At waits for the requests
// of those before it, too, so what a stall is longer than calm's worst counts twice. An At that was due before a
// change and is served after it has waited in both phases, so both stalls count.
func TestRotatedBrokenAndMovedCredentialsAreNotNoticed(t *testing.T) {
	const every, ahead = 50 * time.Millisecond, time.Second
	r := newRig(t)
	flags := []string{"--lease-duration=10s"} // a busy machine alone makes nobody lapse
	replicas := []*lab.Replica{r.start("o1", flags...), r.start("o2", flags...)}
	r.settle()
	r.createAts(*rotationObjects, 24*time.Hour, "west")
	before := r.holders()
	put := func(kubeconfig []byte, err error) {
		t.Helper()
		if err == nil {
			err = r.AddKubeconfig(t.Context(), "west", kubeconfig)
		}
		must.Succeed(t, err)
	}
	fresh := func() ([]byte, error) { return r.ClusterKubeconfig(t.Context(), "west") } // with another token each time
	// past the proxy: another server of the same cluster
	direct := func() ([]byte, error) {
		path, err := r.Kubeconfig(t.Context(), "west")
		if err != nil {
			return nil, err
		}
		return os.ReadFile(path)
	}
	// An API server closes a connection on which credentials were refused. The proxy has one connection for all
	// clients, so refused credentials go past it.
	refused := func() ([]byte, error) {
		kubeconfig, err := direct()
		return r.edited(kubeconfig, err, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = canary }), nil
	}
	changes := []struct {
		what string
		do   func()
	}{ // the last one waits until the one before it has had its effect
		{"rotated", func() { put(fresh()) }},
		{"garbage", func() { put([]byte("current-context: "+canary), nil) }},
		{"refused credentials", func() { put(refused()) }},
		{"garbage again", func() { put([]byte("clusters: ["), nil) }},
		{"mended", func() { put(fresh()) }},
		{"deleted", func() {
			must.Succeed(t, r.RemoveCluster(t.Context(), "west"))
		}},
		{"created again", func() { put(fresh()) }},
		{"moved to another server", func() { put(direct()) }},
		{"moved back", func() { put(fresh()) }},
	}
	const moves = 7 // the first change that goes to another server
	const mends = 3 // the first one after the refused credentials
	// How often credentials must have been replaced before these changes. A change takes back credentials that aren't in
	// use yet.
	replaced := map[int]int{1: 1, 5: 2, 7: 3}
	inUse := func(times int) error {
		return r.logged(replicas, "cluster's credentials replaced", times*len(replicas))
	}
	wentOver := func(times int) error {
		return r.logged(replicas, "shard goes by the other server", times*shardsOfCluster)
	}
	last, next := time.Now().Add(3*(*rotationPhase)), 0
	var ats []*cnatv1alpha1.At
	var changed []time.Time
	// Of the test's own requests, by the change before them: the slowest, and the longest spell of slow ones.
	slowest, slow := make([]time.Duration, len(changes)+1), make([]time.Duration, len(changes)+1)
	const longest = 3 * time.Second // that counts
	var spell time.Duration
	for due := time.Now(); next < len(changes) || due.Before(last.Add(*rotationPhase)); due = due.Add(every) {
		time.Sleep(time.Until(due))
		if next < len(changes) && time.Since(last) > *rotationPhase && (next <= moves || wentOver(1) == nil) &&
			(next != mends || r.hasEvent("west", "AccessRefused") == nil) &&
			(replaced[next] == 0 || inUse(replaced[next]) == nil) {
			last = time.Now()
			changed = append(changed, last)
			changes[next].do()
			next++
		}
		asked := time.Now()
		if ats = append(ats, r.createAts(2, ahead, "west", "east")...); len(ats) > 10_000 {
			t.Fatalf("%d changes have had their effect after %v: %v", next-1, time.Since(last), wentOver(1))
		}
		took := time.Since(asked)
		if slowest[next] = max(slowest[next], took); took > 4*every {
			spell += took
		} else {
			spell = 0
		}
		slow[next] = max(slow[next], min(spell, longest))
	}
	r.eventually("all Ats that are due are done", func() error { return r.open(ats) })
	r.eventually("all shards went to the other server and back", func() error { return wentOver(2) })

	worst, control := r.worst("west", ats, changed), r.worst("east", ats, changed)
	t.Logf("%d Ats: worst %v in calm, %v in east", len(ats), worst[0], control[0])
	for i, c := range changes {
		t.Logf("worst %v after west was %s, %v in east", worst[i+1], c.what, control[i+1])
		stall := max(control[i], control[i+1], slowest[i], slowest[i+1])
		// While an API server is slow for long, an At waits for all that were due meanwhile.
		may := max(worst[0], 2*stall-worst[0], worst[0]+slow[i]+slow[i+1]) + *rotationAllowed
		if i >= moves { // caches are filled meanwhile, which keeps the machine busy
			may += *rotationAllowed
		}
		if worst[i+1] > may {
			t.Errorf("an At was %v late after west was %s, want at most %v", worst[i+1], c.what, may)
		}
	}
	lists := 0
	for _, e := range r.audited("west") {
		between := e.Arrived().After(changed[0]) && e.Arrived().Before(changed[moves])
		if e.IsAt() && e.Ours() && e.Verb == "list" && between && !asksForOne.MatchString(e.URI) {
			lists++
		}
	}
	if lists > 0 {
		t.Errorf("%d lists of Ats while only credentials changed: caches were filled anew", lists)
	}
	if m := moved(before, r.holders()); len(m) > 0 {
		t.Errorf("shards moved: %v", m)
	}
	lapsed(t, replicas...)
	if err := inUse(3); err != nil {
		t.Error(err)
	}
	for _, reason := range []string{"BadKubeconfig", "AccessRefused"} {
		r.eventually(reason+" is told", func() error { return r.hasEvent("west", reason) })
	}
	r.eventually("nothing is rejected any more, and the end of the credentials is known", func() error {
		for _, replica := range replicas {
			m, err := replica.Metrics(t.Context())
			if err != nil {
				return err
			}
			if n, _ := m.Count("tenure_cluster_kubeconfig_rejected", map[string]string{"cluster": "west"}); n > 0 {
				return fmt.Errorf("%s rejects west's kubeconfig", replica.Name)
			}
			ends := map[string]string{"cluster": "west"}
			if n, at := m.Count("tenure_cluster_credentials_expiry_timestamp_seconds", ends); n != 1 ||
				at < float64(time.Now().Unix()) {
				return fmt.Errorf("%s: %d series, west's credentials end at %v", replica.Name, n, at)
			}
		}
		return nil
	})
}

// asksForOne matches the address of a list that only shows whether new credentials may list.
var asksForOne = regexp.MustCompile(`[?&]limit=1(&|$)`)

// worst returns how late a cluster's Ats were at worst before the first of some changes and after each, by the
// cluster's own audit log, less the time that its API server took for their requests.
func (r *rig) worst(cluster string, ats []*cnatv1alpha1.At, changed []time.Time) []time.Duration {
	r.t.Helper()
	served, answering := map[string]time.Time{}, map[string]time.Duration{}
	for _, e := range r.audited(cluster) {
		if e.IsAt() && e.Ours() && e.Namespace == r.namespace && served[e.Name].IsZero() {
			answering[e.Name] += e.Answered().Sub(e.Arrived())
			if e.Subresource == "status" && e.Wrote() {
				served[e.Name] = e.Answered()
			}
		}
	}
	worst := make([]time.Duration, len(changed)+1)
	for _, at := range ats {
		if !strings.HasPrefix(at.Name, cluster+"-") {
			continue
		}
		due, err := time.Parse(time.RFC3339Nano, at.Spec.Schedule)
		must.Succeed(r.t, err)
		done, ok := served[at.Name]
		if !ok {
			r.t.Errorf("%s was never served", at.Name)
			continue
		}
		phase := 0
		for phase < len(changed) && done.After(changed[phase]) {
			phase++
		}
		worst[phase] = max(worst[phase], done.Sub(due)-answering[at.Name])
	}
	return worst
}

// open names one of some Ats that isn't done.
func (r *rig) open(ats []*cnatv1alpha1.At) error {
	phases := map[string]cnatv1alpha1.AtPhase{}
	for _, cluster := range r.Workloads() {
		list := &cnatv1alpha1.AtList{}
		if err := r.Client(cluster).List(r.t.Context(), list, client.InNamespace(r.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			phases[list.Items[i].Name] = list.Items[i].Status.Phase
		}
	}
	for _, at := range ats {
		if phase := phases[at.Name]; phase != cnatv1alpha1.AtDone {
			return fmt.Errorf("%s is %q", at.Name, phase)
		}
	}
	return nil
}

// logged says whether replicas have logged something so often altogether.
func (r *rig) logged(replicas []*lab.Replica, msg string, want int) error {
	n := 0
	for _, replica := range replicas {
		lines, err := replica.Log.Count(func(l lab.Line) bool { return l.Msg == msg })
		if err != nil {
			return err
		}
		n += lines
	}
	if n < want {
		return fmt.Errorf("%q was logged %d times, want %d", msg, n, want)
	}
	return nil
}
