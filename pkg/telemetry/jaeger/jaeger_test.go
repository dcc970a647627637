package jaeger

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

const answerOfOne = `{"data":[{"traceID":"t1","spans":[
 {"traceID":"t1","spanID":"c","operationName":"create pods","startTime":1000005000,"duration":3000,"processID":"p1",
  "references":[{"refType":"CHILD_OF","traceID":"t1","spanID":"a"}],"tags":[{"key":"http.response.status_code","value":409},{"key":"error","value":true}]},
 {"traceID":"t1","spanID":"a","operationName":"reconcile At","startTime":1000000000,"duration":12000000,"processID":"p1",
  "references":[{"refType":"FOLLOWS_FROM","traceID":"t0","spanID":"x"}],"tags":[{"key":"tenure.shard","value":"west/01"},{"key":"tenure.epoch","value":1795433112490},{"key":"k8s.object.name","value":"one"}]},
 {"traceID":"t1","spanID":"d","operationName":"etcd","startTime":1000006000,"duration":1000,"processID":"p2",
  "references":[{"refType":"CHILD_OF","traceID":"t1","spanID":"c"}]},
 {"traceID":"t1","spanID":"b","operationName":"queue wait","startTime":1000000000,"duration":4000,"processID":"p1",
  "references":[{"refType":"CHILD_OF","traceID":"t1","spanID":"a"}]},
 {"traceID":"t1","spanID":"e","operationName":"lost","startTime":1000007000,"duration":1,"processID":"p1",
  "references":[{"refType":"CHILD_OF","traceID":"t1","spanID":"nowhere"}]}],
 "processes":{"p1":{"serviceName":"tenure","tags":[{"key":"service.instance.id","value":"r1"}]},"p2":{"serviceName":"apiserver"}}}]}`

func serve(t *testing.T, answers map[string]string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok {
			http.Error(w, `{"data":null,"errors":[{"code":404,"msg":"trace not found"}]}`, http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(text)) // the client notices
	}))
	t.Cleanup(server.Close)
	return &Client{URL: server.URL + "/"}
}

func treeOf(t *testing.T, trace Trace, links bool) string {
	t.Helper()
	var out strings.Builder
	must.Succeed(t, WriteTree(&out, trace, links))
	return out.String()
}

func TestATraceIsPrintedAsATree(t *testing.T) {
	c := serve(t, map[string]string{"/api/traces/t1": answerOfOne})
	trace, err := c.Trace(t.Context(), "t1")
	must.Succeed(t, err)
	want := `trace t1, 00:16:40.000, 5 spans
reconcile At                                  +0.00 ms     12.0 s  west/01 epoch=1795433112490 name=one
→ linked to trace t0
├─ queue wait                                 +0.00 ms    4.00 ms  
└─ create pods                                +5.00 ms    3.00 ms  409 FAILED
   └─ apiserver: etcd                         +6.00 ms    1.00 ms  
lost                                          +7.00 ms    0.00 ms  
`
	expect.Equal(t, "the tree", want, treeOf(t, trace, true))
	if orphans := trace.Orphans(); len(orphans) != 1 || orphans[0].Name != "lost" {
		t.Errorf("orphans: %v", orphans)
	}
	if trace.Spans[0].Tags["process.service.instance.id"] != "r1" {
		t.Errorf("tags: %v", trace.Spans[0].Tags)
	}
}

func TestATraceCannotSteerTheTerminal(t *testing.T) {
	const nasty = "\x1b[2J\u009b31m\nfake line\u202e\xff"
	trace := Trace{ID: nasty, Spans: []Span{
		{ID: "a", Name: nasty, Service: nasty, Tags: map[string]string{"k8s.object.name": nasty +
			strings.Repeat("x", 10_000)}},
		{ID: "b", Parent: "a", Name: nasty, Service: "other" + nasty, Links: []string{nasty}},
	}}
	lines := strings.Split(strings.TrimSuffix(treeOf(t, trace, true), "\n"), "\n")
	if len(lines) != 4 {
		t.Errorf("%d lines, want 4", len(lines))
	}
	for _, line := range lines {
		if text.Line(line, 2*text.Note) != line || !strings.Contains(line, "[2J") {
			t.Errorf("%.200q", line)
		}
	}
}

func TestSpansThatNameEachOtherAsParentsArePrintedAndEnd(t *testing.T) {
	trace := Trace{ID: "t", Spans: []Span{{ID: "a", Parent: "b", Name: "one"}, {ID: "b", Parent: "a", Name: "two"},
		{ID: "b", Parent: "b", Name: "three"}}}
	tree := treeOf(t, trace, false)
	for _, name := range []string{"one", "two", "three"} {
		if strings.Count(tree, name) != 1 {
			t.Errorf("%s isn't there once:\n%s", name, tree)
		}
	}
}

