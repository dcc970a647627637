package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/test/must"
)

func TestABadQuestionIsOneClearLineAndExitCodeTwo(t *testing.T) {
	for args, want := range map[string]string{
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
		code, out, text := tenure(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 || out != "" {
			t.Errorf("tenure %s: exit code %d, %q; want 2 and one line with %q", args, code, text, want)
		}
	}
}

// kubectl would take the cluster that the process runs in, if there is one.
func TestAKubeconfigThatLeadsNowhereIsNotReplacedByTheClusterOfThePod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	const rest = `clusters: [{name: c, cluster: {server: "https://127.0.0.1:2"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: here, context: {cluster: c, user: u}}, {name: nowhere, context: {cluster: gone, user: u}}]
`
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, c := range []struct{ text, context, host, err string }{
		{"", "", "", "no current-context"},
		{rest, "", "", "no current-context"},
		{rest + "current-context: nowhere", "", "", "no current-context, or it leads to no cluster"},
		{rest + "current-context: gone", "", "", fmt.Sprintf(
			"file %s has no context %q, its current-context; there are: here, nowhere: correct it there", path, "gone")},
		{rest, "gone", "", "the one of --context; there are: here, nowhere: correct it there, or name another context by " +
			"--context"},
		{rest, "here", "https://127.0.0.1:2", ""},
		{rest + "current-context: here", "", "https://127.0.0.1:2", ""},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o600))
		config, err := connection(path, c.context, "context")
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: %v, %v; want %q", c.text, config, err, c.err)
		case c.err == "" && (err != nil || config.Host != c.host):
			t.Errorf("%q: %v, %v; want %s", c.text, config, err, c.host)
		}
		if c.context != "" {
			continue // a replica has no flag for it
		}
		home, err := homeConfig(&options{homeKubeconfig: path})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) ||
			strings.Contains(err.Error(), "another context")):
			t.Errorf("%q as home: %v, %v; want %q, and no flag that a replica lacks", c.text, home, err, c.err)
		case c.err == "" && (err != nil || home.Host != c.host || home.QPS != -1):
			t.Errorf("%q as home: %v, %v; want %s", c.text, home, err, c.host)
		}
	}
}

func TestAServerThatNoRequestCanBeSentToIsRefusedAtOnce(t *testing.T) {
	defer func(was string) { clientcmd.RecommendedHomeFile = was }(clientcmd.RecommendedHomeFile)
	for _, server := range []string{"https://127.0.0.1:1x", "ftp://127.0.0.1"} {
		path := kubeconfigOf(t, server)
		for args, flag := range map[string]string{
			"status --home-kubeconfig " + path:                               "--home-kubeconfig",
			"--replica=r1 --home-kubeconfig " + path:                         "--home-kubeconfig",
			"cluster add west --dry-run client -o yaml --kubeconfig " + path: "--kubeconfig",
		} {
			code, _, text := tenure(t, strings.Fields(args)...)
			if code != exitUsage || !strings.Contains(text, flag) ||
				!strings.Contains(text, fmt.Sprintf("server %q", server)) {
				t.Errorf("tenure %s: exit code %d, %q; want 2, %s and %s", args, code, text, flag, server)
			}
		}
		t.Setenv("KUBECONFIG", "")
		clientcmd.RecommendedHomeFile = path // that of kubectl
		_, err := homeConfig(&options{})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("server %q", server)) {
			t.Errorf("a replica takes %s for home: %v", server, err)
		}
	}
	for _, server := range []string{"https://127.0.0.1:1/k8s", "http://[::1]:1", "127.0.0.1:1", "localhost:1"} {
		if config, err := connection(kubeconfigOf(t, server), "", ""); err != nil || config.Host != server {
			t.Errorf("%s: %v, %v", server, config, err)
		}
	}
}

func TestCertificatesThatCannotBeUsedAreNamedWithTheirFile(t *testing.T) {
	const notPEM = "bm90IFBFTQ=="
	for _, c := range []struct{ was, is, field string }{
		{"server:", "certificate-authority-data: " + notPEM + ", server:", "certificate-authority-data can't be used"},
		{"token: t", "client-certificate-data: " + notPEM + ", client-key-data: " + notPEM, "client-certificate-data"},
	} {
		path := kubeconfigOf(t, "https://127.0.0.1:1")
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(path, []byte(strings.Replace(string(text), c.was, c.is, 1)), 0o600))
		for _, args := range []string{"status", "--replica=r1"} {
			code, _, errs := tenure(t, append(strings.Fields(args), "--home-kubeconfig="+path)...)
			if code != exitUsage || !strings.Contains(errs, "--home-kubeconfig") ||
				!strings.Contains(errs, "file "+path+": "+c.field) || strings.Count(errs, "\n") != 1 {
				t.Errorf("tenure %s: exit code %d, %q; want 2, --home-kubeconfig, %s and %s", args, code, errs, path, c.field)
			}
		}
	}
}

