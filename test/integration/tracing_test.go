package integration

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/telemetry/jaeger"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

const (
	tracedNamespace = "traced"
	tracedAts       = 60
)

// Real replicas, real load, the real Jaeger: what it got is held against what the replicas and the API server counted.
func TestEveryReconcileIsAWholeTraceAndNoSecretComesOut(t *testing.T) {
	f := startTracedFleet(t)
	west := f.Client("west")
	must.Succeed(t, lab.AddNamespace(t.Context(), west, tracedNamespace))
	first := labtest.Replica(t, f, "first")
	spec := cnatv1alpha1.AtSpec{Schedule: time.Now().UTC().Add(4 * time.Second).Format(time.RFC3339),
		Command: "echo " + canaryCommand}
	createAts(t, west, tracedNamespace, "at", tracedAts, spec)
	// Every new holder looks at these. The others may be over when their shard moves, and then it has no first reconcile.
	spec.Suspend = true
	createAts(t, west, tracedNamespace, "suspended", 100, spec) // some of them in each shard
	labtest.Until(t, "the first replica serves all shards",
		func() bool { return sum(scrape(t, first), "tenure_shards_served") == 4 })
	second := labtest.Replica(t, f, "second")
	labtest.Until(t, "the second replica serves its half",
		func() bool { return sum(scrape(t, second), "tenure_shards_served") == 2 })
	labtest.Done(t, west, tracedAts, time.Minute, client.InNamespace(tracedNamespace))

	// A moment of quiet: what the replicas have counted by then must all be in Jaeger in the end.
	var pages map[string]string
	var quiet time.Time // between two looks that show the same
	labtest.Until(t, "nothing is reconciled any more", func() bool {
		pages = map[string]string{"first": scrape(t, first), "second": scrape(t, second)}
		time.Sleep(time.Second)
		quiet = time.Now()
		return reconciles(pages["first"]) == reconciles(scrape(t, first)) &&
			reconciles(pages["second"]) == reconciles(scrape(t, second))
	})
	labtest.Leave(t, first)
	// What is handed to a replica that leaves before it has begun stays a handoff without end, and a trace without root.
	labtest.Until(t, "the second replica serves all shards",
		func() bool { return sum(scrape(t, second), "tenure_shards_served") == 4 })
	labtest.Leave(t, second)
	var traces []jaeger.Trace
	var raw string
	labtest.Within(t, time.Minute, "the API server has sent its spans, which it does every 5 s", func() error {
		traces, raw = tracesOf(t, f)
		for _, trace := range traces {
			if orphans := trace.Orphans(); len(orphans) > 0 {
				return fmt.Errorf("the parent of %s (%v) is missing", orphans[0].Name, orphans[0].Tags)
			}
		}
		spans, bare := spansOfTheServer(traces)
		if spans < 3*tracedAts || len(bare) > 0 {
			return fmt.Errorf("%d of its spans, want %d at least; none below the calls %q", spans, 3*tracedAts, bare)
		}
		return nil
	})
	checkReconciles(t, traces, pages, quiet)
	checkRoots(t, traces)
	checkAPICalls(t, traces, f.Planes.Cluster("west"))
	checkHandoffs(t, traces)
	checkLinks(t, traces)
	t.Run("what is planted stays secret", func(t *testing.T) { checkCanaries(t, f, pages, raw) })
	t.Run("metrics pass the linter", func(t *testing.T) { checkMetrics(t, pages) })
}

// tracesOf returns all that Jaeger has of the replicas, and the answer as it came.
func tracesOf(t *testing.T, f *lab.Fleet) ([]jaeger.Trace, string) {
	t.Helper()
	c := jaeger.Client{URL: f.Jaeger.QueryURL()}
	traces, err := c.Find(t.Context(), jaeger.Query{Service: "tenure", Limit: 10000, Since: time.Now().Add(-time.Hour)})
	must.Succeed(t, err)
	raw, err := lab.Get(t.Context(), f.Jaeger.QueryURL()+"/api/traces?service=tenure&limit=10000&lookback=1h")
	must.Succeed(t, err)
	return traces, string(raw)
}

// scrape returns a replica's page as it is: it is searched for secrets.
func scrape(t *testing.T, r *lab.Replica) string {
	t.Helper()
	page, err := lab.Get(t.Context(), "http://"+r.Address(0)+"/metrics")
	if away := new(url.Error); errors.As(err, &away) {
		return "" // not up yet
	}
	must.Succeed(t, err)
	return string(page)
}

