package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mckubeconfig "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/tenure-dev/tenure/test/must"
)

func noEnv(string) (string, bool) { return "", false }

// environ looks up variables in a map.
func environ(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := variables[name]
		return value, set
	}
}

// tenure runs a command line.
func tenure(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = run(t.Context(), args, noEnv, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestACommandGivesLibrariesALog(t *testing.T) {
	tenure(t, "version")
	said := 0
	ctrl.SetLogger(funcr.New(func(_, _ string) { said++ }, funcr.Options{})) // has no effect if one is set
	if ctrl.Log.Info("x"); said != 0 {
		t.Error("none was set")
	}
}

func TestABadCommandLineIsOneClearLineAndExitCodeTwo(t *testing.T) {
	cases := map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"unknown flag":        {args: []string{"--leese-duration=3s"}, want: "leese-duration"},
		"unknown subcommand":  {args: []string{"managr"}, want: `"managr"`},
		"a misspelt command":  {args: []string{"statsu"}, want: "did you mean status?"},
		"no number":           {args: []string{"--workers=many"}, want: "workers"},
		"no worker":           {args: []string{"--workers=0"}, want: "--workers 0"},
		"too many workers":    {args: []string{"--workers=1152921504606846976"}, want: "must be from 1 to 1000"},
		"a lease of 68 years": {args: []string{"--lease-duration=600000h"}, want: "--lease-duration 600000h0m0s"},
		"a deadline of as many": {args: []string{"--at-active-deadline=600000h"},
			want: "--at-active-deadline: 600000h0m0s"},
		"three shards": {args: []string{"--shards-per-cluster=3"}, want: "--shards-per-cluster 3"},
		"limits that are none": {
			args: []string{"--cluster-qps=0.01", "--cluster-burst=-1", "--cluster-concurrent-writes=-2"},
			want: "--cluster-qps 0.01: must be 0 (no limit), or from 0.1 to 1000000 requests a second; " +
				"--cluster-burst -1: must be from 0 to 1000000; --cluster-concurrent-writes -2: must be"},
		"several flags": {
			args: []string{"--workers=0", "--trace-slow=-1s", "--metrics-bind-address=x"},
			want: "--workers 0: must be from 1 to 1000; --trace-slow -1s: must not be negative; " +
				`--metrics-bind-address "x": must be host:port, :port or 0`},
		"fewer than no objects":   {args: []string{"--objects-per-shard=-1"}, want: "--objects-per-shard -1"},
		"sharding neither on/off": {args: []string{"--sharding=maybe"}, want: "must be on or off"},
		"lease too short":         {args: []string{"--lease-duration=10ms"}, want: "--lease-duration 10ms"},
		"replica not a name":      {args: []string{"--replica=A_B"}, want: `--replica "A_B"`},
		"namespace not a name":    {args: []string{"--namespace=A_B"}, want: `--namespace "A_B"`},
		"no namespace":            {args: []string{"--namespace="}, want: `--namespace ""`},
		"namespaceless leader":    {args: []string{"--namespace=", "--sharding=off"}, want: `--namespace ""`},
		"a fleet, one leader": {args: []string{"--fleet=night", "--sharding=off"},
			want: "--fleet night: only with --sharding=on"},
		"no lease":         {args: []string{"--lease-duration=0"}, want: "--lease-duration 0s"},
		"no time to drain": {args: []string{"--drain-timeout=0"}, want: "--drain-timeout 0s"},
		"no weight":        {args: []string{"--weight=0"}, want: "--weight 0"},
		"no such port":     {args: []string{"--metrics-bind-address=:99999"}, want: `--metrics-bind-address ":99999"`},
		"no address":       {args: []string{"--metrics-bind-address="}, want: `--metrics-bind-address ""`},
		"one address for two": {args: []string{"--metrics-bind-address=:8081"},
			want: `--health-probe-bind-address ":8081": is that of --metrics-bind-address`},
		"source not a name":    {args: []string{"--deployment-source=West"}, want: `--deployment-source "West"`},
		"no source":            {args: []string{"--deployment-source="}, want: `--deployment-source ""`},
		"no server":            {args: []string{"--kubeconfig-servers="}, want: "--kubeconfig-servers: names no server"},
		"address without port": {args: []string{"--metrics-bind-address=localhost"}, want: "--metrics-bind-address"},
		"no such namespace": {args: []string{"--replication-forbidden-namespaces=a,B*"},
			want: `--replication-forbidden-namespaces: "B*"`},
		"kubeconfig missing": {args: []string{"--home-kubeconfig=/no/such/file"}, want: "/no/such/file"},
		"folder missing": {args: []string{"--kubeconfig-folder=/no/such/folder"},
			want: `--kubeconfig-folder "/no/such/folder"`},
		"no quantity": {args: []string{"--at-requests=cpu"}, want: `"cpu"`},
		"no such resource": {args: []string{"--at-limits=cpu=1,memroy=1Gi"},
			want: `"memroy=1Gi": memroy must be cpu, memory`},
		"a resource twice": {args: []string{"--at-limits=cpu=1,cpu=2"}, want: `"cpu=2": cpu is there twice`},
		"a device without limit": {args: []string{"--at-requests=example.com/gpu=1"},
			want: "--at-requests: example.com/gpu=1 can't be shared"},
		"request above its limit": {args: []string{"--at-requests=cpu=2"},
			want: "--at-requests: cpu=2 is above cpu=1 of --at-limits (the default)"},
		"limit below its request": {args: []string{"--at-limits=cpu=0"},
			want: "--at-requests: cpu=10m (the default) is above cpu=0 of --at-limits (see"},
		"a negative limit": {args: []string{"--at-limits=cpu=-1"}, want: "--at-limits: cpu=-1 is negative"},
		"no such level":    {args: []string{"--log-level=trace"}, want: "must be debug, info, warn or error"},
		"a level of bodies": {args: []string{"--log-level=debug-4"},
			want: "--log-level DEBUG-4: must be debug, info, warn or error"},
		"no choice": {args: []string{"--replica=r1", "--sharding"},
			want: "flag needs an argument: --sharding: must be on or off"},
		"no replica": {args: []string{"--replica="}, want: `--replica "": must not be empty`},
		"no namespace, by environment": {env: map[string]string{"TENURE_NAMESPACE": ""},
			want: `--namespace "": must not be empty; --namespace is from $TENURE_NAMESPACE (see`},
		"no kubeconfig": {args: []string{"--home-kubeconfig="}, want: `--home-kubeconfig "": must not be empty`},
		"no kubeconfig, by environment": {env: map[string]string{"TENURE_HOME_KUBECONFIG": ""},
			want: `--home-kubeconfig "": must not be empty; leave the flag out if its default is meant; --home-kubeconfig is ` +
				`from $TENURE_HOME_KUBECONFIG (see`},
		"no folder":  {args: []string{"--kubeconfig-folder="}, want: `--kubeconfig-folder "": must not be empty`},
		"no account": {args: []string{"--at-service-account="}, want: `--at-service-account "": must not be empty`},
		"kubeconfig missing, by environment": {env: map[string]string{"TENURE_HOME_KUBECONFIG": "/no/such/file"},
			want: "no such file or directory; --home-kubeconfig is from $TENURE_HOME_KUBECONFIG (see"},
		"a URL for a server": {args: []string{"--kubeconfig-servers=https://east.example.com"},
			want: `"https://east.example.com" isn't a network such as 10.0.0.0/8: write a host`},
		"half a device": {args: []string{"--at-requests=example.com/gpu=500m", "--at-limits=example.com/gpu=500m"},
			want: "--at-requests: example.com/gpu=500m must be a whole number"},
		"half a device at most": {args: []string{"--at-limits=example.com/gpu=500m"},
			want: "--at-limits: example.com/gpu=500m must be a whole number"},
		"a restricted root":  {args: []string{"--at-run-as-user=0"}, want: "--at-run-as-user 0"},
		"a user above 2^31":  {args: []string{"--at-run-as-user=4294967294"}, want: "must be from 1 to 2147483647"},
		"half a second":      {args: []string{"--at-active-deadline=500ms"}, want: "--at-active-deadline: 500ms"},
		"account not a name": {args: []string{"--at-service-account=A_B"}, want: `--at-service-account "A_B"`},
		"a benchmark's hook": {args: []string{"--injected-work=1s"}, want: "injected-work"},
		"a planted fault":    {args: []string{"--plant=exit"}, want: "plant"},
		"bad environment": {env: map[string]string{"TENURE_WORKERS": "many"},
			want: "TENURE_WORKERS: strconv.ParseInt: parsing \"many\": invalid syntax: give a whole number"},
		"no server, by environment": {env: map[string]string{"TENURE_KUBECONFIG_SERVERS": ""},
			want: "--kubeconfig-servers: names no server"},
		"no number, by environment": {env: map[string]string{"TENURE_WORKERS": ""},
			want: `invalid value "" for environment variable TENURE_WORKERS: strconv.ParseInt: parsing "": invalid syntax`},
		"no unit":      {args: []string{"--lease-duration=10"}, want: "give a number and a unit, such as 90s"},
		"a day":        {args: []string{"--at-active-deadline=30d"}, want: "give a number and a unit, such as 90s"},
		"11,000 years": {args: []string{"--lease-duration=99999999h"}, want: `"99999999h": it is too long: give at most`},
		"11,000 years, by environment": {env: map[string]string{"TENURE_DRAIN_TIMEOUT": "99999999h30m"},
			want: `"99999999h30m": it is too long: give at most`},
		"no truth value": {args: []string{"--metrics-secure=ja"}, want: "give true or false"},
		"a user, and no restriction": {args: []string{"--at-security=none", "--at-run-as-user=1000"},
			want: "--at-run-as-user 1000: only with --at-security=restricted"},
		"replication without a source": {args: []string{"--create-namespaces"}, want: "only with --deployment-source"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			args := append([]string{}, c.args...)
			if !strings.Contains(strings.Join(args, " "), "--replica") {
				args = append(args, "--replica=r1") // the host's own name may be anything
			}
			var out, errs strings.Builder
			code := run(t.Context(), args, environ(c.env), &out, &errs)
			if code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			text := errs.String()
			if !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 {
				t.Errorf("got %q, want one line with %s", text, c.want)
			}
		})
	}
}

