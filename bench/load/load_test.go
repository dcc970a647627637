package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func rng() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestArrivalsComeInOrderAndAtTheirRate(t *testing.T) {
	cases := map[string]struct {
		load      scenario.Load
		count     int
		tolerance float64
	}{
		"burst":  {scenario.Load{Arrivals: scenario.Burst, Count: 7}, 7, 0},
		"closed": {scenario.Load{Arrivals: scenario.Closed, Count: 7}, 7, 0},
		"constant": {scenario.Load{Arrivals: scenario.Constant, Rate: 40, Duration: scenario.Duration(10 * time.Second)}, 400,
			0},
		"poisson": {scenario.Load{Arrivals: scenario.Poisson, Rate: 40, Duration: scenario.Duration(100 * time.Second)},
			4000, 200},
		"nothing": {scenario.Load{Arrivals: scenario.Nothing, Duration: scenario.Duration(time.Second)}, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			offsets := Offsets(c.load, rng())
			if math.Abs(float64(len(offsets)-c.count)) > c.tolerance {
				t.Errorf("%d arrivals, want %d", len(offsets), c.count)
			}
			if !slices.IsSorted(offsets) {
				t.Error("not in order")
			}
			if n := len(offsets); n > 0 && (offsets[0] < 0 || offsets[n-1] > c.load.Duration.D()) {
				t.Errorf("from %v to %v", offsets[0], offsets[n-1])
			}
		})
	}
}

func TestDistancesOfPoissonArrivalsAreExponential(t *testing.T) {
	offsets := Offsets(scenario.Load{Arrivals: scenario.Poisson, Rate: 10,
		Duration: scenario.Duration(1000 * time.Second)}, rng())
	short := 0
	for i := 1; i < len(offsets); i++ {
		if offsets[i]-offsets[i-1] < 100*time.Millisecond {
			short++
		}
	}
	if share := float64(short) / float64(len(offsets)); math.Abs(share-(1-1/math.E)) > 0.02 {
		t.Errorf("%.3f of the distances are below the mean, want %.3f", share, 1-1/math.E)
	}
}

// server is an API server that only remembers; delay holds each answer back.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	bodies   []string
	delay    time.Duration
	status   int
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{status: http.StatusCreated}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.bodies = append(s.bodies, string(body))
		delay, status := s.delay, s.status
		s.mu.Unlock()
		time.Sleep(delay)
		w.WriteHeader(status)
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s
}

// asked lists the requests so far. One that its client has given up may still be under way when the client is done.
func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *server) cluster(t *testing.T, name string) *Cluster {
	t.Helper()
	c, err := NewCluster(name, &rest.Config{Host: s.URL})
	must.Succeed(t, err)
	return c
}

// notes collects the calls of Expect and Sent.
type notes struct {
	mu             sync.Mutex
	expected, sent []Arrival
}

func (n *notes) generator(l scenario.Load, clusters ...*Cluster) *Generator {
	return &Generator{
		Load: l, Clusters: clusters, Namespace: "ns",
		Expect: func(a Arrival) { n.mu.Lock(); n.expected = append(n.expected, a); n.mu.Unlock() },
		Sent:   func(a Arrival) { n.mu.Lock(); n.sent = append(n.sent, a); n.mu.Unlock() },
	}
}

// ofOne makes a generator of a load for one cluster, with the cluster's server and with what is called.
func ofOne(t *testing.T, l scenario.Load) (*server, *notes, *Generator) {
	t.Helper()
	s, n := newServer(t), &notes{}
	return s, n, n.generator(l, s.cluster(t, "west"))
}

func TestAClosedLoadDoesNotWaitForEver(t *testing.T) {
	_, _, g := ofOne(t, scenario.Load{Arrivals: scenario.Closed, Count: 2, Due: scenario.DueNow, Clients: 1})
	g.Window, g.Patience = make(chan struct{}, 1), 50*time.Millisecond
	_, err := g.Run(t.Context(), g.Begin(2), Offsets(g.Load, rng()))
	if err == nil || !strings.Contains(err.Error(), "became DONE") {
		t.Errorf("the second At of two, the first of which is never DONE: %v", err)
	}
}

func TestAClosedLoadWaitsForTheEndOfWhatIsUnderWay(t *testing.T) {
	const window, count = 3, 40
	s, n, g := ofOne(t, scenario.Load{Arrivals: scenario.Closed, Count: count, Due: scenario.DueNow, Clients: window})
	g.Window = make(chan struct{}, window)
	most, ended := 0, 0
	stop := time.AfterFunc(time.Minute, func() { t.Error("it never ends"); close(g.Window) })
	defer stop.Stop()
	done := make(chan error, 1)
	go func() {
		_, err := g.Run(t.Context(), g.Begin(count), Offsets(g.Load, rng()))
		done <- err
	}()
	for ended < count {
		for len(s.asked()) < min(ended+window, count) && !t.Failed() { // until as many are under way as may be
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond) // for one too many
		most = max(most, len(s.asked())-ended)
		<-g.Window
		ended++
	}
	must.Succeed(t, <-done)
	if most != window {
		t.Errorf("at most %d were under way, want %d", most, window)
	}
	first, last := n.expected[0].Intended, n.expected[count-1].Intended
	if last.Sub(first) < 10*time.Millisecond {
		t.Errorf("all were intended within %v: they count from when there was room for them", last.Sub(first))
	}
}

