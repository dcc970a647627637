package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/onboard"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	// tokenLifetime is longer than a fleet may stand still over a holiday, and short enough to bound the use of a
	// lost token.
	tokenLifetime = 30 * 24 * time.Hour
	// The API server gives no token for less than ten minutes. More than a year would hardly be a limit.
	shortestToken, longestToken = 10 * time.Minute, 365 * 24 * time.Hour
	// serveWithin is how long add waits: a fleet that runs takes seconds, one that is being started about a minute.
	serveWithin = 2 * time.Minute
	// answerWithin bounds one request. A server that takes connections and never answers must not hold a command for ever.
	answerWithin = 30 * time.Second
)

// newCluster is the command whose subcommands add and remove workload clusters.
func newCluster(lookup func(string) (string, bool)) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "add, list, check and remove workload clusters, and rotate their tokens",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("name a command: add, list, check, rotate or remove")
			}
			return noArguments("")(cmd, args)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newClusterAdd(lookup), newClusterList(lookup), newClusterCheck(lookup), newClusterRotate(lookup),
		newClusterRemove(lookup))
	return cmd
}

// clusterName is the argument NAME.
func clusterName(_ *cobra.Command, args []string) error {
	if err := oneArgument("one cluster", args); err != nil {
		return err
	}
	return usage(onboard.CheckName(args[0]))
}

// adminFlags say where the workload cluster is.
type adminFlags struct{ kubeconfig, context string }

func (a *adminFlags) declare(cmd *cobra.Command, about string) {
	fs := cmd.Flags()
	fs.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig `file` of an admin of the workload cluster "+about)
	fs.StringVar(&a.context, "context", "", "`context` of --kubeconfig")
	refuseEmpty(cmd, "kubeconfig", "context")
}

const usualDefault = "(default: $KUBECONFIG, ~/.kube/config, or in-cluster)"

// onboarder connects to the clusters that a command needs.
func onboarder(cmd *cobra.Command, name string, home *homeFlags, admin *adminFlags) (onboard.Onboarder, error) {
	o := onboard.Onboarder{Name: name, Progress: func(said string) { // it may quote an event
		fmt.Fprintln(cmd.ErrOrStderr(), text.Line(said, longestError))
	}}
	if home != nil {
		config, err := home.home()
		if err != nil {
			return o, err
		}
		config.QPS, config.Timeout = -1, answerWithin
		o.Home, o.Namespace, o.Fleet = config, home.homeNamespace, keyspace.Fleet(home.fleet)
	}
	if admin != nil {
		config, err := connection(admin.kubeconfig, admin.context, "context")
		if err != nil {
			return o, usagef("configuration of the workload cluster (--kubeconfig, --context): %v", err)
		}
		config.QPS, config.Timeout = -1, answerWithin
		o.Workload = config
	}
	return o, nil
}

// accessFlags say what the fleet may do in a cluster.
type accessFlags struct{ roles, namespaces []string }

func (a *accessFlags) declare(cmd *cobra.Command) {
	fs := cmd.Flags()
	var roles []string
	for _, role := range onboard.Roles {
		roles = append(roles, string(role))
	}
	fs.StringSliceVar(&a.roles, "role", nil,
		"what the cluster is for: "+strings.Join(roles, ", ")+" (default: what it was added with, else ats)")
	fs.StringSliceVar(&a.namespaces, "namespaces", nil, "`namespaces` that the fleet may write in, "+
		onboard.AllNamespaces+" for all (default: those that it was added with, else all)")
	complete(cmd, "role", roles...)
}

// wish returns what the flags say. A field is nil if its flag isn't given.
func (a *accessFlags) wish() (w onboard.Wish, err error) {
	if a.roles != nil {
		if w.Roles, err = onboard.ParseRoles(a.roles); err != nil {
			return w, usage(err)
		}
	}
	if a.namespaces == nil {
		return w, nil
	}
	if w.Namespaces = text.Sorted(a.namespaces); len(w.Namespaces) == 0 { // as with a variable that isn't set
		return w, usage(fmt.Errorf("--namespaces: names none: name some, or %s if the fleet may write in all",
			onboard.AllNamespaces))
	}
	for _, name := range w.Namespaces {
		problems := validation.IsDNS1123Label(name)
		if all := name == onboard.AllNamespaces; all && len(w.Namespaces) > 1 {
			problems = []string{"means all, so it goes alone"}
		} else if all {
			problems = nil
		}
		if len(problems) > 0 {
			return w, usage(fmt.Errorf("--namespaces %q: %s", name, strings.Join(problems, "; ")))
		}
	}
	return w, nil
}