// optionsOf are what a command line gives the manager.
func optionsOf(t *testing.T, env map[string]string, args ...string) (o *options) {
	t.Helper()
	root := newRoot(environ(env), func(_ context.Context, got *options, _ io.Writer) error {
		o = got
		return nil
	})
	root.SetArgs(args)
	must.Succeed(t, root.ExecuteContext(t.Context()))
	return o
}

func TestAFlagIsTakenFromTheCommandLineElseFromTheEnvironment(t *testing.T) {
	env := map[string]string{"TENURE_LEASE_DURATION": "7s", "TENURE_SHARDING": "off", "TENURE_WORKERS": "3"}
	o := optionsOf(t, env, "--workers=5", "--replica=r1")
	if o.leaseDuration != 7*time.Second || o.sharding || o.workers != 5 {
		t.Errorf("lease %v, sharding %v, workers %d; want 7s, false, 5", o.leaseDuration, o.sharding, o.workers)
	}
	for about, c := range map[string]struct {
		env  map[string]string
		want string
	}{"not set": {nil, replicaLabels}, "empty": {map[string]string{"TENURE_POD_SELECTOR": ""}, ""}} {
		if got := optionsOf(t, c.env, "--replica=r1").pod.Peers; got != c.want {
			t.Errorf("TENURE_POD_SELECTOR %s: Pods with labels %q are watched, want %q", about, got, c.want)
		}
	}
}

