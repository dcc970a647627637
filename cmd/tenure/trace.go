package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/pkg/telemetry/jaeger"
)

// traceTimeout bounds a question to Jaeger, which may have to send more than a thousand traces.
const traceTimeout = time.Minute

// traceOptions is the command line of tenure trace.
type traceOptions struct {
	url       string
	service   string
	namespace string
	cluster   string
	last      time.Duration
	limit     int
	links     bool
	what      string
}

func newTrace(getenv func(string) string) *cobra.Command {
	o := &traceOptions{}
	cmd := &cobra.Command{
		Use: "trace ID|at/NAME|SHARD|slowest", Short: "traces of an object, a shard or the slowest reconcile, from Jaeger",
		Long: "Prints traces from Jaeger as trees: one by its ID, the reconciles of an At, the handoffs of a shard such\n" +
			"as west/01, or the slowest reconcile.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &console.UsageError{Text: fmt.Sprintf("name one trace, at/NAME, shard, or slowest, not %q", args)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.limit < 1:
				return &console.UsageError{Text: fmt.Sprintf("--limit %d: must be at least 1", o.limit)}
			case o.last <= 0:
				return &console.UsageError{Text: fmt.Sprintf("--since %v: must be above 0, such as 1h for the last hour", o.last)}
			}
			o.what = args[0]
			return o.print(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.url, "jaeger", "http://127.0.0.1:16686", "`URL` of Jaeger's query service")
	fs.StringVar(&o.service, "service", telemetry.DefaultService, "service `name` of the replicas")
	fs.StringVarP(&o.namespace, "object-namespace", "n", "", "`namespace` of the At (default: any)")
	fs.StringVar(&o.cluster, "cluster", "", "`cluster` of the At (default: any)")
	fs.DurationVar(&o.last, "since", time.Hour, "how far to look back")
	fs.IntVar(&o.limit, "limit", 20, "print at most so many traces, the newest")
	fs.BoolVar(&o.links, "links", false, "show which traces each span is linked to")
	fromEnvironment(fs.Lookup("jaeger"), "TENURE_JAEGER_URL", getenv)
	return cmd
}

func (o *traceOptions) print(ctx context.Context, out io.Writer) error {
	asking, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	traces, err := o.find(asking, &jaeger.Client{URL: o.url})
	if err != nil {
		return err
	}
	for i, t := range traces {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := jaeger.WriteTree(out, t, o.links); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

func (o *traceOptions) find(ctx context.Context, client *jaeger.Client) ([]jaeger.Trace, error) {
	q := jaeger.Query{Service: o.service, Since: time.Now().Add(-o.last), Limit: o.limit, Tags: map[string]string{}}
	switch {
	case isTraceID(o.what):
		t, err := client.Trace(ctx, o.what)
		return []jaeger.Trace{t}, err
	case o.what == "slowest":
		q.Limit = 1500 // Jaeger can't sort by duration: look at many
	case len(o.what) > 3 && o.what[:3] == "at/":
		q.Operation = "reconcile At"
		q.Tags["k8s.object.name"] = o.what[3:]
		if o.namespace != "" {
			q.Tags["k8s.namespace.name"] = o.namespace
		}
		if o.cluster != "" {
			q.Tags["k8s.cluster.name"] = o.cluster
		}
	default:
		q.Operation = "handoff " + o.what
	}
	traces, err := client.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	if o.what == "slowest" {
		traces = jaeger.Slowest(traces)
	}
	if len(traces) == 0 {
		return nil, fmt.Errorf("%s: %w", o.what, jaeger.ErrNotFound)
	}
	return traces, nil
}

func isTraceID(text string) bool {
	if len(text) != 32 {
		return false
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
