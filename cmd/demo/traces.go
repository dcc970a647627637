package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	benchreport "github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/pkg/telemetry/jaeger"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

const (
	// tracesWithin bounds the wait for the last spans of a trace: replicas send them every second.
	tracesWithin = 10 * time.Second
	// usualPort is the port at which tenure trace looks for Jaeger by default.
	usualPort = 16686
	// slowEnough narrows the search for the slowest reconcile; mostTraces bounds what is read of Jaeger at a time.
	slowEnough = 50 * time.Millisecond
	mostTraces = 5000
)

// traceFacts describes something worth seeing in Jaeger: one trace, or for the life of an At one trace for each
// reconcile.
type traceFacts struct {
	what, about string
	path        string   // below Jaeger's URL
	arguments   []string // of tenure trace
	traces      int
	spans       int
	missing     string // what isn't as it should be, "" if nothing
}

func (t traceFacts) check() check {
	c := check{"trace: " + t.what, fmt.Sprintf("%s, %s", t.about, benchreport.Count(t.spans, "span")), t.missing == ""}
	if t.traces > 1 {
		c.found = fmt.Sprintf("%s, %s, %s", t.about, benchreport.Count(t.traces, "reconcile"),
			benchreport.Count(t.spans, "span"))
	}
	if !c.ok {
		c.found = fmt.Sprintf("%s: %s", t.about, t.missing)
	}
	return c
}

// queryPort returns Jaeger's usual port if it is free, else 0 for any port.
func queryPort() int {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", usualPort))
	if err != nil {
		return 0
	}
	if listener.Close() != nil {
		return 0
	}
	return usualPort
}

// findTraces looks in Jaeger for the three things worth seeing. It repeats that until their traces are complete, or
// time is up.
func (st *story) findTraces(ctx context.Context) ([]traceFacts, error) {
	client := &jaeger.Client{URL: st.fleet.Jaeger.QueryURL()}
	var found []traceFacts
	for _, find := range []finder{st.traceAt, st.traceHandoff, st.traceSlowest} {
		facts, err := find.until(ctx, client)
		if err != nil {
			return nil, err
		}
		found = append(found, facts)
	}
	return found, nil
}

// finder looks for one of them.
type finder func(context.Context, *jaeger.Client) (traceFacts, error)

// until asks until nothing is missing, or time is up.
func (find finder) until(ctx context.Context, client *jaeger.Client) (traceFacts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tracesWithin, errTimeUp)
	defer cancel()
	for {
		facts, err := find(ctx, client)
		if err != nil && !errors.Is(context.Cause(ctx), errTimeUp) {
			return facts, err
		}
		if err != nil {
			facts.missing = err.Error()
		}
		if facts.missing == "" || lab.Sleep(ctx, pollEvery) != nil {
			return facts, nil
		}
	}
}

func (st *story) query() jaeger.Query {
	return jaeger.Query{Service: telemetry.DefaultService, Since: st.board.began, Limit: mostTraces,
		Tags: map[string]string{}}
}

// traceAt finds the life of the At that came due last.
func (st *story) traceAt(ctx context.Context, client *jaeger.Client) (traceFacts, error) {
	orders := planAts(st.settings.ats, time.Time{}, st.settings.spread)
	name, q := orders[len(orders)-1].at.Name, st.query()
	q.Operation = "reconcile At"
	q.Tags["k8s.object.name"] = name
	facts := traceFacts{
		what: "an At's life", about: name, arguments: []string{"at/" + name},
		path: "/api/traces?service=" + q.Service + "&tag=k8s.object.name:" + name, // no other cluster has an At of that name
	}
	traces, err := client.Find(ctx, q)
	facts.count(traces)
	facts.missing = lifeLacks(traces)
	return facts, err
}

// traceHandoff finds the planned move that [worthSeeing] picks.
func (st *story) traceHandoff(ctx context.Context, client *jaeger.Client) (traceFacts, error) {
	facts := traceFacts{what: "a handoff", about: "a planned move", missing: "there was none"}
	moved := worthSeeing(st.board.snapshot().handoffs, st.loaded)
	if moved == nil {
		return facts, nil
	}
	facts.about = fmt.Sprintf("%s to %s", moved.Shard, lab.ReplicaOf(moved.To))
	if moved.waiting == 0 {
		facts.about += " with no At left to run"
	}
	q := st.query()
	q.Operation = "handoff " + moved.Shard
	traces, err := client.Find(ctx, q)
	traces = slices.DeleteFunc(traces, func(t jaeger.Trace) bool {
		return len(t.Spans) == 0 || t.Spans[0].Tags["tenure.epoch"] != strconv.FormatInt(moved.Epoch, 10)
	})
	facts.count(traces)
	facts.missing = handoffLacks(traces, moved.waiting > 0)
	facts.single(traces)
	return facts, err
}