// A flag has annotations for its values and for what it refuses; its variable adds one, in whichever order they come.
func TestAVariableLeavesTheOtherAnnotationsOfItsFlag(t *testing.T) {
	cmd := &cobra.Command{}
	cmd.Flags().String("colour", "", "")
	complete(cmd, "colour", "red", "blue")
	refuseEmpty(cmd, "colour")
	fromEnvironment(cmd.Flags().Lookup("colour"), "TENURE_COLOUR", environ(map[string]string{"TENURE_COLOUR": ""}))
	if says := oneOf(cmd.Flags().Lookup("colour")); says != ": must be red or blue" {
		t.Errorf("its values: %q", says)
	}
	if checkEmpty(cmd.Flags()) == nil {
		t.Error("the variable may be empty")
	}
}

func TestAVariableThatAFlagOverridesIsLogged(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home.yaml")
	must.Succeed(t, os.WriteFile(home, nil, 0o600)) // so that the replica ends at once
	var out, errs strings.Builder
	run(t.Context(), []string{"--replica=r1", "--home-kubeconfig=" + home, "--lease-duration=5s", "--workers=3"},
		environ(map[string]string{"TENURE_LEASE_DURATION": "20s", "TENURE_WORKERS": "3", "TENURE_WEIGHT": "2"}), &out, &errs)
	const want = `"flag":"--lease-duration","value":"5s","variable":"TENURE_LEASE_DURATION","ignored":"20s"`
	if got := errs.String(); !strings.Contains(got, want) || strings.Count(got, "has no effect") != 1 {
		t.Errorf("got %s, want one line with %s", got, want)
	}
}

