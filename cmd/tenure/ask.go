package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// askTimeout bounds a question to the home cluster.
const askTimeout = 30 * time.Second

// mostReplicas bounds the replicas of a plan: each is made up, planned for and shown.
const mostReplicas = 1000

// homeFlags say where the home cluster is, and which fleet there is meant.
type homeFlags struct {
	homeKubeconfig, context, homeNamespace, fleet string
	contextFlag                                   string // the name of the flag of context
}

// question is what the commands that only ask have in common. They end with errUnhealthy if something is wrong with
// the fleet.
type question struct {
	homeFlags
	output string
	screen *console.Screen
}

// newQuestion completes a command with the flags of all questions. contextFlag is the name of the flag for the context
// of home.
func newQuestion(cmd *cobra.Command, contextFlag string, lookup func(string) (string, bool),
	ask func(context.Context, *question, []string) error) *cobra.Command {
	q := &question{}
	q.declare(cmd, contextFlag, lookup)
	cmd.Flags().StringVarP(&q.output, "output", "o", "text", "output `format`: text or json")
	complete(cmd, "output", "text", "json")
	cmd.Long = cmd.Short + ".\n\nExit code: 0 all is well, 1 something is wrong, 2 the command line makes no sense."
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q.output != "text" && q.output != "json" {
			return usagef("--output %q: must be text or json", q.output)
		}
		q.screen = screen(cmd, lookup)
		ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
		defer cancel()
		return ask(ctx, q, args)
	}
	return cmd
}

// declare adds the flags that say where the home cluster is. contextFlag is the name of the flag for its context.
func (q *homeFlags) declare(cmd *cobra.Command, contextFlag string, lookup func(string) (string, bool)) {
	q.declareHome(cmd, contextFlag, lookup)
	cmd.Flags().StringVar(&q.fleet, "fleet", "", "`name` of the fleet, if it isn't the default one")
	fromEnvironment(cmd.Flags().Lookup("fleet"), envName("fleet"), lookup)
}

// declareHome adds those flags without the name of the fleet.
func (q *homeFlags) declareHome(cmd *cobra.Command, contextFlag string, lookup func(string) (string, bool)) {
	q.contextFlag = contextFlag
	fs := cmd.Flags()
	fs.StringVar(&q.homeKubeconfig, "home-kubeconfig", "",
		"kubeconfig `file` of the home cluster (default: $KUBECONFIG, ~/.kube/config, or in-cluster)")
	fs.StringVar(&q.context, contextFlag, "", "`context` of --home-kubeconfig")
	fs.StringVar(&q.homeNamespace, "namespace", shard.DefaultNamespace,
		"`namespace` of the home cluster that holds Leases, Shards and kubeconfig Secrets")
	// These commands are often run in a replica's container, which may have these variables.
	for _, name := range []string{"home-kubeconfig", "namespace"} {
		fromEnvironment(fs.Lookup(name), envName(name), lookup)
	}
	refuseEmpty(cmd, "home-kubeconfig", contextFlag)
}

func newStatus(lookup func(string) (string, bool)) *cobra.Command {
	skip := false
	cmd := &cobra.Command{Use: "status", Short: "the fleet on one screen, and what is wrong", Args: noArguments("")}
	cmd.Flags().BoolVar(&skip, "skip-clusters", false, "don't ask the workload clusters whether they can be used")
	return newQuestion(cmd, "context", lookup, func(ctx context.Context, q *question, _ []string) error {
		s, err := q.snapshot(ctx, !skip)
		if err != nil {
			return err
		}
		fleet := console.Assess(s)
		return q.show(fleet, fleet.Healthy, func(s *console.Screen) error { return s.Status(fleet) })
	})
}

