package jaeger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/pkg/text"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 256 << 20

// ErrNotFound says that Jaeger doesn't have the trace (any more).
var ErrNotFound = errors.New("no such trace in Jaeger: it was not sampled, not sent yet, or is forgotten")

var errNoJaeger = errors.New("this is no Jaeger, or its API is below another path: --jaeger or TENURE_JAEGER_URL " +
	"says where it is")

// Client reads from one Jaeger.
type Client struct {
	URL string // such as http://127.0.0.1:16686
}

// Query selects traces that have a span with all of this.
type Query struct {
	Service   string
	Operation string
	Tags      map[string]string
	AtLeast   time.Duration
	Since     time.Time
	Limit     int
}

// Trace is a trace as far as Jaeger has it. Its spans are sorted by start.
type Trace struct {
	ID    string
	Spans []Span
}

// Span is one span.
type Span struct {
	TraceID, ID string
	Parent      string   // "" for a root
	Links       []string // traces that it leads to
	Name        string
	Service     string
	Start       time.Time
	Duration    time.Duration
	Tags        map[string]string // of the span, and of the process below "process."
}

// Failed reports whether the span ended with an error.
func (s *Span) Failed() bool { return s.Tags["error"] == "true" }

// Trace returns one trace.
func (c *Client) Trace(ctx context.Context, id string) (Trace, error) {
	traces, err := c.get(ctx, "/api/traces/"+url.PathEscape(id))
	if err != nil {
		return Trace{}, fmt.Errorf("reading trace %s: %w", id, err)
	}
	if len(traces) == 0 {
		return Trace{}, fmt.Errorf("reading trace %s: %w", id, ErrNotFound)
	}
	return traces[0], nil
}

// Find returns the traces that match, the oldest first.
func (c *Client) Find(ctx context.Context, q Query) ([]Trace, error) {
	values := url.Values{"service": {q.Service}, "limit": {strconv.Itoa(q.Limit)}}
	if q.Operation != "" {
		values.Set("operation", q.Operation)
	}
	if len(q.Tags) > 0 {
		tags, err := json.Marshal(q.Tags)
		if err != nil {
			return nil, fmt.Errorf("writing the query: %w", err)
		}
		values.Set("tags", string(tags))
	}
	if q.AtLeast > 0 {
		values.Set("minDuration", q.AtLeast.String())
	}
	if !q.Since.IsZero() {
		values.Set("start", strconv.FormatInt(q.Since.UnixMicro(), 10))
		values.Set("end", strconv.FormatInt(time.Now().Add(time.Minute).UnixMicro(), 10))
	}
	traces, err := c.get(ctx, "/api/traces?"+values.Encode())
	if err != nil {
		return nil, fmt.Errorf("looking for traces: %w", err)
	}
	slices.SortFunc(traces, func(a, b Trace) int { return a.start().Compare(b.start()) })
	return traces, nil
}

func (t *Trace) start() time.Time {
	if len(t.Spans) == 0 {
		return time.Time{}
	}
	return t.Spans[0].Start
}

func (c *Client) get(ctx context.Context, path string) ([]Trace, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking Jaeger at %s://%s (--jaeger or TENURE_JAEGER_URL says where it is): %w",
			req.URL.Scheme, req.URL.Host, err) // the rest of the URL may hold a password
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound:
		var a answer
		if json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&a) == nil && len(a.Errors) > 0 {
			return nil, nil // Jaeger has no such trace
		}
		return nil, fmt.Errorf("GET %s: %s: %w", req.URL.Path, res.Status, errNoJaeger)
	case res.StatusCode != http.StatusOK:
		said, _ := io.ReadAll(io.LimitReader(res.Body, 300)) // whatever it says is better than nothing
		return nil, fmt.Errorf("GET %s: %s: %s", req.URL.Path, res.Status, strings.TrimSpace(string(said)))
	}
	var a answer
	decoder := json.NewDecoder(io.LimitReader(res.Body, maxAnswer))
	decoder.UseNumber() // an epoch is a large number, and must be read as it was written
	err = decoder.Decode(&a)
	var noJSON *json.SyntaxError // not from an answer that is cut
	switch {
	case errors.As(err, &noJSON), errors.Is(err, io.EOF):
		return nil, fmt.Errorf("GET %s: %w", req.URL.Path, errNoJaeger)
	case err != nil:
		return nil, fmt.Errorf("reading Jaeger's answer: %w", err)
	}
	for _, e := range a.Errors {
		if len(a.Data) == 0 && e.Code != http.StatusNotFound {
			return nil, fmt.Errorf("error %d of Jaeger: %s", e.Code, text.Line(e.Msg, text.Note))
		}
	}
	traces := make([]Trace, 0, len(a.Data))
	for i := range a.Data {
		traces = append(traces, a.Data[i].trace())
	}
	return traces, nil
}

// answer is what Jaeger sends.
type answer struct {
	Data   []wireTrace
	Errors []struct {
		Code int
		Msg  string
	}
}

type wireTrace struct {
	TraceID   string
	Spans     []wireSpan
	Processes map[string]struct {
		ServiceName string
		Tags        []wireTag
	}
}

type wireSpan struct {
	TraceID, SpanID, OperationName, ProcessID string
	StartTime, Duration                       int64 // µs
	References                                []struct{ RefType, TraceID, SpanID string }
	Tags                                      []wireTag
}

type wireTag struct {
	Key   string
	Value any
}

func (w *wireTrace) trace() Trace {
	t := Trace{ID: w.TraceID}
	for i := range w.Spans {
		ws := &w.Spans[i]
		s := Span{
			TraceID: ws.TraceID, ID: ws.SpanID, Name: ws.OperationName, Start: time.UnixMicro(ws.StartTime),
			Duration: time.Duration(ws.Duration) * time.Microsecond, Tags: map[string]string{},
		}
		for _, r := range ws.References {
			if r.RefType == "CHILD_OF" && r.TraceID == ws.TraceID && s.Parent == "" {
				s.Parent = r.SpanID
			} else {
				s.Links = append(s.Links, r.TraceID)
			}
		}
		for _, tag := range ws.Tags {
			s.Tags[tag.Key] = fmt.Sprint(tag.Value)
		}
		process := w.Processes[ws.ProcessID]
		s.Service = process.ServiceName
		for _, tag := range process.Tags {
			s.Tags["process."+tag.Key] = fmt.Sprint(tag.Value)
		}
		t.Spans = append(t.Spans, s)
	}
	slices.SortStableFunc(t.Spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return t
}
