package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// askTimeout bounds a question to the home cluster.
const askTimeout = 20 * time.Second

// questions are the subcommands that ask and change nothing. They return the exit code 0 if all is well and 1 if
// something is wrong with the fleet.
var questions = map[string]func(context.Context, *question) (wrong bool, err error){
	"status": askStatus,
	"why":    askWhy,
	"plan":   askPlan,
}

// question is the command line of one of them.
type question struct {
	flags  *flag.FlagSet
	args   []string // without the flags
	to     io.Writer
	colour bool

	homeKubeconfig, context, homeNamespace, output string
	skipClusters                                   bool
	namespace, cluster, kubeconfig                 string // why
	wish                                           console.Wish
}

// newQuestion declares the flags.
func newQuestion(name string, getenv func(string) string) *question {
	q := &question{flags: flag.NewFlagSet("tenure "+name, flag.ContinueOnError)}
	fs := q.flags
	fs.SetOutput(io.Discard)
	namespace := shard.DefaultNamespace
	if text := getenv(envName("namespace")); text != "" {
		namespace = text
	}
	fs.StringVar(&q.homeKubeconfig, "home-kubeconfig", getenv(envName("home-kubeconfig")), "kubeconfig `file` of the home cluster (default: $KUBECONFIG, ~/.kube/config, or in-cluster)")
	fs.StringVar(&q.context, "context", "", "`context` of that kubeconfig")
	fs.StringVar(&q.homeNamespace, "namespace", namespace, "`namespace` of the home cluster that holds Leases, Shards and kubeconfig Secrets")
	fs.StringVar(&q.output, "o", "text", "output `format`: text or json")
	switch name {
	case "status":
		fs.BoolVar(&q.skipClusters, "skip-clusters", false, "don't ask the workload clusters whether they can be used")
	case "why":
		fs.StringVar(&q.namespace, "n", "default", "`namespace` of the object")
		fs.StringVar(&q.cluster, "cluster", "", "`cluster` of the object; needed for an At if there are several (default for a Deployment: home)")
		fs.StringVar(&q.kubeconfig, "kubeconfig", "", "kubeconfig `file` of that cluster (default: its Secret in the home cluster)")
	case "plan":
		fs.IntVar(&q.wish.Replicas, "replicas", 0, "how many `replicas` there shall be (default: as many as there are)")
		fs.Func("drain", "`replica` that shall hold nothing; can be given several times", func(text string) error {
			q.wish.Drain = append(q.wish.Drain, text)
			return nil
		})
	}
	return q
}

// parse reads flags and arguments in any order.
func (q *question) parse(args []string) error {
	for {
		if err := q.flags.Parse(args); err != nil {
			return err
		}
		if args = q.flags.Args(); len(args) == 0 {
			break
		}
		q.args = append(q.args, args[0])
		args = args[1:]
	}
	switch {
	case q.output != "text" && q.output != "json":
		return fmt.Errorf("-o %s: must be text or json", q.output)
	case q.wish.Replicas < 0:
		return fmt.Errorf("--replicas %d: must not be negative", q.wish.Replicas)
	}
	return nil
}

// ask runs a question and returns the exit code.
func ask(ctx context.Context, name string, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	q := newQuestion(name, getenv)
	q.to, q.colour = stdout, isTerminal(stdout) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	err := q.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, questionUsage)
		q.flags.SetOutput(stdout)
		q.flags.PrintDefaults()
		return 0
	}
	wrong := false
	var usage *console.UsageError
	if err != nil {
		err = &console.UsageError{Text: err.Error()}
	} else {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		wrong, err = questions[name](ctx, q)
	}
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "tenure %s: %v (see tenure %s --help)\n", name, err, name)
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "tenure %s: %s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		return exitFailed
	case wrong:
		return exitFailed
	}
	return 0
}

const questionUsage = `usage: tenure status [flags]             the fleet on one screen
       tenure why KIND/NAME [flags]      who works on an At or a Deployment, and what it waits for
       tenure plan [flags]               what would move, if ...

Exit code: 0 all is well, 1 something is wrong, 2 the command line makes no sense.

`

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func askStatus(ctx context.Context, q *question) (bool, error) {
	s, err := q.snapshot(ctx, !q.skipClusters)
	if err != nil {
		return false, err
	}
	fleet := console.Assess(s)
	return !fleet.Healthy, q.show(fleet, func(s *console.Screen) error { return s.Status(fleet) })
}

func askWhy(ctx context.Context, q *question) (bool, error) {
	if len(q.args) != 1 {
		return false, &console.UsageError{Text: "name one object: at/NAME or deployment/NAME"}
	}
	object, err := console.ParseObject(q.args[0])
	if err != nil {
		return false, &console.UsageError{Text: err.Error()}
	}
	object.Namespace, object.Cluster = q.namespace, keyspace.ClusterName(q.cluster)
	g, err := q.gatherer(true)
	if err != nil {
		return false, err
	}
	var workload *rest.Config
	if q.kubeconfig != "" {
		if workload, err = clientcmd.BuildConfigFromFlags("", q.kubeconfig); err != nil {
			return false, &console.UsageError{Text: "--kubeconfig: " + err.Error()}
		}
	}
	asked, err := g.Why(ctx, object, workload)
	if err != nil {
		return false, err
	}
	why := console.Explain(asked)
	return !why.Healthy, q.show(why, func(s *console.Screen) error { return s.Why(why) })
}

func askPlan(ctx context.Context, q *question) (bool, error) {
	s, err := q.snapshot(ctx, false)
	if err != nil {
		return false, err
	}
	plan, err := console.Foresee(s, q.wish)
	if err != nil {
		return false, &console.UsageError{Text: err.Error()}
	}
	return len(plan.Unplaced) > 0, q.show(plan, func(s *console.Screen) error { return s.Plan(plan) })
}

func (q *question) snapshot(ctx context.Context, askClusters bool) (console.Snapshot, error) {
	if len(q.args) > 0 {
		return console.Snapshot{}, &console.UsageError{Text: fmt.Sprintf("unexpected argument %q", q.args[0])}
	}
	g, err := q.gatherer(askClusters)
	if err != nil {
		return console.Snapshot{}, err
	}
	return g.Fleet(ctx)
}

// gatherer connects to the home cluster as kubectl would.
func (q *question) gatherer(askClusters bool) (console.Gatherer, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = q.homeKubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: q.context}).ClientConfig()
	if err != nil {
		return console.Gatherer{}, &console.UsageError{Text: fmt.Sprintf("configuration of the home cluster (--home-kubeconfig, --context): %v", err)}
	}
	config.UserAgent = "tenure/" + version + " (console)"
	return console.Gatherer{Home: config, Namespace: q.homeNamespace, Ask: askClusters}, nil
}

// show writes an answer in the format that was asked for.
func (q *question) show(answer any, text func(*console.Screen) error) error {
	if q.output == "json" {
		enc := json.NewEncoder(q.to)
		enc.SetIndent("", "  ")
		return enc.Encode(answer)
	}
	return text(&console.Screen{To: q.to, Colour: q.colour})
}