func TestAVariableThatNoFlagHasIsLogged(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home.yaml")
	must.Succeed(t, os.WriteFile(home, nil, 0o600)) // so that the replica ends at once
	for _, name := range []string{"TENURE_LEASE_DURATIN", "TENURE_WORKERS", "TENURE_METRICS_SERVICE_HOST",
		"TENURE_METRICS_SERVICE_PORT", "TENURE_METRICS_SERVICE_PORT_HTTPS", "TENURE_METRICS_PORT",
		"TENURE_METRICS_PORT_8443_TCP", "TENURE_METRICS_PORT_8443_TCP_ADDR", "TENURE_SERVICE_HOST", "TENURE_PORT",
		"TENURE_JAEGER_URL", "TENURE_CONTROLPLANE"} {
		t.Setenv(name, "5")
	}
	_, _, errs := tenure(t, "--replica=r1", "--home-kubeconfig="+home)
	const want = `there is no flag of that name","replica":"r1","variable":"TENURE_LEASE_DURATIN"}`
	if !strings.Contains(errs, want) || strings.Count(errs, "no flag of that name") != 1 {
		t.Errorf("got %s, want one line with %s", errs, want)
	}
}

func TestAVariableThatSaysWhatItsFlagSaysIsNotLogged(t *testing.T) {
	o := optionsOf(t, map[string]string{"TENURE_LEASE_DURATION": "60s", "TENURE_LOG_LEVEL": "DEBUG",
		"TENURE_KUBECONFIG_SERVERS": "a.example.com,b.example.com", "TENURE_AT_LIMITS": "memory=1024Mi",
		"TENURE_SHARDING": "on", "TENURE_KUBECONFIG_ALLOW": "exec", "TENURE_WORKERS": "many"},
		"--replica=r1", "--lease-duration=1m", "--log-level=debug", "--kubeconfig-servers=a.example.com",
		"--kubeconfig-servers=b.example.com", "--at-limits=memory=1Gi", "--sharding=on", "--kubeconfig-allow=files",
		"--workers=3")
	var flags []string
	for _, v := range o.overridden {
		flags = append(flags, v.Flag)
	}
	if got := strings.Join(flags, " "); got != "--kubeconfig-allow --workers" {
		t.Errorf("overridden: %s, want those of --kubeconfig-allow and --workers", got)
	}
}

func TestFlagsSetTheDefaultsOfPods(t *testing.T) {
	o := optionsOf(t, nil, "--replica=r1", "--at-requests=none", "--at-limits=memory=1Gi", "--at-run-as-user=1000",
		"--at-active-deadline=1m")
	d, err := o.pods.defaults()
	must.Succeed(t, err)
	limits := quantities(d.Limits)
	if len(d.Requests) != 0 || limits.String() != "memory=1Gi" || *d.SecurityContext.RunAsUser != 1000 ||
		d.ActiveDeadline != time.Minute {
		t.Errorf("got %+v", d)
	}
	gpu := optionsOf(t, nil, "--replica=r1", "--at-requests=example.com/gpu=1,hugepages-2Mi=4Mi,ephemeral-storage=1Gi",
		"--at-limits=example.com/gpu=1,hugepages-2Mi=4Mi")
	if len(gpu.pods.requests) != 3 {
		t.Errorf("got %v", gpu.pods.requests)
	}
	if d, err = optionsOf(t, nil, "--replica=r1", "--at-security=none").pods.defaults(); err != nil ||
		d.SecurityContext.RunAsUser != nil {
		t.Errorf("without restriction: %+v, %v", d.SecurityContext, err)
	}
}

func TestAReplicaWithoutShardingIsBuiltWhileHomeIsAway(t *testing.T) {
	away := &rest.Config{Host: "https://127.0.0.1:1"}
	for _, source := range []string{"none", "west"} {
		o := optionsOf(t, nil, "--replica=r1", "--sharding=off", "--deployment-source="+source, "--metrics-bind-address=0",
			"--health-probe-bind-address=0")
		opts := stockOptions(managerOptions(o, clientgoscheme.Scheme), o)
		if _, err := mcmanager.New(away, mckubeconfig.New(mckubeconfig.Options{}), opts); err != nil {
			t.Errorf("Deployments of %s are copied: %v", source, err)
		}
	}
}

