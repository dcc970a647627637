package sharding

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/must"
)

// TestANewHolderWithStaleCachesMakesNoSecondPod lets a new holder take over with caches that end before the old
// holder's work began: it sees Ats that are PENDING and due, while they are DONE, and the Pods of some are gone.
func TestANewHolderWithStaleCachesMakesNoSecondPod(t *testing.T) {
	r := newRig(t)
	// The future holder starts first, so that it coordinates and sees that it is warm itself.
	r.start("c2", "--lease-duration=10s") // a busy machine alone makes nobody lapse: it would list afresh
	r.settle()
	r.start("c1", "--lease-duration=10s")
	r.settle()
	r.pin("west/", "c1")
	r.heldBy("west/", "c1")

	// c2 can't say that it is warm, so c1 goes on serving.
	words := faultproxy.Match{Verbs: []string{"patch"}, Resources: []string{"shards/status"}}
	mute := r.HomeProxy("c2").Inject(faultproxy.Rule{Match: words, Fault: faultproxy.Answer, Status: 500})
	r.pin("west/", "c2")
	r.eventually("c2 is warm", func() error {
		if hits := mute.Hits(); hits < 2*shardsOfCluster {
			return fmt.Errorf("it has tried to say so %d times", hits)
		}
		return nil
	})
	made := 0
	frozen := func(ahead time.Duration) (ats []*cnatv1alpha1.At, stale *faultproxy.Injection, inTime bool) {
		began := time.Now()
		ats = r.createAts(40, ahead, "west")
		made += len(ats)
		time.Sleep(time.Second) // so that c2's caches have them: c2 knows nothing of others, so it can't do them twice
		stale = r.Proxy("west").Inject(faultproxy.Rule{Match: faultproxy.Match{Agents: []string{lab.Agent("c2")}},
			Fault: faultproxy.FreezeWatch})
		return ats, stale, time.Since(began) < ahead
	}
	ats, stale, inTime := frozen(5 * time.Second)
	for ahead := 15 * time.Second; !inTime && ahead < patience; ahead *= 2 { // a busy machine
		stale.End()
		ats, stale, inTime = frozen(ahead)
	}
	r.eventually("c1 has brought the Ats to DONE", func() error { return r.unfinished("west") })
	for i := 0; i < len(ats); i += 2 {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = r.namespace, at.PodName(ats[i])
		must.Succeed(t, r.Client("west").Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	mute.End()
	r.heldBy("west/", "c2")
	refused := func() (n int) {
		for _, e := range r.audited("west") {
			if e.Namespace == r.namespace && strings.Contains(e.UserAgent, lab.Agent("c2")) && e.Code == http.StatusConflict {
				n++
			}
		}
		return n
	}
	r.eventually("the new holder is misled", func() error { // else the test tests nothing
		if stale.Hits() == 0 || refused() == 0 {
			return fmt.Errorf("%d watches were held back, %d writes of the new holder refused", stale.Hits(), refused())
		}
		return nil
	})
	time.Sleep(3 * time.Second) // time for c2 to do what it must not
	t.Logf("%d watches were held back, %d writes of the new holder refused", stale.Hits(), refused())
	stale.End()
	r.createAts(4, 0, "west")
	r.eventually("c2 serves when its caches have caught up", func() error { return r.unfinished("west") })
	r.podsMade("west", made+4)
	r.pin("west/", "")
}

// TestRepliesThatGetLostAfterTheCommit loses replies to each kind of write by itself, at the workload cluster and
// at home.
func TestRepliesThatGetLostAfterTheCommit(t *testing.T) {
	r := newRig(t)
	r.start("d1")
	r.start("d2")
	r.settle()
	tests := []struct {
		name  string
		match faultproxy.Match
		home  bool
		once  bool // it is done once in a round, so its reply is lost for sure
	}{
		{"making Pods", faultproxy.Match{Verbs: []string{"create"}, Resources: []string{"pods"}}, false, false},
		{"writing the status of Ats", faultproxy.Match{Verbs: []string{"update", "patch"}, Resources: []string{"ats/status"}},
			false, false},
		{"renewing Leases", faultproxy.Match{Verbs: []string{"patch"}, Resources: []string{"leases"}}, true, false},
		{"creating Leases", faultproxy.Match{Verbs: []string{"create"}, Resources: []string{"leases"}}, true, true},
		{"planning", faultproxy.Match{Verbs: []string{"patch"}, Resources: []string{"shards"}}, true, false},
		{"announcing, handing off and claiming", faultproxy.Match{Verbs: []string{"patch"},
			Resources: []string{"shards/status"}}, true, false},
	}
	for i, tt := range tests {
		rule := faultproxy.Rule{Match: tt.match, Fault: faultproxy.LoseReply, Probability: 0.6}
		if tt.once {
			rule.Probability, rule.Limit = 0, 3
		}
		var lost []*faultproxy.Injection
		name := fmt.Sprintf("d%d", 3+i)
		if !tt.home {
			lost = append(lost, r.Proxy("west").Inject(rule), r.Proxy("east").Inject(rule))
		} else {
			must.Succeed(t, r.MakeHomeProxy(name))
			for _, replica := range []string{"d1", "d2", name} {
				lost = append(lost, r.HomeProxy(replica).Inject(rule))
			}
		}
		hits := func() (n int) {
			for _, l := range lost {
				n += l.Hits()
			}
			return n
		}
		r.createAts(20, time.Second)
		joined := r.start(name) // its joining and leaving make every kind of write at home
		r.eventually(tt.name+": replies are lost, and it has joined all the same", func() error {
			held, err := r.holding(name)
			if lost := hits(); lost == 0 || held == 0 {
				err = errors.Join(err, fmt.Errorf("%d lost, it holds %d shards", lost, held))
			}
			return err
		})
		joined.Terminate()
		if err := joined.Wait(patience); err != nil {
			t.Error(err)
		}
		r.settle()
		for _, l := range lost {
			l.End()
		}
		t.Logf("%s: %d replies lost", tt.name, hits())
		r.eventually("the Ats are DONE after "+tt.name, func() error { return r.unfinished() })
	}
	r.podsMade("west", 10*len(tests))
	r.podsMade("east", 10*len(tests))
}

func TestAHomeClusterThatIsAwayBrieflyIsLateRefusesOrIsEditedMakesNobodyLapse(t *testing.T) {
	renewals := faultproxy.Match{Verbs: []string{"patch"}, Resources: []string{"leases"}}
	writes := faultproxy.Match{Verbs: []string{"create", "patch", "update", "delete"}}
	requests := faultproxy.Match{Verbs: []string{"get", "list", "create", "patch", "update", "delete"}}
	r := newRig(t)
	// A renewal that home answers after a fifth of a lease leaves a busy machine a third of one until it is too late.
	const long = 5 * lease
	flag := "--lease-duration=" + long.String()
	replicas := []*lab.Replica{r.start("i1", flag), r.start("i2", flag)}
	r.settle()
	before := r.holders()
	const alike = long + time.Second // what keeps a replica from renewing, and is always alike, makes it lapse in a lease
	for _, tt := range []struct {
		name  string
		lasts time.Duration
		rule  faultproxy.Rule
	}{
		{"it is away for a quarter of a lease", alike, faultproxy.Rule{Fault: faultproxy.Blackhole, For: long / 4}},
		{"it renews and never says so", alike, faultproxy.Rule{Match: renewals, Fault: faultproxy.LoseReply}},
		{"it answers late", alike, faultproxy.Rule{Match: requests, Fault: faultproxy.Delay, Delay: long / 5}},
		{"it has too much to do for half of all writes", 3 * long / 2, faultproxy.Rule{
			Match: writes, Fault: faultproxy.Answer, Status: http.StatusTooManyRequests, RetryAfter: 1, Probability: 0.5,
		}},
	} {
		var injected []*faultproxy.Injection
		for _, replica := range replicas {
			injected = append(injected, r.HomeProxy(replica.Name).Inject(tt.rule))
		}
		for began := time.Now(); time.Since(began) < tt.lasts; time.Sleep(time.Second) {
			r.createAts(shardsOfCluster, 0)
		}
		r.eventually("the Ats are DONE while "+tt.name, func() error { return r.unfinished() })
		for i, replica := range replicas {
			if n := lapses(t, replica); n > 0 || injected[i].Hits() == 0 {
				t.Fatalf("%s: %s lapsed %d times, %d of its requests suffered", tt.name, replica.Name, n, injected[i].Hits())
			}
			injected[i].End()
		}
	}
	r.unlabelLeases(replicas)
	lapsed(t, replicas...)
	if m := moved(before, r.holders()); len(m) > 0 {
		t.Errorf("shards moved: %v", m)
	}
}

// unlabelLeases takes the label by which replicas watch Leases from those of these replicas, and waits until each has
// put it back.
func (r *rig) unlabelLeases(of []*lab.Replica) {
	home := r.Client(lab.Home)
	ours := []client.ListOption{client.InNamespace(lab.Namespace), client.HasLabels{tenurev1alpha1.RoleLabel}}
	names := make(map[string]bool, len(of))
	for _, replica := range of {
		names[replica.Name] = true
	}
	leases, taken := &coordinationv1.LeaseList{}, map[string]bool{}
	must.Succeed(r.t, home.List(r.t.Context(), leases, ours...))
	for i := range leases.Items {
		if l := &leases.Items[i]; names[l.Labels[tenurev1alpha1.ReplicaLabel]] {
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, tenurev1alpha1.RoleLabel)
			must.Succeed(r.t, home.Patch(r.t.Context(), l, client.RawPatch(types.MergePatchType, []byte(patch))))
			taken[l.Name] = true
		}
	}
	if len(taken) != len(of) {
		r.t.Fatalf("%d Leases had the label, want %d", len(taken), len(of))
	}
	r.eventually("the Leases have their labels again", func() error {
		back := 0
		if err := home.List(r.t.Context(), leases, ours...); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if taken[l.Name] {
				back++
			}
		}
		if back < len(taken) {
			return fmt.Errorf("%d of %d have", back, len(taken))
		}
		return nil
	})
}