func declareLifetime(cmd *cobra.Command, lifetime *time.Duration) {
	cmd.Flags().DurationVar(lifetime, "token-lifetime", tokenLifetime,
		"for how long to ask for a token; the API server may grant less")
}

func checkLifetime(d time.Duration) error {
	if d < shortestToken || d > longestToken {
		return usagef("--token-lifetime %v: must be from %v to %v", d, shortestToken, longestToken)
	}
	return nil
}

// addFlags are those of cluster add.
type addFlags struct {
	home   homeFlags
	admin  adminFlags
	access accessFlags
	onboard.AddOptions
	dryRun, output string
}

func newClusterAdd(lookup func(string) (string, bool)) *cobra.Command {
	var f addFlags
	cmd := &cobra.Command{
		Use: "add NAME", Short: "make a cluster one of the fleet's, and wait until it is served", Args: clusterName,
		Long: "Installs in the workload cluster what config/workload has: the API of Ats, a service account, the\n" +
			"narrowest roles and policies. Then it asks for a token of that account, writes the kubeconfig Secret of\n" +
			"the home cluster, and waits until the replicas serve the cluster. A second run leaves what is up to date\n" +
			"and updates the rest.\n\n" +
			"It takes an admin of the workload cluster; in home, the right to write Secrets and to read Shards,\n" +
			"Leases and events.",
	}
	f.home.declare(cmd, "home-context", lookup)
	f.admin.declare(cmd, usualDefault)
	f.access.declare(cmd)
	declareLifetime(cmd, &f.Lifetime)
	fs := cmd.Flags()
	fs.StringVar(&f.Server, "server", "", "`URL` at which replicas reach the workload cluster (default: the one "+
		"before, of a new cluster that of --kubeconfig)")
	fs.DurationVar(&f.Wait, "wait", serveWithin, "how long to wait until the cluster is served; 0 doesn't wait")
	fs.StringVar(&f.dryRun, "dry-run", "none", "none, or client: only say what would be done, or print it with -o yaml")
	fs.StringVarP(&f.output, "output", "o", "", "with --dry-run=client: yaml prints the objects, asks no cluster, and "+
		"leaves the token out")
	refuseEmpty(cmd, "server")
	complete(cmd, "dry-run", "none", "client")
	complete(cmd, "output", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.Dry, f.AllowHome = f.dryRun == "client", cmd.Flags().Changed("context")
		if err := f.complete(); err != nil {
			return err
		}
		if f.output == "yaml" {
			return f.printManifests(cmd, args[0])
		}
		return f.add(cmd, args[0], lookup)
	}
	return cmd
}

// complete sets the options to what the flags say, or returns the first thing that is wrong with them.
func (f *addFlags) complete() (err error) {
	switch {
	case f.dryRun != "none" && !f.Dry:
		return usagef("--dry-run %q: must be none or client", f.dryRun)
	case f.output != "" && f.output != "yaml":
		return usagef("--output %q: must be yaml", f.output)
	case f.output != "" && !f.Dry:
		return usagef("--output yaml: needs --dry-run=client")
	case f.Wait < 0:
		return usagef("--wait %v: must not be negative", f.Wait)
	}
	if err := checkLifetime(f.Lifetime); err != nil {
		return err
	}
	if f.Wish, err = f.access.wish(); err != nil {
		return err
	}
	if f.Server != "" {
		if err := onboard.CheckServer(f.Server); err != nil {
			return usage(err)
		}
	}
	return f.home.validate()
}

func (f *addFlags) add(cmd *cobra.Command, name string, lookup func(string) (string, bool)) error {
	on, err := onboarder(cmd, name, &f.home, &f.admin)
	if err != nil {
		return err
	}
	report, err := on.Add(cmd.Context(), f.AddOptions)
	if err = shown(cmd, lookup, report, err); err != nil {
		return err
	}
	switch {
	case f.Dry:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "nothing was done (--dry-run)")
	case !report.Changed:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "nothing had to be changed")
	}
	return err
}

// shown shows what was done, also before a failure, and returns the failure.
func shown(cmd *cobra.Command, lookup func(string) (string, bool), r onboard.Report, failure error) error {
	if failure != nil && len(r.Lines) == 0 {
		return failure
	}
	return errors.Join(r.Show(screen(cmd, lookup)), failure)
}