func TestNothingIsReplicatedUnlessAskedForAndOurOwnNamespacesNever(t *testing.T) {
	o := optionsOf(t, nil, "--replica=r1")
	if o.replicates() || o.copying.config(o.namespace).CreateNamespaces {
		t.Errorf("replicates %v, makes namespaces %v, want neither", o.replicates(),
			o.copying.config(o.namespace).CreateNamespaces)
	}
	o = optionsOf(t, map[string]string{"TENURE_REPLICATION_FORBIDDEN_NAMESPACES": "infra-*,vault"}, "--replica=r1",
		"--namespace=ops", "--deployment-source=home", "--create-namespaces", "--replication-scalers=keda,robusta")
	config := o.copying.config(o.namespace)
	if got := strings.Join(config.Scalers, " "); got != "kube-controller-manager k3s kubelite keda robusta" {
		t.Errorf("scalers %q", got)
	}
	if got := strings.Join(config.ForbiddenNamespaces, " "); got != "ops tenure-system infra-* vault" ||
		!config.CreateNamespaces {
		t.Errorf("forbidden %q, makes namespaces %v", got, config.CreateNamespaces)
	}
}

func TestAnAddressThatIsTakenIsNamedWithTheFlags(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	root := newRoot(noEnv, func(context.Context, *options, io.Writer) error {
		_, err := net.Listen("tcp", taken.Addr().String())
		return fmt.Errorf("running: %w", err)
	})
	root.SetArgs([]string{"--replica=r1"})
	err = root.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) ||
		!strings.Contains(err.Error(), "--metrics-bind-address") {
		t.Errorf("got %v, want an error with the address and the flags", err)
	}
}

func TestHelpListsEveryFlagWithItsVariable(t *testing.T) {
	code, out, _ := tenure(t, "--help")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{"-home-kubeconfig", "TENURE_HOME_KUBECONFIG", "-sharding", "-lease-duration",
		"TENURE_METRICS_BIND_ADDRESS"} {
		if !strings.Contains(out, want) {
			t.Errorf("help doesn't mention %s", want)
		}
	}
}

func TestAnAnswerThatCannotBeWrittenIsAFailureThatIsReported(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("only Linux has a device that is always full: ", err)
	}
	defer full.Close()
	for _, args := range []string{"help", "help cluster add", "--help", "status --help", "version", "completion",
		"completion bash"} {
		var errs strings.Builder
		code := run(t.Context(), strings.Fields(args), noEnv, full, &errs)
		if code != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("tenure %s: exit code %d, %q", args, code, errs.String())
		}
	}
}

func TestShardsPerClusterBecomesPrefixBits(t *testing.T) {
	for shards, bits := range map[string]int{"1": 0, "2": 1, "8": 3, "256": 8} {
		o := optionsOf(t, nil, "--replica=r1", "--shards-per-cluster="+shards)
		if got := o.shardBits(); got != bits {
			t.Errorf("%s shards: %d bits, want %d", shards, got, bits)
		}
	}
}

func TestTheShellCompletesCommandsAndTheValuesOfFlags(t *testing.T) {
	for args, want := range map[string]string{"s": "status", "--sharding=": "off", "status -o ": "json",
		"why ": "deployment/"} {
		words := append([]string{"__complete"}, strings.Split(args, " ")...)
		if code, out, _ := tenure(t, words...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("tenure %s: exit code %d, %q, want %s", args, code, out, want)
		}
	}
}

func TestNoOtherUserOfTheMachineChoosesTheKeyOfTheMetrics(t *testing.T) {
	m := (&options{metricsAddress: ":8080", metricsSecure: true}).metricsOptions()
	if m.CertDir == "" || strings.HasPrefix(m.CertDir, os.TempDir()) {
		t.Errorf("certificates are read from %q", m.CertDir)
	}
}

// The text format has no exemplars.
func TestMetricsAreServedInAFormatThatLinksTraces(t *testing.T) {
	served := promhttp.HandlerOpts{}
	for _, set := range (&options{metricsAddress: ":8080"}).metricsOptions().HandlerOpts {
		set(&served)
	}
	if !served.EnableOpenMetrics {
		t.Error("OpenMetrics is off")
	}
}

// An API server may send any number of warnings with each answer.
func TestWarningsOfAPIServersAreNotLogged(t *testing.T) {
	c := &rest.Config{}
	if err := tune(c); err != nil || c.WarningHandlerWithContext != (rest.NoWarnings{}) {
		t.Errorf("%T, %v", c.WarningHandlerWithContext, err)
	}
}
