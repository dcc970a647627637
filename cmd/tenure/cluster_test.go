package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/test/must"
)

// kubeconfigOf writes a kubeconfig that leads to a server.
func kubeconfigOf(t *testing.T, server string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"" +
		server + "\"}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestCommandsAboutClustersAskTheFleetThatIsNamed(t *testing.T) {
	home := &homeFlags{homeKubeconfig: kubeconfigOf(t, "https://127.0.0.1:1"), homeNamespace: "ops", fleet: "night"}
	o, err := onboarder(&cobra.Command{}, "west", home, nil)
	must.Succeed(t, err)
	if o.Namespace != "ops" || o.Fleet != "night" {
		t.Errorf("namespace %q, fleet %q; want ops and night", o.Namespace, o.Fleet)
	}
}

func TestWhatIsWaitedForCannotSteerTheTerminal(t *testing.T) {
	cmd, said := &cobra.Command{}, &strings.Builder{}
	cmd.SetErr(said)
	o, err := onboarder(cmd, "west", nil, nil)
	must.Succeed(t, err)
	o.Progress("an event says \x1b[2J\nnothing")
	if want := "an event says \ufffd[2J nothing\n"; said.String() != want {
		t.Errorf("%q, want %q", said, want)
	}
}

func TestAnEmptyNameIsRefusedInAWord(t *testing.T) {
	for _, command := range []string{"add", "check", "rotate", "remove"} {
		refused(t, nil, []string{"cluster", command, ""}, `NAME "": must not be empty (see`)
	}
}

func TestEachRequestOfAQuestionIsBounded(t *testing.T) {
	q := &question{homeFlags: homeFlags{homeKubeconfig: kubeconfigOf(t, "https://127.0.0.1:1"), homeNamespace: "ops"}}
	g, err := q.gatherer(true)
	must.Succeed(t, err)
	if g.Home.Timeout != askTimeout {
		t.Errorf("%v, want %v", g.Home.Timeout, askTimeout)
	}
}

func TestARequestOfACommandAboutClustersIsBounded(t *testing.T) {
	home := &homeFlags{homeKubeconfig: kubeconfigOf(t, "https://127.0.0.1:1"), homeNamespace: "ops"}
	o, err := onboarder(&cobra.Command{}, "west", home, &adminFlags{kubeconfig: kubeconfigOf(t, "https://127.0.0.1:2")})
	must.Succeed(t, err)
	if o.Home.Timeout != answerWithin || o.Workload.Timeout != answerWithin {
		t.Errorf("home %v, workload %v; want %v", o.Home.Timeout, o.Workload.Timeout, answerWithin)
	}
}