func TestAStallingServerMakesTheGeneratorLateAndDoesNotMoveTheIntendedTimes(t *testing.T) {
	s, n, g := ofOne(t, scenario.Load{Arrivals: scenario.Constant, Rate: 100,
		Duration: scenario.Duration(200 * time.Millisecond), Due: scenario.DueNow, Clients: 2})
	s.delay = 100 * time.Millisecond
	start := g.Begin(20)
	o, err := g.Run(t.Context(), start, Offsets(g.Load, rng()))
	must.Succeed(t, err)
	if len(n.sent) != 20 || len(n.expected) != 20 || o.Arrivals != 20 {
		t.Fatalf("%d sent, %d expected, %d in the outcome; want 20", len(n.sent), len(n.expected), o.Arrivals)
	}
	// Two clients do 20 requests a second of the 100 that are due.
	if late := o.Lateness.Quantiles(); late.Max < 500 || late.P99 < 500 {
		t.Errorf("late by %v ms, want most of a second", late.Max)
	}
	for _, a := range n.sent {
		if offset := a.Intended.Sub(start); offset < 0 || offset > 200*time.Millisecond || a.Sent.Before(a.Intended) ||
			a.Answered.Before(a.Sent) {
			t.Errorf("arrival %+v is intended %v after the start", a, offset)
		}
	}
}

func TestALoadIsSpreadOverTheClustersUnderSequentialNames(t *testing.T) {
	west, east := newServer(t), newServer(t)
	var n notes
	l := scenario.Load{Arrivals: scenario.Burst, Count: 5, Due: scenario.DueNow, Clients: 3}
	g := n.generator(l, west.cluster(t, "west"), east.cluster(t, "east"))
	_, err := g.Run(t.Context(), g.Begin(5), Offsets(l, rng()))
	must.Succeed(t, err)
	if w, e := len(west.asked()), len(east.asked()); w != 3 || e != 2 {
		t.Errorf("%d and %d requests, want 3 and 2", w, e)
	}
	var body struct {
		Metadata struct{ Name string }
		Spec     struct{ Schedule time.Time }
	}
	must.Succeed(t, json.Unmarshal([]byte(east.bodies[0]), &body))
	if !strings.HasPrefix(body.Metadata.Name, "at-00000") || time.Since(body.Spec.Schedule).Abs() > time.Minute {
		t.Errorf("body %+v", body)
	}
}

func TestAtsOfAVirtualClusterAreKnownByWhatTheLoadCallsThem(t *testing.T) {
	host := newServer(t)
	var n notes
	l := scenario.Load{Arrivals: scenario.Burst, Count: 3, Due: scenario.DueNow, Clients: 1}
	server := host.cluster(t, "c1")
	g := n.generator(l, server.Virtual("c1-0"), server.Virtual("c1-1"), server)
	_, err := g.Run(t.Context(), g.Begin(3), Offsets(l, rng()))
	must.Succeed(t, err)
	for i, request := range host.asked() {
		_, below, _ := strings.Cut(request, "/namespaces/")
		namespace, _, _ := strings.Cut(below, "/")
		var body struct{ Metadata struct{ Name string } }
		must.Succeed(t, json.Unmarshal([]byte(host.bodies[i]), &body))
		if want := []string{"c1-0-default", "c1-1-default", "ns"}[i]; namespace != want {
			t.Errorf("%s, want namespace %s", request, want)
		}
		if got := RefOf("c1", namespace, body.Metadata.Name); got != n.expected[i].Ref {
			t.Errorf("%s %s is read as %v, want %v", namespace, body.Metadata.Name, got, n.expected[i].Ref)
		}
	}
}

func TestWhatWasPreloadedIsChangedInTurnsAtItsRate(t *testing.T) {
	west, east := newServer(t), newServer(t)
	var n notes
	l := scenario.Load{Preload: 3, Changes: 50, Duration: scenario.Duration(200 * time.Millisecond), Clients: 1}
	g := n.generator(l, west.cluster(t, "west"), east.cluster(t, "east"))
	must.Succeed(t, g.Preload(t.Context(), true))
	const at = "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/ns/ats/at-000000"
	create, change := "POST "+strings.TrimSuffix(at, "/at-000000"), "PATCH "+at
	end := func(i string) []string { return []string{create, change + i, change + i + "/status"} }
	expect.Equal(t, "preloaded in west", slices.Concat(end("0"), end("2")), west.asked())
	if got := west.bodies[1]; got != `{"spec":{"suspend":true}}` {
		t.Errorf("what is to be changed becomes %s, want it suspended", got)
	}
	start := time.Now()
	o, err := g.Change(t.Context(), start)
	must.Succeed(t, err)
	if took := o.End.Sub(start); o.Arrivals != 10 || took < 180*time.Millisecond {
		t.Errorf("%d changes in %v, want 10 in 180 ms or more", o.Arrivals, took)
	}
	expect.Equal(t, "changed in west", []string{change + "0", change + "2", change + "0", change + "2", change + "0",
		change + "2", change + "0"}, west.asked()[6:])
	expect.Equal(t, "in east", slices.Concat(end("1"), []string{change + "1", change + "1", change + "1"}), east.asked())
	if west.bodies[6] == west.bodies[8] || !strings.Contains(west.bodies[6], "annotations") {
		t.Errorf("changes %s and %s of one At: want two different annotations", west.bodies[6], west.bodies[8])
	}
}

