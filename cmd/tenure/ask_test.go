package main

import (
	"strings"
	"testing"
)

func TestABadQuestionIsOneClearLineAndExitCodeTwo(t *testing.T) {
	for args, want := range map[string]string{
		"status --nonsense":                      "-nonsense",
		"status -o yaml":                         "-o yaml: must be text or json",
		"status extra":                           `unexpected argument "extra"`,
		"why":                                    "name one object",
		"why at/a at/b":                          "name one object",
		"why pod/a":                              "want at/NAME or deployment/NAME",
		"plan --replicas -1":                     "--replicas -1: must not be negative",
		"plan --replicas many":                   "replicas",
		"status --home-kubeconfig /no/such/file": "/no/such/file",
		"status --context nowhere --home-kubeconfig /no/such/file": "--home-kubeconfig",
	} {
		var out, errs strings.Builder
		code := run(t.Context(), strings.Fields(args), noEnv, &out, &errs)
		text := errs.String()
		if code != exitUsage || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 || out.Len() > 0 {
			t.Errorf("tenure %s: exit code %d, %q; want 2 and one line with %q", args, code, text, want)
		}
	}
}

func TestFlagsAndArgumentsOfAQuestionComeInAnyOrder(t *testing.T) {
	for _, args := range []string{"at/x -n ns --cluster west", "-n ns at/x --cluster west", "-n ns --cluster west at/x"} {
		q := newQuestion("why", noEnv)
		if err := q.parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if len(q.args) != 1 || q.args[0] != "at/x" || q.namespace != "ns" || q.cluster != "west" {
			t.Errorf("%s: %v, %s, %s", args, q.args, q.namespace, q.cluster)
		}
	}
}

func TestAQuestionTakesNamespaceAndKubeconfigFromTheEnvironmentOfAReplica(t *testing.T) {
	env := map[string]string{"TENURE_NAMESPACE": "elsewhere", "TENURE_HOME_KUBECONFIG": "/home.kubeconfig"}
	q := newQuestion("status", func(k string) string { return env[k] })
	if q.homeNamespace != "elsewhere" || q.homeKubeconfig != "/home.kubeconfig" {
		t.Errorf("%s, %s", q.homeNamespace, q.homeKubeconfig)
	}
}

func TestEachQuestionHasHelp(t *testing.T) {
	for name := range questions {
		var out, errs strings.Builder
		if code := run(t.Context(), []string{name, "--help"}, noEnv, &out, &errs); code != 0 || !strings.Contains(out.String(), "-home-kubeconfig") {
			t.Errorf("tenure %s --help: exit code %d, %q", name, code, out.String())
		}
	}
}