func newWhy(lookup func(string) (string, bool)) *cobra.Command {
	var namespace, cluster, kubeconfig string
	cmd := &cobra.Command{
		Use: "why KIND/NAME", Short: "who works on an At or a Deployment, and what it waits for",
		Args: func(_ *cobra.Command, args []string) error {
			return oneArgument("one object, at/NAME or deployment/NAME", args)
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"at/", "deployment/"},
			cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace),
	}
	fs := cmd.Flags()
	fs.StringVarP(&namespace, "object-namespace", "n", "default", "`namespace` of the object")
	fs.StringVar(&cluster, "cluster", "",
		"`cluster` of the object; needed for an At if there are several (default for a Deployment: home)")
	fs.StringVar(&kubeconfig, "kubeconfig", "",
		"kubeconfig `file` of that cluster (default: its Secret in the home cluster)")
	refuseEmpty(cmd, "cluster", "kubeconfig")
	return newQuestion(cmd, "context", lookup, func(ctx context.Context, q *question, args []string) error {
		object, err := console.ParseObject(args[0])
		if err != nil {
			return usage(err)
		}
		if problem := nameProblem(namespace); problem != "" {
			return usagef("--object-namespace %q: %s", namespace, problem)
		}
		object.Namespace, object.Cluster = namespace, keyspace.ClusterName(cluster)
		g, err := q.gatherer(true)
		if err != nil {
			return err
		}
		var workload *rest.Config
		if kubeconfig != "" {
			if workload, err = connection(kubeconfig, "", ""); err != nil {
				return usagef("--kubeconfig %s: %v", kubeconfig, err)
			}
		}
		asked, err := g.Why(ctx, object, workload)
		if err != nil {
			return err
		}
		why := console.Explain(asked)
		return q.show(why, why.Healthy, func(s *console.Screen) error { return s.Why(why) })
	})
}

func newPlan(lookup func(string) (string, bool)) *cobra.Command {
	var wish console.Wish
	cmd := &cobra.Command{
		Use: "plan", Short: "what would move, if there were more or fewer replicas", Args: noArguments(""),
	}
	cmd.Flags().IntVar(&wish.Replicas, "replicas", 0, "how many `replicas` there shall be (default: as many as there are)")
	cmd.Flags().StringArrayVar(&wish.Drain, "drain", nil, "`replica` that shall hold nothing; can be given several times")
	return newQuestion(cmd, "context", lookup, func(ctx context.Context, q *question, _ []string) error {
		switch {
		case wish.Replicas == 0 && cmd.Flags().Changed("replicas"):
			return usagef("--replicas 0: must be at least 1: without replicas nothing is served, and nothing moves")
		case wish.Replicas < 0:
			return usagef("--replicas %d: must not be negative", wish.Replicas)
		case wish.Replicas > mostReplicas:
			return usagef("--replicas %d: must be at most %d", wish.Replicas, mostReplicas)
		case slices.Contains(wish.Drain, ""):
			return usagef(`--drain "": must not be empty`)
		}
		s, err := q.snapshot(ctx, false)
		if err != nil {
			return err
		}
		plan, err := console.Foresee(s, wish)
		if err != nil {
			return err
		}
		return q.show(plan, len(plan.Unplaced) == 0, func(s *console.Screen) error { return s.Plan(plan) })
	})
}

func (q *question) snapshot(ctx context.Context, askClusters bool) (console.Snapshot, error) {
	g, err := q.gatherer(askClusters)
	if err != nil {
		return console.Snapshot{}, err
	}
	return g.Snapshot(ctx)
}

// validate refuses names that can't exist. An empty namespace would mean all namespaces.
func (q *homeFlags) validate() error {
	if problem := nameProblem(q.homeNamespace); problem != "" {
		return usagef("--namespace %q: %s", q.homeNamespace, problem)
	}
	if problem := nameProblem(q.fleet); q.fleet != "" && problem != "" {
		return usagef("--fleet %q: %s", q.fleet, problem)
	}
	return nil
}

// home returns the connection to the home cluster that kubectl would make.
func (q *homeFlags) home() (*rest.Config, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	config, err := connection(q.homeKubeconfig, q.context, q.contextFlag)
	if err != nil {
		return nil, usagef("configuration of the home cluster (--home-kubeconfig, --%s): %v", q.contextFlag, err)
	}
	return config, nil
}

// gatherer bounds each of its requests, since the discovery of kinds heeds no context.
func (q *question) gatherer(askClusters bool) (console.Gatherer, error) {
	home, err := q.home()
	if err != nil {
		return console.Gatherer{}, err
	}
	home.Timeout = askTimeout
	return console.Gatherer{Home: home, Namespace: q.homeNamespace, Fleet: keyspace.Fleet(q.fleet), Ask: askClusters}, nil
}
