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
}

// subject is what traces are asked for: one by its ID, the slowest, or those of an object or a shard.
type subject struct {
	text    string // as it was given; an ID in lower case
	isID    bool
	slowest bool
	object  console.Object   // its kind is "" for others
	shard   keyspace.ShardID // its cluster is "" for others
}

func parseSubject(text string) (s subject, err error) {
	s.text = text
	if id, err := trace.TraceIDFromHex(strings.ToLower(text)); err == nil {
		s.text, s.isID = id.String(), true
		return s, nil
	}
	if text == slowest {
		s.slowest = true
		return s, nil
	}
	if s.object, err = console.ParseObject(text); err == nil {
		return s, nil
	}
	if s.shard, err = keyspace.ParseShardID(text); err == nil {
		return s, nil
	}
	return s, fmt.Errorf("%q: want the ID of a trace (32 hexadecimal digits), at/NAME, deployment/NAME, a shard such as "+
		"west/01, or slowest", text)
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
			about, err := parseSubject(args[0])
			if err != nil {
				return usage(err)
			}
			for _, name := range about.useless() {
				if cmd.Flags().Changed(name) {
					return usagef("--%s: has no effect on %s; leave it out", name, about.text)
				}
			}
			q, err := o.query(about)
			if err != nil {
				return usage(err)
			}
			return o.print(cmd.Context(), cmd.OutOrStdout(), about, q)
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
func (s subject) useless() []string {
	switch {
	case s.isID:
		return []string{"object-namespace", "cluster", "service", "since", "limit"}
	case s.slowest:
		return []string{"limit"}
	case s.shard.Cluster != "":
		return []string{"object-namespace", "cluster"}
	}
	return nil
}

// query returns the query for Jaeger, or an error if Jaeger can't be asked so.
func (o *traceOptions) query(about subject) (q jaeger.Query, err error) {
	if to, err := url.Parse(o.url); err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return q, fmt.Errorf("--jaeger %q: must be a URL such as http://127.0.0.1:16686", o.url)
	}
	if o.service == "" {
		return q, errors.New("--service: must not be empty")
	}
	q = jaeger.Query{Service: o.service, Since: time.Now().Add(-o.last), Limit: o.limit, Tags: map[string]string{}}
	switch {
	case about.slowest:
		q.Limit = slowestOf
	case about.object.Kind == "at":
		q.Operation = "reconcile At"
	case about.object.Kind != "":
		q.Operation = "reconcile Deployment"
	case about.shard.Cluster != "":
		q.Operation = "handoff " + about.shard.String()
	}
	for tag, value := range map[string]string{
		"k8s.object.name": about.object.Name, "k8s.namespace.name": o.namespace, "k8s.cluster.name": o.cluster,
	} {
		if value != "" {
			q.Tags[tag] = value
		}
	}
	return q, nil
}

func (o *traceOptions) print(ctx context.Context, out io.Writer, about subject, q jaeger.Query) error {
	asking, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	traces, err := about.find(asking, &jaeger.Client{URL: o.url}, q)
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

func (s subject) find(ctx context.Context, client *jaeger.Client, q jaeger.Query) ([]jaeger.Trace, error) {
	if s.isID {
		t, err := client.Trace(ctx, s.text)
		return []jaeger.Trace{t}, err
	}
	traces, err := client.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	if s.slowest {
		traces = jaeger.Slowest(traces)
	}
	if len(traces) == 0 {
		return nil, fmt.Errorf("%s: %w", s.text, jaeger.ErrNotFound)
	}
	return traces, nil
}