// sum adds up a metric on a page; one that isn't there is zero.
func sum(page, name string) float64 {
	metrics, err := lab.ParseMetrics(strings.NewReader(page))
	if err != nil {
		return 0
	}
	total, _ := metrics.Sum(name, nil)
	return total
}

func reconciles(page string) float64 { return sum(page, "tenure_reconcile_seconds") }

func isReconcile(s *jaeger.Span) bool { return s.Name == "reconcile At" }

// checkReconciles holds Jaeger's number of traces against what each replica counted, and each for its parts.
func checkReconciles(t *testing.T, traces []jaeger.Trace, pages map[string]string, quiet time.Time) {
	t.Helper()
	counted, stored := map[string]float64{}, map[string]float64{}
	for name, page := range pages {
		counted[name] = reconciles(page)
		if dropped := sum(page, "tenure_trace_spans_dropped_total"); dropped != 0 ||
			!strings.Contains(page, "\ntenure_trace_spans_sent_total") {
			t.Errorf("%s dropped %v spans, or doesn't count those that it sent", name, dropped)
		}
	}
	attributes := []string{"k8s.cluster.name", "k8s.namespace.name", "k8s.object.name", "k8s.object.kind",
		"tenure.shard", "tenure.epoch",
		"tenure.replica", "tenure.attempt", "tenure.trigger", "tenure.result"}
	for _, trace := range traces {
		for i := range trace.Spans {
			root := &trace.Spans[i]
			if !isReconcile(root) {
				continue
			}
			if root.Parent != "" {
				t.Errorf("trace %s: reconcile has the parent %s", trace.ID, root.Parent)
			}
			if root.Start.Add(root.Duration).Before(quiet) {
				stored[root.Tags["tenure.replica"]]++
			}
			waits := 0
			for _, s := range trace.Spans {
				if s.Parent == root.ID && s.Name == "queue wait" {
					waits++
				}
			}
			if waits != 1 {
				t.Errorf("trace %s has %d queue waits", trace.ID, waits)
			}
			for _, a := range attributes {
				if root.Tags[a] == "" || (a == "tenure.epoch" && root.Tags[a] == "0") {
					t.Errorf("trace %s: attribute %s is %q", trace.ID, a, root.Tags[a])
				}
			}
		}
	}
	if diff := cmp.Diff(counted, stored); diff != "" || counted["first"] == 0 || counted["second"] == 0 {
		t.Errorf("reconciles: -counted by the replica +stored by Jaeger:\n%s(counted %v)", diff, counted)
	}
}

// checkRoots finds roots that were sent twice.
func checkRoots(t *testing.T, traces []jaeger.Trace) {
	t.Helper()
	for _, trace := range traces {
		roots := 0
		for _, s := range trace.Spans {
			if s.Parent == "" {
				roots++
			}
		}
		if roots != 1 {
			t.Errorf("trace %s has %d roots", trace.ID, roots)
		}
	}
}

// spansOfTheServer counts those of the API server that hang directly below a call of ours. bare are the calls of
// reconciles that succeeded and have none.
func spansOfTheServer(traces []jaeger.Trace) (n int, bare []string) {
	for _, trace := range traces {
		served := map[string]int{} // by parent
		for _, s := range trace.Spans {
			if s.Service == "apiserver" {
				served[s.Parent]++
			}
		}
		for _, s := range trace.Spans {
			if s.Tags["k8s.request.verb"] == "" {
				continue
			}
			n += served[s.ID]
			if served[s.ID] == 0 && !s.Failed() && trace.Reconcile() != nil {
				bare = append(bare, s.Name)
			}
		}
	}
	return n, bare
}

// checkAPICalls holds the spans of writes against the API server's audit log: the same calls, none missing, none
// invented.
func checkAPICalls(t *testing.T, traces []jaeger.Trace, west *localplane.Plane) {
	t.Helper()
	spans := map[string]int{}
	for _, trace := range traces {
		for _, s := range trace.Spans {
			if verb := s.Tags["k8s.request.verb"]; verb != "" && verb != "get" && verb != "list" {
				spans[verb+" "+s.Tags["k8s.request.resource"]]++
			}
		}
	}
	audited := writesIn(t, west, func(e *audit.Event) bool { return e.Ours() && e.Namespace == tracedNamespace })
	if diff := cmp.Diff(audited, spans); diff != "" || audited["create pods"] != tracedAts {
		t.Errorf("writes: -in the audit log +as spans:\n%s(audited %v)", diff, audited)
	}
}