func TestWhileTheHomeClusterIsAwayForLongNobodyActsAndThenAllGoOn(t *testing.T) {
	r := newRig(t)
	replicas := []*lab.Replica{r.start("g1"), r.start("g2")}
	r.settle()
	before := r.holders()
	injected := r.cutHome(replicas...)
	began := time.Now()
	time.Sleep(lease + time.Second)
	stopped := time.Now()
	r.createAts(10, 0)
	time.Sleep(lease)
	for _, cluster := range r.Workloads() {
		for _, e := range r.audited(cluster) {
			if e.Namespace == r.namespace && e.Resource == "pods" && e.Verb == "create" && e.Answered().After(stopped) &&
				e.Subresource == "" {
				t.Errorf("a Pod was made %v after home had gone: %+v", e.Answered().Sub(began), e)
			}
		}
	}
	for _, i := range injected {
		i.End()
	}
	back := time.Now()
	r.eventually("the Ats are DONE", func() error { return r.unfinished() })
	t.Logf("all DONE %v after home was back", time.Since(back).Round(time.Millisecond))
	r.settle()
	for _, replica := range replicas {
		if lapses(t, replica) == 0 {
			t.Errorf("%s didn't lapse though home was away for two leases", replica.Name)
		}
	}
	for name, now := range r.holders() {
		if now.epoch <= before[name].epoch {
			t.Errorf("%s is in epoch %d, and was in %d before everybody lapsed", name, now.epoch, before[name].epoch)
		}
	}
}

