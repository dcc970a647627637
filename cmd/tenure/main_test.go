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

// refused runs a command line that is to be refused by one line, which says all that is wanted.
func refused(t *testing.T, env map[string]string, args []string, wants ...string) {
	t.Helper()
	var out, errs strings.Builder
	code, text := run(t.Context(), args, environ(env), &out, &errs), errs.String()
	if code != exitUsage || strings.Count(text, "\n") != 1 || out.Len() > 0 {
		t.Errorf("tenure %q: exit code %d, %q and %q; want 2 and one line of errors alone", args, code, text, out.String())
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("tenure %q: %q; want %q", args, text, want)
		}
	}
}

func TestABadCommandLineIsOneClearLineAndExitCodeTwo(t *testing.T) {
	for args, want := range map[string]string{
		"--leese-duration=3s":                 "leese-duration",
		"managr --replica=r1":                 `"managr"`,
		"statsu --replica=r1":                 "did you mean status?",
		"--workers=many":                      "workers",
		"--workers=0":                         "--workers 0",
		"--workers=1152921504606846976":       "must be from 1 to 1000",
		"--lease-duration=600000h":            "--lease-duration 600000h0m0s",
		"--at-active-deadline=600000h":        "--at-active-deadline: 600000h0m0s",
		"--shards-per-cluster=3":              "--shards-per-cluster 3",
		"--objects-per-shard=-1":              "--objects-per-shard -1",
		"--sharding=maybe":                    "must be on or off",
		"--lease-duration=10ms":               "--lease-duration 10ms",
		"--replica=A_B":                       `--replica "A_B"`,
		"--namespace=A_B":                     `--namespace "A_B"`,
		"--namespace=":                        `--namespace ""`,
		"--namespace= --sharding=off":         `--namespace ""`,
		"--fleet=night --sharding=off":        "--fleet night: only with --sharding=on",
		"--lease-duration=0":                  "--lease-duration 0s",
		"--drain-timeout=0":                   "--drain-timeout 0s",
		"--weight=0":                          "--weight 0",
		"--metrics-bind-address=:99999":       `--metrics-bind-address ":99999"`,
		"--metrics-bind-address=":             `--metrics-bind-address ""`,
		"--metrics-bind-address=:8081":        `--health-probe-bind-address ":8081": is that of --metrics-bind-address`,
		"--deployment-source=West":            `--deployment-source "West"`,
		"--deployment-source=":                `--deployment-source ""`,
		"--kubeconfig-servers=":               "--kubeconfig-servers: names no server",
		"--metrics-bind-address=localhost":    "--metrics-bind-address",
		"--home-kubeconfig=/no/such/file":     "/no/such/file",
		"--kubeconfig-folder=/no/such/folder": `--kubeconfig-folder "/no/such/folder"`,
		"--at-requests=cpu":                   `"cpu"`,
		"--at-limits=cpu=1,memroy=1Gi":        `"memroy=1Gi": memroy must be cpu, memory`,
		"--at-limits=cpu=1,cpu=2":             `"cpu=2": cpu is there twice`,
		"--at-requests=example.com/gpu=1":     "--at-requests: example.com/gpu=1 can't be shared",
		"--at-requests=cpu=2":                 "--at-requests: cpu=2 is above cpu=1 of --at-limits (the default)",
		"--at-limits=cpu=0":                   "--at-requests: cpu=10m (the default) is above cpu=0 of --at-limits (see",
		"--at-limits=cpu=-1":                  "--at-limits: cpu=-1 is negative",
		"--log-level=trace":                   "must be debug, info, warn or error",
		"--log-level=debug-4":                 "--log-level DEBUG-4: must be debug, info, warn or error",
		"--replica=r1 --sharding":             "flag needs an argument: --sharding: must be on or off",
		"--replica=":                          `--replica "": must not be empty`,
		"--home-kubeconfig=":                  `--home-kubeconfig "": must not be empty`,
		"--kubeconfig-folder=":                `--kubeconfig-folder "": must not be empty`,
		"--at-service-account=":               `--at-service-account "": must not be empty`,
		"--at-limits=example.com/gpu=500m":    "--at-limits: example.com/gpu=500m must be a whole number",
		"--at-run-as-user=0":                  "--at-run-as-user 0",
		"--at-run-as-user=4294967294":         "must be from 1 to 2147483647",
		"--at-active-deadline=500ms":          "--at-active-deadline: 500ms",
		"--at-service-account=A_B":            `--at-service-account "A_B"`,
		"--injected-work=1s":                  "injected-work", // a benchmark's hook
		"--plant=exit":                        "plant",         // a planted fault
		"--lease-duration=10":                 "give a number and a unit, such as 90s",
		"--at-active-deadline=30d":            "give a number and a unit, such as 90s",
		"--lease-duration=99999999h":          `"99999999h": it is too long: give at most`,
		"--metrics-secure=ja":                 "give true or false",
		"--create-namespaces":                 "only with --deployment-source",

		"--cluster-qps=0.01 --cluster-burst=-1 --cluster-concurrent-writes=-2": "--cluster-qps 0.01: must be 0 (no limit), " +
			"or from 0.1 to 1000000 requests a second; --cluster-burst -1: must be from 0 to 1000000; " +
			"--cluster-concurrent-writes -2: must be",
		"--workers=0 --trace-slow=-1s --metrics-bind-address=x": "--workers 0: must be from 1 to 1000; " +
			`--trace-slow -1s: must not be negative; --metrics-bind-address "x": must be host:port, :port or 0`,
		"--replication-forbidden-namespaces=a,B*": `--replication-forbidden-namespaces: "B*"`,
		"--kubeconfig-servers=https://east.example.com": `"https://east.example.com" isn't a network such as ` +
			"10.0.0.0/8: write a host",
		"--at-requests=example.com/gpu=500m --at-limits=example.com/gpu=500m": "--at-requests: example.com/gpu=500m " +
			"must be a whole number",
		"--at-security=none --at-run-as-user=1000": "--at-run-as-user 1000: only with --at-security=restricted",

		"status --nonsense":                                 "-nonsense",
		"status -o yaml":                                    `--output "yaml": must be text or json`,
		"status --namespace=":                               `--namespace "": must not be empty (see`,
		"status --namespace a/b":                            `--namespace "a/b"`,
		"plan --fleet a=b":                                  `--fleet "a=b"`,
		"why at/a --object-namespace=":                      `--object-namespace ""`,
		"page --plain --service-account viewer":             "--service-account: not with --plain",
		"page --metrics-port 0":                             "--metrics-port 0: must be from 1 to 65535",
		"page --listen 0.0.0.0:0":                           "--listen 0.0.0.0:0: must be a loopback address",
		"page --listen 127.0.0.1":                           "--listen 127.0.0.1: address 127.0.0.1: missing port",
		"page --selector a=(":                               `--selector "a=(": `,
		"page --namespace=":                                 `--namespace ""`,
		"cluster list --namespace=":                         `--namespace ""`,
		"cluster add west --namespaces=":                    "--namespaces: names none",
		"cluster remove west --wait -1s":                    "--wait -1s: must not be negative",
		"trace at/a --limit 0":                              "--limit 0: must be at least 1",
		"trace at/a --since -1h":                            "--since -1h0m0s: must be above 0",
		"trace west":                                        "want the ID of a trace",
		"trace pod/a":                                       "want the ID of a trace",
		"trace slowest --limit 3":                           "--limit: has no effect on slowest",
		"trace west/01 --cluster east":                      "--cluster: has no effect on west/01",
		"trace 0123456789abcdef0123456789abcdef --since 2h": "--since: has no effect on 0123",
		"trace slowest --service=":                          "--service: must not be empty",
		"trace slowest --jaeger localhost:16686":            `--jaeger "localhost:16686": must be a URL`,
		"status extra":                                      `unexpected argument "extra"`,
		"why":                                               "name one object, at/NAME or deployment/NAME (see",
		"why at/a at/b":                                     "name one object, at/NAME or deployment/NAME, not 2: at/a at/b",
		"trace":                                             "or slowest (see",
		"why pod/a":                                         "want at/NAME or deployment/NAME",
		"why at/default/a":                                  `NAME "default/a"`,
		"plan --replicas -1":                                "--replicas -1: must not be negative",
		"plan --replicas 0":                                 "--replicas 0: must be at least 1",
		"plan --replicas 1000000000":                        "--replicas 1000000000: must be at most 1000",
		"plan --replicas many":                              "replicas",
		"status --home-kubeconfig /no/such/file":            "/no/such/file",
		"help statu":                                        `unexpected argument "statu": did you mean status?`,
		"help cluster ad":                                   `unexpected argument "ad": did you mean add?`,
		"page --fleet night":                                "unknown flag: --fleet",
		"cluster":                                           "name a command",
		"cluster ad":                                        `unexpected argument "ad": did you mean add`,
		"cluster add":                                       "name one cluster (see",
		"cluster add West":                                  `NAME "West"`,
		"cluster add west --server west:6443":               `--server "west:6443": must be https://HOST:PORT`,
		"cluster add west --server http://west":             `--server "http://west": must be https://HOST:PORT`,
		"cluster add home":                                  "choose another name",
		"cluster add west --role pods":                      "--role pods: must be of [ats deployments deployment-source]",
		"cluster add west --role=":                          "--role: must name at least one",
		"cluster add west --namespaces a,B":                 `--namespaces "B"`,
		"cluster add west --namespaces a,*":                 `--namespaces "*": means all`,
		"cluster check west --role=":                        "--role: must name at least one",
		"cluster add west --token-lifetime 1m":              "--token-lifetime 1m0s: must be from 10m0s",
		"cluster add west --wait -1s":                       "--wait -1s: must not be negative",
		"cluster add west -o yaml":                          "needs --dry-run=client",
		"cluster add west --dry-run server":                 `--dry-run "server": must be none or client`,
		"cluster add west --dry-run client -o yaml --namespace=":               `--namespace ""`,
		"cluster add west --dry-run client -o yaml --kubeconfig /no/such/file": "(--kubeconfig, --context)",
		"cluster rotate west --token-lifetime 9000h":                           "to 8760h",
		"cluster check west --home-context nowhere":                            "--home-context",
		"cluster remove": "name one cluster",
		"status --context nowhere --home-kubeconfig /no/such/file": "--home-kubeconfig",

		"cluster add west --context=":            `--context "": must not be empty`,
		"cluster rotate west --kubeconfig=":      `--kubeconfig "": must not be empty`,
		"cluster remove west --context=":         `--context "": must not be empty`,
		"cluster list --home-context=":           `--home-context "": must not be empty`,
		"cluster add west --home-context=":       `--home-context "": must not be empty`,
		"cluster rotate west --home-kubeconfig=": `--home-kubeconfig "": must not be empty`,
		"status --context=":                      `--context "": must not be empty`,
		"cluster rotate west --fleet night":      "unknown flag: --fleet",
		"cluster add west --server=":             `--server "": must not be empty`,
		"page --service-account=":                `--service-account "": must not be empty`,
		"page --pod=":                            `--pod "": must not be empty`,
		"why at/a --cluster=":                    `--cluster "": must not be empty`,
		"why at/a --kubeconfig=":                 `--kubeconfig "": must not be empty`,
		"trace at/a --cluster=":                  `--cluster "": must not be empty`,
		"trace at/a --object-namespace=":         `--object-namespace "": must not be empty`,
		"plan --drain=":                          `--drain "": must not be empty`,
		"status --output=":                       `--output "": must be text or json`,
		"cluster add west --output":              "flag needs an argument: --output: must be yaml (see",
		"cluster add west --dry-run":             "flag needs an argument: --dry-run: must be none or client",
		"page --pod a_b":                         `--pod "a_b": `,
		"page --service-account a/b":             `--service-account "a/b": `,
		"completion foo":                         `unexpected argument "foo": there is no such shell`,
		"completion bash x":                      `unexpected argument "x"`,
	} {
		all := strings.Fields(args)
		if strings.HasPrefix(args, "-") && !strings.Contains(args, "--replica=") {
			all = append(all, "--replica=r1") // the host's own name may be anything
		}
		refused(t, nil, all, want)
	}
}