func TestWhatIsMissingOrBrokenIsSaid(t *testing.T) {
	c := serve(t, map[string]string{"/api/traces/broken": "<html>", "/api/traces": `{"data":[]}`})
	if _, err := c.Trace(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a trace that isn't there: %v", err)
	}
	if _, err := c.Trace(t.Context(), "broken"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("a broken answer: %v", err)
	}
	if found, err := c.Find(t.Context(), Query{Service: "tenure", Limit: 1, Since: time.Now(),
		AtLeast: time.Second}); err != nil || len(found) != 0 {
		t.Errorf("nothing to find: %v %v", found, err)
	}
	ask := func(answer string) error {
		_, err := serve(t, map[string]string{"/api/traces/t1": answer}).Trace(t.Context(), "t1")
		return err
	}
	grafana := httptest.NewServer(http.NotFoundHandler())
	defer grafana.Close()
	for name, ask := range map[string]func(c *Client) error{
		"one":    func(c *Client) error { _, err := c.Trace(t.Context(), "t1"); return err },
		"search": func(c *Client) error { _, err := c.Find(t.Context(), Query{}); return err },
	} {
		if err := ask(&Client{URL: grafana.URL}); err == nil || errors.Is(err, ErrNotFound) ||
			!strings.Contains(err.Error(), "--jaeger") {
			t.Errorf("%s, at what is no Jaeger: %v", name, err)
		}
	}
	if err := ask(`{"data":null,"errors":[{"code":404,"msg":"trace not found"}]}`); !errors.Is(err, ErrNotFound) {
		t.Errorf("a trace that isn't there, in an answer that is OK: %v", err)
	}
	if err := ask(`{"data":null,"errors":[{"code":500,"msg":"storage\u001b[2J down"}]}`); errors.Is(err, ErrNotFound) ||
		err == nil || !strings.Contains(err.Error(), "storage\ufffd[2J down") {
		t.Errorf("an error in an answer that is OK: %v", err)
	}
	for _, page := range []string{"", "\n<!doctype html>"} {
		if err := ask(page); err == nil || !strings.Contains(err.Error(), "--jaeger") {
			t.Errorf("%q: %v", page, err)
		}
	}
	if err := ask(`{"data":[`); err == nil || strings.Contains(err.Error(), "--jaeger") {
		t.Errorf("an answer that is cut: %v", err)
	}
	gone := &Client{URL: "http://127.0.0.1:9"}
	if _, err := gone.Find(t.Context(), Query{}); err == nil || !strings.Contains(err.Error(), "TENURE_JAEGER_URL") {
		t.Errorf("no Jaeger: %v", err)
	}
}

func TestTheSlowestReconcileIsWithoutItsWait(t *testing.T) {
	reconcile := func(id string, took, waited time.Duration) Trace {
		return Trace{ID: id, Spans: []Span{
			{ID: "root", Duration: took, Tags: map[string]string{"tenure.result": "done"}},
			{ID: "wait", Parent: "root", Name: "queue wait", Duration: waited},
		}}
	}
	handoff := Trace{ID: "handoff", Spans: []Span{{ID: "root", Duration: time.Hour}}}
	got := Slowest([]Trace{reconcile("waits", 9*time.Second, 8*time.Second), handoff,
		reconcile("works", 3*time.Second, time.Second)})
	if len(got) != 1 || got[0].ID != "works" || got[0].Work() != 2*time.Second {
		t.Errorf("slowest: %+v, want the one that worked for 2 s", got)
	}
	if got := Slowest([]Trace{handoff}); got != nil {
		t.Errorf("slowest of no reconcile: %+v", got)
	}
}

func TestNoErrorRepeatsAPassword(t *testing.T) {
	gone := &Client{URL: "http://me:canary@127.0.0.1:9"}
	if _, err := gone.Find(t.Context(), Query{}); err == nil || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}

func TestALongChainOfSpansIsShownToItsEnd(t *testing.T) {
	trace := Trace{ID: "t"}
	for i := range 1000 {
		s := Span{ID: fmt.Sprint(i), Name: fmt.Sprint("span-", i)}
		if i > 0 {
			s.Parent = fmt.Sprint(i - 1)
		}
		trace.Spans = append(trace.Spans, s)
	}
	if tree := treeOf(t, trace, false); !strings.Contains(tree, "span-999") {
		t.Errorf("%d bytes", len(tree))
	}
}
