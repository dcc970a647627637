package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/pkg/telemetry/jaeger"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// traceTimeout bounds a question to Jaeger, which may have to send more than a thousand traces.
const traceTimeout = time.Minute

// slowest is the argument that asks for the slowest reconcile. Jaeger can't sort by duration, so the newest slowestOf
// traces are looked at.
const (
	slowest   = "slowest"
	slowestOf = 1500
)

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

func newTrace(lookup func(string) (string, bool)) *cobra.Command {
	o := &traceOptions{}
	cmd := &cobra.Command{
		Use:   "trace ID|at/NAME|deployment/NAME|SHARD|slowest",
		Short: "traces of an object, a shard or the slowest reconcile, from Jaeger",
		Long: fmt.Sprintf("Prints traces from Jaeger as trees: one by its ID, the reconciles of an At or a Deployment, the "+
			"handoffs\nof a shard such as west/01, or the slowest reconcile of the newest %d traces since --since.", slowestOf),
		Args: func(_ *cobra.Command, args []string) error {
			return oneArgument("one trace, at/NAME, deployment/NAME, shard, or slowest", args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.limit < 1:
				return usagef("--limit %d: must be at least 1", o.limit)
			case o.last <= 0:
				return usagef("--since %v: must be above 0, such as 1h for the last hour", o.last)
			}
			o.what = args[0]
			if id, err := trace.TraceIDFromHex(strings.ToLower(o.what)); err == nil {
				o.what = id.String()
			}
			for _, name := range o.useless() {
				if cmd.Flags().Changed(name) {
					return usagef("--%s: has no effect on %s; leave it out", name, o.what)
				}
			}
			q, err := o.query()
			if err != nil {
				return usage(err)
			}
			return o.print(cmd.Context(), cmd.OutOrStdout(), q)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.url, "jaeger", "http://127.0.0.1:16686", "`URL` of Jaeger's query service")
	fs.StringVar(&o.service, "service", telemetry.DefaultService, "service `name` of the replicas")
	fs.StringVarP(&o.namespace, "object-namespace", "n", "", "`namespace` of the object (default: any)")
	fs.StringVar(&o.cluster, "cluster", "", "`cluster` of the object (default: any)")
	fs.DurationVar(&o.last, "since", time.Hour, "how far to look back")
	fs.IntVar(&o.limit, "limit", 20, "print at most so many traces, the newest")
	fs.BoolVar(&o.links, "links", false, "show which traces each span is linked to")
	refuseEmpty(cmd, "object-namespace", "cluster")
	fromEnvironment(fs.Lookup("jaeger"), "TENURE_JAEGER_URL", lookup)
	return cmd
}

// useless names the flags that change nothing of the answer.
func (o *traceOptions) useless() []string {
	if _, err := trace.TraceIDFromHex(o.what); err == nil {
		return []string{"object-namespace", "cluster", "service", "since", "limit"}
	}
	if o.what == slowest {
		return []string{"limit"}
	}
	if _, err := keyspace.ParseShardID(o.what); err == nil {
		if _, err := console.ParseObject(o.what); err != nil {
			return []string{"object-namespace", "cluster"}
		}
	}
	return nil
}

// query returns the query for Jaeger, or an error if the arguments name nothing that could have a trace.
func (o *traceOptions) query() (q jaeger.Query, err error) {
	if to, err := url.Parse(o.url); err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return q, fmt.Errorf("--jaeger %q: must be a URL such as http://127.0.0.1:16686", o.url)
	}
	if o.service == "" {
		return q, errors.New("--service: must not be empty")
	}
	q = jaeger.Query{Service: o.service, Since: time.Now().Add(-o.last), Limit: o.limit, Tags: map[string]string{}}
	_, notTrace := trace.TraceIDFromHex(o.what)
	object, notObject := console.ParseObject(o.what)
	shard, notShard := keyspace.ParseShardID(o.what)
	switch {
	case notTrace == nil:
	case o.what == slowest:
		q.Limit = slowestOf
	case notObject == nil && object.Kind == "at":
		q.Operation = "reconcile At"
	case notObject == nil:
		q.Operation = "reconcile Deployment"
	case notShard == nil:
		q.Operation = "handoff " + shard.String()
	default:
		return q, fmt.Errorf("%q: want the ID of a trace (32 hexadecimal digits), at/NAME, deployment/NAME, a shard such as "+
			"west/01, or slowest", o.what)
	}
	for tag, value := range map[string]string{
		"k8s.object.name": object.Name, "k8s.namespace.name": o.namespace, "k8s.cluster.name": o.cluster,
	} {
		if value != "" {
			q.Tags[tag] = value
		}
	}
	return q, nil
}

func (o *traceOptions) print(ctx context.Context, out io.Writer, q jaeger.Query) error {
	asking, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	traces, err := o.find(asking, &jaeger.Client{URL: o.url}, q)
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

func (o *traceOptions) find(ctx context.Context, client *jaeger.Client, q jaeger.Query) ([]jaeger.Trace, error) {
	if _, err := trace.TraceIDFromHex(o.what); err == nil {
		t, err := client.Trace(ctx, o.what)
		return []jaeger.Trace{t}, err
	}
	traces, err := client.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	if o.what == slowest {
		traces = jaeger.Slowest(traces)
	}
	if len(traces) == 0 {
		return nil, fmt.Errorf("%s: %w", o.what, jaeger.ErrNotFound)
	}
	return traces, nil
}