func TestAtsThatAreDueTogetherAreAllThereBefore(t *testing.T) {
	_, n, g := ofOne(t, scenario.Load{Arrivals: scenario.Burst, Count: 20, Due: scenario.DueTogether, Clients: 8})
	start := g.Begin(1000) // 4 s ahead at least: a busy machine has made all by then
	o, err := g.Run(t.Context(), start, Offsets(g.Load, rng()))
	must.Succeed(t, err)
	if start.Nanosecond() != 0 || !o.Start.Equal(start) || time.Now().Before(start) {
		t.Errorf("start %v, outcome's %v, now %v", start, o.Start, time.Now())
	}
	for _, a := range n.sent {
		if !a.Due.Equal(start) || !a.Intended.Equal(start) || a.Answered.After(start) {
			t.Errorf("arrival %+v, want all of it before it is due at %v", a, start)
		}
	}
}

func TestAnEditedAtCountsFromItsEdit(t *testing.T) {
	s, n, g := ofOne(t, scenario.Load{Arrivals: scenario.Constant, Rate: 50,
		Duration: scenario.Duration(100 * time.Millisecond), Edit: scenario.Duration(150 * time.Millisecond),
		Due: scenario.DueNow, Clients: 8})
	start := g.Begin(5)
	_, err := g.Run(t.Context(), start, Offsets(g.Load, rng()))
	must.Succeed(t, err)
	posts, patches := 0, 0
	for _, r := range s.asked() {
		switch {
		case strings.HasPrefix(r, "POST"):
			posts++
		case strings.HasPrefix(r, "PATCH"):
			patches++
		}
	}
	if posts != 5 || patches != 5 || len(n.sent) != 5 {
		t.Errorf("%d creates, %d edits, %d arrivals; want 5 each", posts, patches, len(n.sent))
	}
	for _, a := range n.sent {
		if a.Sent.Before(start) {
			t.Errorf("arrival %+v was sent before the start %v", a, start)
		}
	}
}

func TestARefusalEndsTheLoadWithTheAtNamed(t *testing.T) {
	s, _, g := ofOne(t, scenario.Load{Arrivals: scenario.Burst, Count: 500, Due: scenario.DueNow, Clients: 2})
	s.status = http.StatusForbidden
	_, err := g.Run(t.Context(), g.Begin(500), Offsets(g.Load, rng()))
	if err == nil || !strings.Contains(err.Error(), "At at-00") || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
	if n := len(s.asked()); n > 100 {
		t.Errorf("%d requests after the first refusal", n)
	}
}

func TestThePartsOfAFloorAreAllOfTheHashesOnce(t *testing.T) {
	for of := 2; of < 9; of++ {
		end := "0x0000000000000000"
		slots := map[string]bool{}
		for part := range of {
			own := (&Floor{Part: part, Of: of}).own()
			from, to, found := strings.Cut(strings.TrimSuffix(own[feed.Ats][1], "')"), "', '")
			if !found || !strings.HasSuffix(from, "'"+end) {
				t.Errorf("part %d of %d begins at %s, the one before ends at %s", part, of, from, end)
			}
			end, slots[own[feed.Pods][1]] = to, true
		}
		if end != "0x10000000000000000" || len(slots) != of {
			t.Errorf("%d parts end at %s and have slots %v", of, end, slots)
		}
	}
}

func TestTheFloorsPodHasTheReconcilersDefaults(t *testing.T) {
	data, err := json.Marshal(podOf("a", "0b6c2b0c-8b7e-4b7e-9d3c-7a9d1b1f2c3d", "a-0b6c2b0c", "00"))
	must.Succeed(t, err)
	var pod corev1.Pod
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&pod); err != nil {
		t.Fatalf("%s\nisn't a Pod: %v", data, err)
	}
	defaults, got := at.RestrictedPods(), pod.Spec.Containers[0]
	want := corev1.ResourceRequirements{Requests: defaults.Requests, Limits: defaults.Limits}
	if !equality.Semantic.DeepEqual(got.Resources, want) ||
		!equality.Semantic.DeepEqual(*got.SecurityContext, defaults.SecurityContext) {
		t.Errorf("the container is %s", data)
	}
}
