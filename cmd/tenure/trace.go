package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/pkg/telemetry/jaeger"
)

const traceUsage = `tenure trace prints traces from Jaeger as trees.

usage: tenure trace [flags] ID          one trace
       tenure trace [flags] at/NAME     the reconciles of an At
       tenure trace [flags] SHARD       the handoffs of a shard, such as west/01
       tenure trace [flags] slowest     the slowest reconcile

`

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

func newTraceFlags(getenv func(string) string) (*flag.FlagSet, *traceOptions) {
	o := &traceOptions{}
	fs := flag.NewFlagSet("tenure trace", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	address := getenv("TENURE_JAEGER_URL")
	if address == "" {
		address = "http://127.0.0.1:16686"
	}
	fs.StringVar(&o.url, "jaeger", address, "`URL` of Jaeger's query service [$TENURE_JAEGER_URL]")
	fs.StringVar(&o.service, "service", telemetry.DefaultService, "service `name` of the replicas")
	fs.StringVar(&o.namespace, "n", "", "`namespace` of the At (default: any)")
	fs.StringVar(&o.cluster, "cluster", "", "`cluster` of the At (default: any)")
	fs.DurationVar(&o.last, "since", time.Hour, "how far to look back")
	fs.IntVar(&o.limit, "limit", 20, "print at most so many traces, the newest")
	fs.BoolVar(&o.links, "links", false, "show which traces each span is linked to")
	return fs, o
}

// runTrace is the subcommand; it returns the exit code.
func runTrace(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	fs, o := newTraceFlags(getenv)
	var err error
	for len(args) > 0 && err == nil { // flags may come before and after the name
		if err = fs.Parse(args); err == nil && fs.NArg() > 0 {
			if o.what != "" {
				err = fmt.Errorf("unexpected argument %q: name one thing", fs.Arg(0))
			}
			o.what = fs.Arg(0)
		}
		args = fs.Args()[min(1, fs.NArg()):]
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, traceUsage)
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return 0
	case err == nil && o.what == "":
		err = errors.New("name a trace, an At, a shard, or slowest")
	}
	if err != nil {
		fmt.Fprintf(stderr, "tenure trace: %v (see tenure trace -h)\n", err)
		return exitUsage
	}
	if err := o.print(ctx, stdout); err != nil {
		fmt.Fprintf(stderr, "tenure trace: %v\n", err)
		return exitFailed
	}
	return 0
}

func (o *traceOptions) print(ctx context.Context, out io.Writer) error {
	traces, err := o.find(ctx, &jaeger.Client{URL: o.url})
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