// printManifests prints what add would apply. The Secret is printed as a comment: it belongs in the home cluster, and
// a token belongs in no repository.
func (f *addFlags) printManifests(cmd *cobra.Command, name string) error {
	on, err := onboarder(cmd, name, nil, &f.admin)
	if err != nil {
		return err
	}
	on.Namespace = f.home.homeNamespace
	objects, secret, err := on.Manifests(f.AddOptions)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("printing the manifests: %w", err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return fmt.Errorf("printing the Secret: %w", err)
	}
	unstructured.RemoveNestedField(template, "metadata", "creationTimestamp")
	text, err := yaml.Marshal(template)
	if err != nil {
		return fmt.Errorf("printing the Secret: %w", err)
	}
	fmt.Fprintf(&out, "# All of the above is for cluster %s. The home cluster gets the Secret below. It holds a token, "+
		"so don't commit\n"+
		"# it: once the above is applied, tenure cluster add %[1]s writes it, and finds nothing else to do.\n#\n",
		name)
	for line := range strings.Lines(string(text)) {
		out.WriteString("# " + line)
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), out.String())
	return err
}

func newClusterList(lookup func(string) (string, bool)) *cobra.Command {
	skip := false
	cmd := &cobra.Command{Use: "list", Short: "the fleet's clusters: servers, credentials, how many replicas serve them",
		Args: noArguments("")}
	cmd.Flags().BoolVar(&skip, "skip-clusters", false, "don't ask the workload clusters whether they can be used")
	return newQuestion(cmd, "home-context", lookup, func(ctx context.Context, q *question, _ []string) error {
		o, err := onboarder(cmd, "", &q.homeFlags, nil)
		if err != nil {
			return err
		}
		all, err := o.List(ctx, !skip)
		if err != nil {
			return err
		}
		ok := true
		for _, e := range all {
			ok = ok && e.OK
		}
		return q.show(all, ok, func(s *console.Screen) error { return onboard.ShowEntries(s, all, time.Now()) })
	})
}

func newClusterCheck(lookup func(string) (string, bool)) *cobra.Command {
	var access accessFlags
	cmd := &cobra.Command{
		Use: "check NAME", Short: "whether the fleet can do its work in a cluster: credentials, API, every right",
		Args: clusterName,
	}
	access.declare(cmd)
	return newQuestion(cmd, "home-context", lookup, func(ctx context.Context, q *question, args []string) error {
		wish, err := access.wish()
		if err != nil {
			return err
		}
		o, err := onboarder(cmd, args[0], &q.homeFlags, nil)
		if err != nil {
			return err
		}
		e, err := o.Check(ctx, wish)
		if err != nil {
			return err
		}
		return q.show(e, e.OK, e.Show)
	})
}

func newClusterRotate(lookup func(string) (string, bool)) *cobra.Command {
	var (
		home     homeFlags
		admin    adminFlags
		lifetime time.Duration
	)
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "put a new token into a cluster's Secret", Args: clusterName,
		Long: "Asks the workload cluster for a new token of the replicas' service account and puts it into the cluster's\n" +
			"Secret. The fleet does that by itself before a token expires that add or rotate asked for; this is for when\n" +
			"it can't. It takes the right to create tokens of that account (serviceaccounts/token) and to read namespace\n" +
			"kube-system there; in home, to read and update Secrets.",
	}
	home.declareHome(cmd, "home-context", lookup) // all fleets of a namespace read the same Secret
	admin.declare(cmd, usualDefault)
	declareLifetime(cmd, &lifetime)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLifetime(lifetime); err != nil {
			return err
		}
		o, err := onboarder(cmd, args[0], &home, &admin)
		if err != nil {
			return err
		}
		report, err := o.Rotate(cmd.Context(), lifetime)
		if err != nil {
			return err
		}
		return report.Show(screen(cmd, lookup))
	}
	return cmd
}

func newClusterRemove(lookup func(string) (string, bool)) *cobra.Command {
	var (
		home  homeFlags
		admin adminFlags
		wait  time.Duration
	)
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "take a cluster from the fleet, and wait until it has let go", Args: clusterName,
		Long: "Deletes the cluster's Secret and waits until no replica holds a part of the cluster. With --kubeconfig or\n" +
			"--context it then deletes what add created in the workload cluster. It never deletes a\n" +
			"CustomResourceDefinition, an At, or what add didn't create. The Shard records stay in home, held by nobody:\n" +
			"their epochs go on if the cluster comes back.",
	}
	home.declare(cmd, "home-context", lookup)
	admin.declare(cmd, "(default: the cluster itself isn't touched)")
	cmd.Flags().DurationVar(&wait, "wait", serveWithin, "how long to wait until the replicas have let go; 0 doesn't wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if wait < 0 { // checked before the Secret is deleted
			return usagef("--wait %v: must not be negative", wait)
		}
		clean := &admin
		if admin == (adminFlags{}) {
			clean = nil
		}
		o, err := onboarder(cmd, args[0], &home, clean)
		if err != nil {
			return err
		}
		report, err := o.Remove(cmd.Context(), wait)
		return shown(cmd, lookup, report, err)
	}
	return cmd
}
