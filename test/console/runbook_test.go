package console

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// night is a fleet of the installation's manifests, with clusters west and east in use, and the person on call, whose
// $KUBECONFIG is that of home. Something goes wrong, and they do what its entry in the runbook says.
type night struct{ *newcomer }

const onCall = "export KUBECONFIG=home.yaml; "

// The entries of the runbook lead to what is wrong, and out of it. Each command of theirs is typed as it stands there.
func TestTheRunbookLeadsOutOfTrouble(t *testing.T) {
	n := night{newNewcomer(t)}
	n.begins()
	n.healthy()
	for _, entry := range []struct {
		title  string
		follow func(n night, title string)
	}{
		{"TenureOddRecords", night.foreignRecord},
		{"Rotating the credentials of a cluster", night.rotate},
		{"TenureClusterUnreachable", night.unreachable},
	} {
		if !t.Run(entry.title, func(t *testing.T) { entry.follow(n.in(t), entry.title) }) {
			return
		}
	}
	labtest.Leave(t, n.replicas[1:]...)
}

func (n night) in(t *testing.T) night {
	step := *n.newcomer
	step.t = t
	return night{&step}
}

// says waits until a command prints some texts, and fails or succeeds as expected.
func (n night) says(line string, fails bool, want ...string) {
	n.t.Helper()
	labtest.Eventually(n.t, line, func() error {
		out, err := n.shell(onCall + line)
		flat := strings.Join(strings.Fields(out), " ") // lines are wrapped
		for _, w := range want {
			if !strings.Contains(flat, w) {
				return fmt.Errorf("it doesn't say %q:\n%s", w, out)
			}
		}
		if fails != (err != nil) {
			return fmt.Errorf("%v:\n%s", err, out)
		}
		return nil
	})
}

func (n night) healthy() { n.says("tenure status", false, "healthy: 3 replicas") }

// entry returns the commands in the text of an entry that begin like this, each with its line breaks taken out.
func (n night) entry(title, begins string) (commands []string) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", "config/RUNBOOK.md"))
	must.Succeed(n.t, err)
	_, section, found := strings.Cut(string(text), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, c := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
		if line := strings.Join(strings.Fields(c[1]), " "); strings.HasPrefix(line, begins) {
			commands = append(commands, line)
		}
	}
	if !found || len(commands) == 0 {
		n.t.Fatalf("the runbook's entry %q has no command %q", title, begins)
	}
	return commands
}

// foreignRecord applies a record beside those of a layout, and follows the runbook's entry.
func (n night) foreignRecord(entry string) {
	record := `{"apiVersion":"tenure.dev/v1alpha1","kind":"Shard","metadata":{"name":"west.p0","namespace":"tenure-system"},"spec":{"cluster":"west","prefix":"0"}}`
	n.types(fmt.Sprintf("echo '%s' | kubectl --kubeconfig home.yaml apply -f -", record))
	n.says("tenure status", true, "west.p0")
	n.says(n.entry(entry, "kubectl -n tenure-system get events")[0], false, "ForeignRecord", "west.p0")
	n.types(onCall + strings.Replace(n.entry(entry, "kubectl -n tenure-system delete shard")[0], "NAME", "west.p0", 1))
	n.healthy()
}

func (n night) rotate(entry string) {
	line := n.entry(entry, "tenure cluster rotate")[0]
	n.types(onCall + strings.Replace(line, "WEST", "west.yaml", 1))
	for _, r := range n.replicas {
		labtest.Eventually(n.t, r.Name+" has the new credentials", func() error {
			n, err := r.Log.Count(func(l lab.Line) bool { return l.Msg == "cluster's credentials replaced" })
			if n == 0 {
				return fmt.Errorf("its log doesn't say so (%v)", err)
			}
			return nil
		})
	}
	n.healthy()
}

// unreachable stops the server of a cluster, and later takes credentials away, and follows the runbook's entry.
func (n night) unreachable(entry string) {
	events := strings.Replace(n.entry(entry, "kubectl -n tenure-system events")[0], "CLUSTER", "west", 1)
	check := strings.Replace(n.entry(entry, "tenure cluster check")[0], "CLUSTER", "west", 1)
	west := n.planes.Cluster("west")
	must.Succeed(n.t, west.StopAPIServer())
	n.says(events, false, "Unreachable")
	n.says("tenure status", true, "cluster west: Unreachable")
	n.says(check, true, "WRONG server Unreachable")
	must.Succeed(n.t, west.StartAPIServer(n.t.Context()))
	n.says(events, false, "Usable")
	n.says("tenure status", false, "healthy: 3 replicas", "west answers")

	n.types("kubectl --kubeconfig west.yaml -n tenure-system delete serviceaccount tenure")
	n.says(events, false, "AccessRefused")
	n.says("tenure status", true, "cluster west: AccessRefused")
	again := strings.Replace(n.entry(entry, "tenure cluster add")[0], "CLUSTER --kubeconfig FILE",
		"west --kubeconfig west.yaml", 1)
	n.types(onCall + again)
	n.healthy()
	n.says(check, false, "ok server")
}
