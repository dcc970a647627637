package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard"
)

// options is the command line of the manager.
type options struct {
	homeKubeconfig string
	namespace      string
	fleet          string
	replica        string
	sharding       bool
	shards         int
	perShard       int64
	leaseDuration  time.Duration
	drainTimeout   time.Duration
	removalGrace   time.Duration
	weight         int
	workers        int
	serverFilter   bool
	limits         kubeconfig.Limits
	copying        replicationFlags
	metricsAddress string
	metricsSecure  bool
	traceSlow      time.Duration
	healthAddress  string
	pprofAddress   string
	logLevel       slog.Level
	pods           podFlags
	kubeconfigs    kubeconfigFlags
	pod            shard.Pod
	hooks          labHooks
	// overridden are the environment variables that have no effect, since their flags are given, and unknown those for
	// which there is no flag.
	overridden []overridden
	unknown    []string
}

// newManager returns the command that runs a replica. Each of its flags has an environment variable.
func newManager(lookup func(string) (string, bool),
	manage func(context.Context, *options, io.Writer) error) *cobra.Command {
	o := &options{sharding: true, serverFilter: true}
	cmd := &cobra.Command{
		Use:   "tenure",
		Short: "Shares the work of one controller on many clusters among its replicas",
		Long: "Runs one replica, which shares the work of one controller on many clusters with the others. The commands\n" +
			"below add and remove clusters, and answer the questions of the person on call.\n\n" +
			"Each flag can be given as an environment variable too: --lease-duration is TENURE_LEASE_DURATION.",
		Args: noArguments("the manager takes flags only"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return usage(err)
			}
			o.overridden, o.unknown = overriddenBy(cmd.Flags()), unknownIn(os.Environ(), cmd.Flags())
			err := manage(cmd.Context(), o, cmd.ErrOrStderr())
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w: another process listens there; choose by --metrics-bind-address, "+
					"--health-probe-bind-address or --pprof-bind-address, or turn one off by 0", err)
			}
			return err
		},
	}
	o.declare(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) { fromEnvironment(f, envName(f.Name), lookup) })
	refuseEmpty(cmd, "home-kubeconfig", "kubeconfig-folder", "at-service-account")
	for name, values := range map[string][]string{
		"sharding": {"on", "off"}, "watch-filtering": {"server", "client"},
		"at-security": {"restricted", "none"}, "log-level": {"debug", "info", "warn", "error"},
	} {
		complete(cmd, name, values...)
	}
	return cmd
}

func (o *options) declare(fs *pflag.FlagSet) {
	host, _ := os.Hostname()
	fs.StringVar(&o.homeKubeconfig, "home-kubeconfig", "",
		"kubeconfig `file` of the home cluster (default: $KUBECONFIG, or else the in-cluster configuration, or else "+
			"~/.kube/config)")
	fs.StringVar(&o.namespace, "namespace", shard.DefaultNamespace,
		"`namespace` of the home cluster that holds Leases, Shards and kubeconfig Secrets")
	fs.StringVar(&o.fleet, "fleet", "",
		"`name` of the fleet among those that share the namespace: each has its own Leases and records, but all read the "+
			"same cluster Secrets, so two fleets of tenure need two namespaces, and config/ is "+
			"made for tenure-system alone")
	fs.StringVar(&o.replica, "replica", strings.ToLower(host), "stable `name` of this replica, unique in the fleet")
	fs.Var(&choice{&o.sharding, "on", "off"}, "sharding", "on, or off: the same reconcilers under plain leader election")
	fs.IntVar(&o.shards, "shards-per-cluster", 1<<shard.DefaultShardBits,
		"into how many shards a new cluster is divided at most: a power of two up to 256")
	fs.Int64Var(&o.perShard, "objects-per-shard", 1000,
		"a new cluster gets one shard for this many `objects` that it has when it is first seen, finished ones too; 0 gives "+
			"each cluster --shards-per-cluster")
	fs.DurationVar(&o.leaseDuration, "lease-duration", shard.DefaultLeaseDuration,
		"how long a silent replica keeps its shards; the same for all replicas")
	fs.DurationVar(&o.drainTimeout, "drain-timeout", shard.DefaultDrainTimeout,
		"how long running reconciles may delay a move before they are cancelled")
	fs.DurationVar(&o.removalGrace, "cluster-removal-grace", shard.DefaultRemovalGrace,
		"how long a cluster is still served after its Secret or file was deleted; "+
			"if that comes back meanwhile, the cluster counts as changed, not as removed")
	fs.IntVar(&o.weight, "weight", 1, "this replica's share of the work, relative to the others'")
	fs.IntVar(&o.workers, "workers", 16, "how many reconciles of a kind run at once for one cluster; namespaces with "+
		"none running may use a quarter more; all clusters together, or the source cluster of Deployments, may use eight "+
		"times as many")
	fs.Float64Var(&o.limits.QPS, "cluster-qps", 0,
		"`requests` a second that this replica sends to one workload cluster on average; 0 is no limit; "+
			"the annotation "+kubeconfig.QPSAnnotation+" of a cluster's Secret replaces it for that cluster")
	fs.IntVar(&o.limits.Burst, "cluster-burst", 0,
		"how many `requests` it sends at once after a rest; 0 is as many as in a second; only with a rate, by "+
			"--cluster-qps or its annotation; annotation "+kubeconfig.BurstAnnotation)
	fs.IntVar(&o.limits.Writes, "cluster-concurrent-writes", 0,
		"`writes` to one workload cluster that this replica waits for at a time; 0 is no limit; "+
			"annotation "+kubeconfig.WritesAnnotation)
	fs.Var(&choice{&o.serverFilter, "server", "client"}, "watch-filtering",
		"who filters watches: server (where the API server knows KEP-5866), or client, the replica itself")
	o.copying.declare(fs)
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "`address` of the metrics endpoint; 0 turns it off")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"serve metrics and the status page over TLS, to users who may get /metrics, "+
			"/ and /status in the home cluster; false serves them to everybody who reaches the address")
	fs.DurationVar(&o.traceSlow, "trace-slow", time.Second, "with tracing on (OTEL_EXPORTER_OTLP_ENDPOINT): keep the "+
		"traces of reconciles that fail or take this long, up to 20 a second, whatever OTEL_TRACES_SAMPLER says; "+
		"0 to leave them to it")
	fs.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081",
		"`address` of /healthz and /readyz; 0 turns it off")
	fs.StringVar(&o.pprofAddress, "pprof-bind-address", "0",
		"`address` of Go's profiles, without authentication; 0 turns it off")
	fs.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "`level` of the log: debug, info, warn or error")
	fs.StringVar(&o.pod.Container, "pod", "", "the `container` that the process runs in, as NAMESPACE/POD/UID/CONTAINER: "+
		"peers that may read its Pod then know at once when it dies")
	fs.StringVar(&o.pod.TerminationLog, "termination-log", corev1.TerminationMessagePathDefault,
		"`file` that the container's terminationMessagePath names; used if it exists")
	fs.StringVar(&o.pod.Peers, "pod-selector", replicaLabels,
		"`labels` of the replicas' Pods in --namespace; empty: don't watch them")
	o.pods.declare(fs)
	o.kubeconfigs.declare(fs)
	o.hooks.Declare(fs)
}