func TestABadVariableIsOneClearLineAndExitCodeTwo(t *testing.T) {
	for variable, want := range map[string]string{
		"TENURE_KUBECONFIG_SERVERS=":        "--kubeconfig-servers: names no server",
		"TENURE_DRAIN_TIMEOUT=99999999h30m": `"99999999h30m": it is too long: give at most`,
		"TENURE_NAMESPACE=":                 `--namespace "": must not be empty; --namespace is from $TENURE_NAMESPACE (see`,
		"TENURE_HOME_KUBECONFIG=/no/such/file": "no such file or directory; " +
			"--home-kubeconfig is from $TENURE_HOME_KUBECONFIG (see",
		"TENURE_WORKERS=": `invalid value "" for environment variable TENURE_WORKERS: strconv.ParseInt: parsing "": ` +
			"invalid syntax",
		"TENURE_WORKERS=many": `TENURE_WORKERS: strconv.ParseInt: parsing "many": invalid syntax: ` +
			"give a whole number",
		"TENURE_HOME_KUBECONFIG=": `--home-kubeconfig "": must not be empty; leave the flag out if its default is meant; ` +
			"--home-kubeconfig is from $TENURE_HOME_KUBECONFIG (see",
	} {
		name, value, _ := strings.Cut(variable, "=")
		refused(t, map[string]string{name: value}, []string{"--replica=r1"}, want)
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