func TestAnEmptyVariableIsRefusedAsItsFlagIs(t *testing.T) {
	var errs strings.Builder
	code := run(t.Context(), []string{"cluster", "remove", "west"},
		environ(map[string]string{"TENURE_HOME_KUBECONFIG": ""}), io.Discard, &errs)
	const want = `--home-kubeconfig "": must not be empty; leave the flag out if its default is meant; ` +
		"--home-kubeconfig is from $TENURE_HOME_KUBECONFIG"
	if code != exitUsage || !strings.Contains(errs.String(), want) {
		t.Errorf("exit code %d, %q; want 2 and %q", code, errs.String(), want)
	}
}

func TestAContextOfNoFileIsNotSoughtInIt(t *testing.T) {
	t.Setenv("KUBECONFIG", "/no/such/file")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	code, _, errs := tenure(t, "status", "--context=west")
	if code != exitUsage || !strings.Contains(errs, `$KUBECONFIG is "/no/such/file": there is no such file`) {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestAPodWithoutATokenSaysWhichFileIsMissing(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	code, _, errs := tenure(t, "--replica=r1")
	if code != exitUsage || !strings.Contains(errs, "serviceaccount/token") {
		t.Errorf("exit code %d, %q; want 2 and the token's file", code, errs)
	}
}

func TestAReplicaWithoutAHomeSaysWhereItLooked(t *testing.T) {
	defer func(was string) { clientcmd.RecommendedHomeFile = was }(clientcmd.RecommendedHomeFile)
	clientcmd.RecommendedHomeFile = "/no/such/file"
	for _, name := range []string{"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	const want = "$KUBECONFIG isn't set, /no/such/file doesn't exist or has no current-context, and this isn't a Pod"
	code, _, errs := tenure(t, "--replica=r1")
	if code != exitUsage || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, %q; want 2 and one line with %q", code, errs, want)
	}
}

// asked runs a command line with the question answered by the test instead of a fleet.
func asked(t *testing.T, env map[string]string, args ...string) (q *question, object []string, cluster string) {
	t.Helper()
	cmd := &cobra.Command{Use: "ask"}
	cmd.Flags().StringVar(&cluster, "cluster", "", "")
	root := newRoot(noEnv, nil)
	root.AddCommand(newQuestion(cmd, "context", environ(env),
		func(_ context.Context, got *question, args []string) error {
			q, object = got, args
			return nil
		}))
	root.SetArgs(append([]string{"ask"}, args...))
	must.Succeed(t, root.ExecuteContext(t.Context()))
	return q, object, cluster
}

func TestFlagsAndArgumentsOfAQuestionComeInAnyOrder(t *testing.T) {
	for _, args := range []string{"at/x -o json --cluster west", "-o json at/x --cluster west",
		"-o json --cluster west at/x"} {
		q, object, cluster := asked(t, nil, strings.Fields(args)...)
		if len(object) != 1 || object[0] != "at/x" || q.output != "json" || cluster != "west" {
			t.Errorf("%s: %v, %s, %s", args, object, q.output, cluster)
		}
	}
}

func TestAQuestionTakesNamespaceAndKubeconfigFromTheEnvironmentOfAReplica(t *testing.T) {
	env := map[string]string{"TENURE_NAMESPACE": "elsewhere", "TENURE_HOME_KUBECONFIG": "/home.kubeconfig"}
	if q, _, _ := asked(t, env); q.homeNamespace != "elsewhere" || q.homeKubeconfig != "/home.kubeconfig" {
		t.Errorf("%s, %s", q.homeNamespace, q.homeKubeconfig)
	}
	if q, _, _ := asked(t, env, "--namespace=here"); q.homeNamespace != "here" {
		t.Errorf("--namespace=here: %s", q.homeNamespace)
	}
}

func TestEachQuestionHasHelp(t *testing.T) {
	for _, name := range []string{"status", "why", "plan", "cluster add", "cluster list", "cluster check",
		"cluster rotate", "cluster remove"} {
		code, out, _ := tenure(t, append(strings.Fields(name), "--help")...)
		if code != 0 || !strings.Contains(out, "-home-kubeconfig") {
			t.Errorf("tenure %s --help: exit code %d, %q", name, code, out)
		}
	}
}

// kubectl would take the cluster that it runs in.
func TestAKubeconfigVariableThatLeadsNowhereIsNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	must.Succeed(t, os.WriteFile(empty, []byte("apiVersion: v1\nkind: Config\n"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	for _, path := range []string{"/no/such/file", empty} {
		t.Setenv("KUBECONFIG", path)
		want := fmt.Sprintf("$KUBECONFIG is %q: there is no such file, or it has no current-context", path)
		if code, _, text := tenure(t, "status"); code != exitUsage || !strings.Contains(text, want) {
			t.Errorf("exit code %d, %s; want %q", code, text, want)
		}
		if home, err := homeConfig(&options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a replica takes %v, %v for home; want %q", home, err, want)
		}
	}
}