// worthSeeing picks the planned move with the longest gap, of the shards of workload clusters, once they had Ats. Moves
// of shards with Ats that waited come first: only their traces are sure to have a first reconcile.
func worthSeeing(handoffs []handoff, since time.Time) *handoff {
	var best *handoff
	for i, h := range handoffs {
		atHome := strings.HasPrefix(h.Shard, homeCluster+"/") // home had no objects when its shards moved
		if h.Kind != protocol.Planned || h.GapMS == nil || atHome || !h.time.After(since) {
			continue
		}
		works, worked := h.waiting > 0, best != nil && best.waiting > 0
		if best == nil || works && !worked || works == worked && *h.GapMS > *best.GapMS {
			best = &handoffs[i]
		}
	}
	return best
}

// traceSlowest finds the slowest reconcile of all.
func (st *story) traceSlowest(ctx context.Context, client *jaeger.Client) (traceFacts, error) {
	facts := traceFacts{what: "the slowest reconcile", about: "a reconcile"}
	q := st.query()
	q.AtLeast = slowEnough
	traces, err := client.Find(ctx, q)
	if err == nil && len(jaeger.Slowest(traces)) == 0 { // a quick machine
		q.AtLeast = 0
		traces, err = client.Find(ctx, q)
	}
	traces = jaeger.Slowest(traces)
	facts.count(traces)
	facts.missing = reconcileLacks(traces)
	facts.single(traces)
	if len(traces) == 1 {
		facts.about = fmt.Sprintf("%s, %s", traces[0].Reconcile().Tags["k8s.object.name"], length(traces[0].Work()))
	}
	return facts, err
}

func (t *traceFacts) count(traces []jaeger.Trace) {
	t.traces = len(traces)
	for _, one := range traces {
		t.spans += len(one.Spans)
	}
}

// single completes the facts about exactly one trace.
func (t *traceFacts) single(traces []jaeger.Trace) {
	if len(traces) == 1 {
		t.path, t.arguments = "/api/traces/"+traces[0].ID, []string{traces[0].ID}
	}
}

// lifeLacks says what the traces of an At's reconciles lack, "" if nothing.
func lifeLacks(traces []jaeger.Trace) string {
	made := 0
	for _, t := range traces {
		if lacks := cmp.Or(reconcileLacks([]jaeger.Trace{t}), serversLack(t)); lacks != "" {
			return lacks
		}
		for _, s := range t.Spans {
			if s.Name == "create pods" && !s.Failed() {
				made++
			}
		}
	}
	switch {
	case len(traces) == 0:
		return "no trace"
	case made != 1:
		return fmt.Sprintf("%d Pods made, want 1", made)
	}
	return ""
}

// serversLack says below which API call the API server's own span is missing, "" if below none.
func serversLack(t jaeger.Trace) string {
	for _, call := range t.Spans {
		if call.Tags["k8s.request.verb"] != "" && !slices.ContainsFunc(t.Spans, func(s jaeger.Span) bool {
			return s.Parent == call.ID && s.Service != call.Service
		}) {
			return fmt.Sprintf("no span of the API server below %q", call.Name)
		}
	}
	return ""
}

// steps are what a planned move consists of. firstReconcile follows if the shard has work left.
var steps = []string{"plan", "warm", "drain", "hand off", "activate"}

const firstReconcile = "first reconcile"

// partial says why traces aren't a single one with exactly one root and no orphans, "" if they are.
func partial(traces []jaeger.Trace) string {
	if len(traces) != 1 {
		return fmt.Sprintf("%d traces, want 1", len(traces))
	}
	roots := 0
	for _, s := range traces[0].Spans {
		if s.Parent == "" {
			roots++
		}
	}
	if roots != 1 || len(traces[0].Orphans()) > 0 {
		return "not whole"
	}
	return ""
}

// handoffLacks says what the trace of a planned move lacks, "" if nothing. hadWork says that the shard had work left.
func handoffLacks(traces []jaeger.Trace, hadWork bool) string {
	if lacks := partial(traces); lacks != "" {
		return lacks
	}
	wanted := slices.Clone(steps)
	if hadWork {
		wanted = append(wanted, firstReconcile)
	}
	for _, step := range wanted {
		if !slices.ContainsFunc(traces[0].Spans, func(s jaeger.Span) bool { return s.Name == step }) {
			return fmt.Sprintf("no span %q", step)
		}
	}
	return ""
}

func reconcileLacks(traces []jaeger.Trace) string {
	if lacks := partial(traces); lacks != "" {
		return lacks
	}
	switch t := traces[0]; {
	case t.Reconcile() == nil:
		return "no reconcile"
	case !slices.ContainsFunc(t.Spans, func(s jaeger.Span) bool { return s.Name == "queue wait" }):
		return "no wait in the queue"
	}
	return ""
}