func TestAReplicaThatStartsWhileTheHomeClusterIsAwayWaitsForIt(t *testing.T) {
	r := newRig(t)
	must.Succeed(t, r.MakeHomeProxy("h1"))
	away := r.HomeProxy("h1").Inject(faultproxy.Rule{Fault: faultproxy.Answer, Status: http.StatusInternalServerError})
	replica := r.start("h1")
	r.eventually("it has asked home", func() error {
		if away.Hits() == 0 {
			return errors.New("no request came")
		}
		return nil
	})
	time.Sleep(lease)
	if replica.Ended() {
		t.Fatalf("it has ended instead of waiting, after %d answers", away.Hits())
	}
	away.End()
	r.settle()
	r.createAts(10, 0)
	r.eventually("the Ats are DONE", func() error { return r.unfinished() })
}

func (r *rig) cutHome(replicas ...*lab.Replica) []*faultproxy.Injection {
	var all []*faultproxy.Injection
	for _, replica := range replicas {
		all = append(all, r.HomeProxy(replica.Name).Inject(faultproxy.Rule{Fault: faultproxy.Blackhole}))
	}
	return all
}

func lapses(t *testing.T, r *lab.Replica) int {
	t.Helper()
	n, err := r.Log.Count(lab.Line.Lapse)
	must.Succeed(t, err)
	return n
}

// lapsed fails the test for each of some replicas that lapsed.
func lapsed(t *testing.T, replicas ...*lab.Replica) {
	t.Helper()
	for _, r := range replicas {
		if n := lapses(t, r); n > 0 {
			t.Errorf("%s lapsed %d times", r.Name, n)
		}
	}
}
