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
	// tracesWithin bounds the wait for a trace.
	tracesWithin = 10 * time.Second
	// spansWithin is a little more than the second after which a replica sends its spans.
	spansWithin = 1100 * time.Millisecond
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
	missing     string // why there is no trace, if that is known
}

// check fails if no trace was found. test/integration checks what each trace must consist of.
func (t traceFacts) check() check {
	c := check{"trace: " + t.what, fmt.Sprintf("%s, %s", t.about, benchreport.Count(t.spans, "span")), t.traces > 0}
	if t.traces > 1 {
		c.found = fmt.Sprintf("%s, %s, %s", t.about, benchreport.Count(t.traces, "reconcile"),
			benchreport.Count(t.spans, "span"))
	}
	if !c.ok {
		c.found = fmt.Sprintf("%s: %s", t.about, cmp.Or(t.missing, "no trace"))
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

// findTraces looks in Jaeger for the three things worth seeing.
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

// until asks until there is a trace to which no replica adds spans any more, or time is up.
func (find finder) until(ctx context.Context, client *jaeger.Client) (traceFacts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tracesWithin, errTimeUp)
	defer cancel()
	var last traceFacts
	for wait := pollEvery; ; {
		facts, err := find(ctx, client)
		switch {
		case err == nil:
		case !errors.Is(context.Cause(ctx), errTimeUp):
			return facts, err
		case last.traces > 0:
			return last, nil
		default:
			facts.missing = err.Error()
		}
		if facts.traces > 0 {
			wait = spansWithin
		}
		grown := facts.traces == 0 || facts.spans != last.spans
		if last = facts; !grown || lab.Sleep(ctx, wait) != nil {
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
	return facts, err
}

// traceHandoff finds the planned move that [worthSeeing] picks.
func (st *story) traceHandoff(ctx context.Context, client *jaeger.Client) (traceFacts, error) {
	facts := traceFacts{what: "a handoff", about: "a planned move"}
	moved := worthSeeing(st.board.snapshot().handoffs, st.loaded)
	if moved == nil {
		facts.missing = "there was none"
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
	if len(traces) == 1 {
		facts.single(traces)
	}
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

// single makes the first of the traces the one to see.
func (t *traceFacts) single(traces []jaeger.Trace) {
	if len(traces) > 0 {
		t.count(traces[:1])
		t.path, t.arguments = "/api/traces/"+traces[0].ID, []string{traces[0].ID}
	}
}
