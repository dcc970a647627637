package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/text"
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

// columns returns how wide a terminal is, and 0 for what isn't one. One that doesn't say its width counts as narrow.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	wide, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 1
	}
	return max(wide, 1)
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

// connection returns the connection that kubectl would make. But a file that is given, also by $KUBECONFIG, and leads
// nowhere is an error: kubectl would take the cluster that it runs in. contextFlag is the flag that names a context; ""
// if there is none.
func connection(kubeconfig, context, contextFlag string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if err := readable(rules); err != nil {
		return nil, err
	}
	all, err := rules.Load()
	if err != nil {
		return nil, err
	}
	named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	file, wayOut := clientcmd.RecommendedHomeFile, "correct it there"
	switch {
	case kubeconfig != "":
		file = kubeconfig
	case named != "":
		file = fmt.Sprintf("$%s=%s", clientcmd.RecommendedConfigPathEnvVar, named)
	}
	if contextFlag != "" {
		wayOut += ", or name another context by --" + contextFlag
	}
	nothing := kubeconfig == "" && len(all.Contexts) == 0
	if chosen := cmp.Or(context, all.CurrentContext); chosen != "" && all.Contexts[chosen] == nil && !nothing {
		what := "its current-context"
		if context != "" {
			what = "the one of --" + contextFlag
		}
		there := strings.Join(slices.Sorted(maps.Keys(all.Contexts)), ", ")
		return nil, fmt.Errorf("file %s has no context %q, %s; there are: %s: %s", file, chosen, what,
			cmp.Or(there, "none"), wayOut)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if kubeconfig != "" || named != "" {
		loading = clientcmd.NewNonInteractiveClientConfig(*all, context, overrides, rules)
	}
	config, err := loading.ClientConfig()
	switch {
	case err == nil, !clientcmd.IsEmptyConfig(err) && !nothing:
	case kubeconfig != "":
		return nil, fmt.Errorf("file %s has no current-context, or it leads to no cluster: %s", kubeconfig, wayOut)
	case named != "":
		return nil, fmt.Errorf("$%s is %q: there is no such file, or it has no current-context: correct it, or give the "+
			"file by the flag", clientcmd.RecommendedConfigPathEnvVar, named)
	default:
		return nil, fmt.Errorf("$%s isn't set, %s doesn't exist or has no current-context, and this isn't a Pod: give the "+
			"file by the flag", clientcmd.RecommendedConfigPathEnvVar, clientcmd.RecommendedHomeFile)
	}
	if err == nil {
		err = usable(config)
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", file, err)
	}
	config.UserAgent = "tenure/" + version + " (console)"
	return config, nil
}

// usable refuses a configuration with which no request could ever be sent. client-go would say so with each request,
// and not name the field.
func usable(config *rest.Config) error {
	to, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil || to.Scheme != "https" && to.Scheme != "http" {
		return fmt.Errorf("server %q: must be a URL such as https://10.0.0.1:6443: correct it in the kubeconfig",
			config.Host)
	}
	for _, c := range []struct {
		fields string
		tls    rest.TLSClientConfig
	}{
		{"certificate-authority-data", rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile}},
		{"client-certificate-data, client-key-data or insecure-skip-tls-verify", config.TLSClientConfig},
	} {
		if _, err := rest.TLSConfigFor(&rest.Config{Host: config.Host, TLSClientConfig: c.tls}); err != nil {
			return fmt.Errorf("%s can't be used: %w: correct it in the kubeconfig", c.fields, err)
		}
	}
	return nil
}

// screen returns the screen for a command's answer.
func screen(cmd *cobra.Command, lookup func(string) (string, bool)) *console.Screen {
	to := cmd.OutOrStdout()
	wide := columns(to)
	plain, _ := lookup("NO_COLOR")
	terminal, _ := lookup("TERM")
	return &console.Screen{To: to, Columns: wide, Colour: wide > 0 && plain == "" && terminal != "dumb"}
}

// show writes an answer in the format that was asked for.
func (q *question) show(answer any, healthy bool, show func(*console.Screen) error) error {
	var err error
	if q.output == "json" {
		var encoded []byte
		if encoded, err = json.MarshalIndent(answer, "", "  "); err == nil {
			_, err = fmt.Fprintf(q.screen.To, "%s\n", text.JSON(encoded))
		}
	} else {
		err = show(q.screen)
	}
	if err == nil && !healthy {
		err = errUnhealthy
	}
	return err
}