// checkHandoffs looks for the planned moves to the second replica: one trace each, with everybody's part.
func checkHandoffs(t *testing.T, traces []jaeger.Trace) {
	t.Helper()
	whole := 0
	for _, trace := range traces {
		i := slices.IndexFunc(trace.Spans, func(s jaeger.Span) bool {
			return s.Tags["tenure.move"] == string(protocol.Planned)
		})
		if i < 0 {
			continue
		}
		root := trace.Spans[i]
		where := map[string]string{}
		for _, s := range trace.Spans {
			// The first of a name counts: how the tenure ended later, when nobody was left, is in the trace too.
			if s.ID != root.ID && s.Parent == root.ID && where[s.Name] == "" && s.Name != "release" {
				incarnation := s.Tags["tenure.incarnation"]
				where[s.Name] = lab.ReplicaOf(incarnation)
			}
		}
		want := map[string]string{"plan": "first", "warm": "second", "announce warm": "second", "drain": "first",
			"hand off": "first",
			"activate": "second", "first reconcile": "second"}
		if where["plan"] == "second" { // either may be the coordinator
			want["plan"] = "second"
		}
		expect.Equal(t, fmt.Sprintf("trace %s, %s: who did which step", trace.ID, root.Name), want, where)
		whole++
	}
	if whole < 2 {
		t.Errorf("%d handoffs to the second replica were traced, want 2", whole)
	}
}

// checkLinks follows the links back from reconciles: all must lead to another one that is there, of the same At.
func checkLinks(t *testing.T, traces []jaeger.Trace) {
	t.Helper()
	names := map[string]string{}
	for _, trace := range traces {
		for i := range trace.Spans {
			if isReconcile(&trace.Spans[i]) {
				names[trace.ID] = trace.Spans[i].Tags["k8s.object.name"]
			}
		}
	}
	linked := 0
	for _, trace := range traces {
		for i := range trace.Spans {
			if !isReconcile(&trace.Spans[i]) {
				continue
			}
			for _, to := range trace.Spans[i].Links {
				linked++
				if names[to] != names[trace.ID] {
					t.Errorf("trace %s of At %s is linked to %s of %q", trace.ID, names[trace.ID], to, names[to])
				}
			}
		}
	}
	if linked < tracedAts {
		t.Errorf("%d links for %d Ats: the reconcile that follows the end of a Pod leads to the one that made it", linked,
			tracedAts)
	}
}

// checkCanaries searches everything that came out.
func checkCanaries(t *testing.T, f *lab.Fleet, pages map[string]string, traces string) {
	out := map[string]string{"Jaeger": traces}
	for name, page := range pages {
		out["metrics of "+name] = page
	}
	for _, r := range f.Replicas() {
		content, err := os.ReadFile(r.LogPath)
		must.Succeed(t, err)
		out["log of "+r.Name] = string(content)
	}
	for _, plane := range f.Planes.Clusters() {
		for _, what := range []string{"events", "events.events.k8s.io", "leases.coordination.k8s.io"} {
			content, err := plane.Kubectl(t.Context(), "", "get", what, "-A", "-o", "json")
			must.Succeed(t, err)
			out[what+" in "+plane.Name()] = content
		}
	}
	shards, err := f.Planes.Cluster(lab.Home).Kubectl(t.Context(), "", "get", "shards", "-A", "-o", "json")
	must.Succeed(t, err)
	out["shards"] = shards
	// The search must be able to find: these are known to be there.
	for where, what := range map[string]string{"Jaeger": "at-000", "metrics of first": `cluster="away"`,
		"log of first": "away", "events in home": "away"} {
		if !strings.Contains(out[where], what) {
			t.Errorf("%s doesn't hold %q: it isn't what was to be searched", where, what)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(out)) {
		for _, canary := range []string{canaryToken, canaryCommand, canaryHeader, canaryCA} {
			if at := strings.Index(out[where], canary); at >= 0 {
				t.Errorf("%s holds %s: ...%s", where, canary, out[where][max(0, at-200):at])
			}
		}
	}
}

// checkMetrics lints the names. The console's test looks for those that dashboards and alerts are made of.
func checkMetrics(t *testing.T, pages map[string]string) {
	for name, page := range pages {
		ours := strings.Builder{}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "tenure_") || strings.HasPrefix(line, "# HELP tenure_") ||
				strings.HasPrefix(line, "# TYPE tenure_") {
				ours.WriteString(line)
			}
		}
		problems, err := promlint.New(strings.NewReader(ours.String())).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", name, problems, err)
		}
	}
}