// replicaLabels select the Pods of replicas, as config/manager labels them.
const replicaLabels = "app.kubernetes.io/name=tenure"

// mayNotBeEmpty is the annotation of a flag that must not be given empty, such as from a variable of a script that
// isn't set: it would silently mean the default.
const mayNotBeEmpty = "may-not-be-empty"

func refuseEmpty(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.Flags().SetAnnotation(name, mayNotBeEmpty, nil) // fails only if there is no such flag
	}
}

// checkEmpty reports the first flag that is given empty, also by its variable, and may not be.
func checkEmpty(fs *pflag.FlagSet) (err error) {
	fs.VisitAll(func(f *pflag.Flag) {
		given := f.Changed || len(f.Annotations[environment]) == 2
		if _, refused := f.Annotations[mayNotBeEmpty]; refused && given && f.Value.String() == "" && err == nil {
			err = fmt.Errorf("--%s \"\": must not be empty; leave the flag out if its default is meant", f.Name)
		}
	})
	return err
}

// wanted says what the values of a flag look like, where the parsers of Go's types don't.
func wanted(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return ": give a number and a unit, such as 90s, 10m or 720h"
	case "int", "int64", "int32", "uint64":
		return ": give a whole number"
	case "float32", "float64":
		return ": give a number"
	case "bool":
		return ": give true or false"
	}
	if _, says := f.Value.(*choice); says {
		return ""
	}
	return oneOf(f)
}

// oneOf lists the values of a flag that takes a few words only; "" for others.
func oneOf(f *pflag.Flag) string {
	words := f.Annotations[choices]
	if len(words) == 0 {
		return ""
	}
	last := len(words) - 1
	if last == 0 {
		return ": must be " + words[0]
	}
	return ": must be " + strings.Join(words[:last], ", ") + " or " + words[last]
}

// nameProblem says why a name can't be that of a namespace or a fleet; "" if it can.
func nameProblem(name string) string {
	if name == "" {
		return "must not be empty"
	}
	return strings.Join(validation.IsDNS1123Label(name), "; ")
}

// mostWorkers bounds the workers of a cluster. Each controller has eight times as many goroutines.
const mostWorkers = 1000

