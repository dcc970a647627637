package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/test/must"
)

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
			refused(t, nil, strings.Fields(args), flag, fmt.Sprintf("server %q", server))
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
		for _, arg := range []string{"status", "--replica=r1"} {
			refused(t, nil, []string{arg, "--home-kubeconfig=" + path}, "--home-kubeconfig", "file "+path+": "+c.field)
		}
	}
}

func TestAnEmptyVariableIsRefusedAsItsFlagIs(t *testing.T) {
	refused(t, map[string]string{"TENURE_HOME_KUBECONFIG": ""}, []string{"cluster", "remove", "west"},
		`--home-kubeconfig "": must not be empty; leave the flag out if its default is meant; `+
			"--home-kubeconfig is from $TENURE_HOME_KUBECONFIG")
}

func TestAContextOfNoFileIsNotSoughtInIt(t *testing.T) {
	t.Setenv("KUBECONFIG", "/no/such/file")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	refused(t, nil, []string{"status", "--context=west"}, `$KUBECONFIG is "/no/such/file": there is no such file`)
}

func TestAPodWithoutATokenSaysWhichFileIsMissing(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	refused(t, nil, []string{"--replica=r1"}, "serviceaccount/token")
}

func TestAReplicaWithoutAHomeSaysWhereItLooked(t *testing.T) {
	defer func(was string) { clientcmd.RecommendedHomeFile = was }(clientcmd.RecommendedHomeFile)
	clientcmd.RecommendedHomeFile = "/no/such/file"
	for _, name := range []string{"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	const want = "$KUBECONFIG isn't set, /no/such/file doesn't exist or has no current-context, and this isn't a Pod"
	refused(t, nil, []string{"--replica=r1"}, want)
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
		refused(t, nil, []string{"status"}, want)
		if home, err := homeConfig(&options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a replica takes %v, %v for home; want %q", home, err, want)
		}
	}
}