// validate reports the flags that are wrong. It looks first for what shard.Config can't see: there a zero value means
// the default; on a command line it is a mistake. shard.Config is asked only if nothing is found, since it would report
// some of it again.
func (o *options) validate() error {
	var errs []error
	problem := nameProblem(o.namespace)
	for _, c := range []struct {
		wrong bool
		says  string
	}{
		{problem != "", fmt.Sprintf("--namespace %q: %s", o.namespace, problem)},
		{o.replica == "", `--replica "": must not be empty`},
		{o.shards < 1 || o.shards > 256 || bits.OnesCount(uint(o.shards)) != 1,
			fmt.Sprintf("--shards-per-cluster %d: must be a power of two from 1 to 256", o.shards)},
		{o.workers < 1 || o.workers > mostWorkers, fmt.Sprintf("--workers %d: must be from 1 to %d", o.workers, mostWorkers)},
		{!o.sharding && o.limits != (kubeconfig.Limits{}),
			"--cluster-qps, --cluster-burst and --cluster-concurrent-writes: only with --sharding=on"},
		{!o.sharding && o.fleet != "",
			fmt.Sprintf("--fleet %s: only with --sharding=on; a namespace has one elected leader", o.fleet)},
		{o.leaseDuration == 0, "--lease-duration 0s: must be at least 1s"},
		{o.drainTimeout == 0, "--drain-timeout 0s: must be above 0; a short one, such as 1ms, cancels what runs at once"},
		{o.weight == 0, "--weight 0: must be at least 1; a replica that shall hold nothing needn't run"},
		{o.removalGrace <= 0, fmt.Sprintf("--cluster-removal-grace %v: must be above 0; a short one, such as 1ms, acts on "+
			"removals at once", o.removalGrace)},
		// client-go logs bodies at lower levels, with tokens
		{o.logLevel < slog.LevelDebug || o.logLevel > slog.LevelError,
			fmt.Sprintf("--log-level %v: must be debug, info, warn or error", o.logLevel)},
		{o.traceSlow < 0, fmt.Sprintf("--trace-slow %v: must not be negative", o.traceSlow)},
	} {
		if c.wrong {
			errs = append(errs, errors.New(c.says))
		}
	}
	_, pods := o.pods.defaults()
	_, policy := o.kubeconfigs.policy()
	errs = append(errs, pods, o.copying.validate(), o.hooks.Validate(), policy, o.kubeconfigs.validate(),
		o.validateAddresses())
	if o.homeKubeconfig != "" {
		if _, err := os.Stat(o.homeKubeconfig); err != nil {
			errs = append(errs, fmt.Errorf("--home-kubeconfig: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil || !o.sharding {
		return err
	}
	return flagNames(o.shardConfig().Validate())
}

// validateAddresses reports addresses at which this process can't listen, as far as that can be seen beforehand.
func (o *options) validateAddresses() error {
	taken := map[string]string{} // by address: the flag
	for _, f := range []struct{ name, address string }{
		{"metrics-bind-address", o.metricsAddress}, {"health-probe-bind-address", o.healthAddress},
		{"pprof-bind-address", o.pprofAddress},
	} {
		if f.address == "0" {
			continue
		}
		_, port, err := net.SplitHostPort(f.address)
		number := 0
		if err == nil {
			number, err = net.LookupPort("tcp", port)
		}
		if err != nil {
			return fmt.Errorf("--%s %q: must be host:port, :port or 0: %w", f.name, f.address, err)
		}
		if other := taken[f.address]; other != "" && number != 0 {
			return fmt.Errorf("--%s %q: is that of --%s, too: give each an address of its own, or turn one off by 0",
				f.name, f.address, other)
		}
		taken[f.address] = f.name
	}
	return nil
}

// shardBits is the number of prefix bits of a new cluster.
func (o *options) shardBits() int { return bits.TrailingZeros(uint(o.shards)) }

// inFlags replaces fields of shard.Config in the text of an error by the flags that set them.
var inFlags = strings.NewReplacer(
	"Fleet ", "--fleet ", "Replica ", "--replica ", "Namespace ", "--namespace ", "LeaseDuration ", "--lease-duration ",
	"DrainTimeout ", "--drain-timeout ", "RemovalGrace ", "--cluster-removal-grace ", "Weight ", "--weight ",
	"ObjectsPerShard ", "--objects-per-shard ", "Pod.Container ", "--pod ", "Pod.Peers ", "--pod-selector ",
	"Limits: ", "", "QPS ", "--cluster-qps ", "Burst ", "--cluster-burst ", "Writes ", "--cluster-concurrent-writes ")

// flagNames returns an error of shard.Config as one about flags.
func flagNames(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(inFlags.Replace(err.Error()))
}

// choice is a flag value of two words: yes sets what it points to, no clears it.
type choice struct {
	to      *bool
	yes, no string
}

func (c *choice) Type() string { return c.yes + "|" + c.no }

func (c *choice) String() string {
	if *c.to {
		return c.yes
	}
	return c.no
}

func (c *choice) Set(text string) error {
	if text != c.yes && text != c.no {
		return fmt.Errorf("must be %s or %s", c.yes, c.no)
	}
	*c.to = text == c.yes
	return nil
}
