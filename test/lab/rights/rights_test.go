package rights

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// inALog is a request as an audit log has it.
func inALog(user, verb, group, resource, decided, why string) string {
	return inNamespace("n", user, verb, group, resource, decided, why)
}

func inNamespace(namespace, user, verb, group, resource, decided, why string) string {
	resource, sub, _ := strings.Cut(resource, "/")
	return audittest.Line(audit.Event{Namespace: namespace, User: user, Verb: verb, Group: group, Resource: resource,
		Subresource: sub, Decision: decided, Reason: why})
}

func byRole(role string) string {
	return fmt.Sprintf(`RBAC: allowed by RoleBinding "any/n" of ClusterRole "%s" to ServiceAccount "tenure/tenure-system"`,
		role)
}

const manifests = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tenure-run}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [create, get]}
  - {apiGroups: [""], resources: [secrets], verbs: [list, watch]}
  - {apiGroups: [x.io], resources: [ats/status], verbs: [update]}
---
kind: ClusterRole
metadata: {name: tenure-people}
rules: [{apiGroups: [""], resources: [pods], verbs: [delete]}]
---
kind: ClusterRoleBinding
metadata: {name: any}
roleRef: {kind: ClusterRole, name: tenure-run}
subjects: [{kind: ServiceAccount, name: tenure, namespace: tenure-system}]
---
kind: ClusterRoleBinding
metadata: {name: other}
roleRef: {kind: ClusterRole, name: tenure-people}
subjects: [{kind: User, name: tenure}]
`

// left has planes leave a log, and returns what is collected of it.
func left(t *testing.T, log string) Use {
	t.Helper()
	planes, to := t.TempDir(), t.TempDir()
	t.Setenv(Variable, to)
	path := filepath.Join(planes, "west", "audit.log")
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, []byte(log), 0o600))
	must.Succeed(t, Leave(planes))
	use, err := Left(to)
	must.Succeed(t, err)
	return use
}

func TestWhatIsGrantedAndNotUsedOrNeededAndNotGrantedIsFound(t *testing.T) {
	config := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(config, "role.yaml"), []byte(manifests), 0o600))
	granted, err := Granted(config)
	must.Succeed(t, err)
	expect.Equal(t, "granted", []Grant{
		{"tenure-run", Right{"x.io", "ats/status", "update"}}, {"tenure-run", Right{"", "pods", "create"}},
		{"tenure-run", Right{"", "pods", "get"}},
		{"tenure-run", Right{"", "secrets", "list"}}, {"tenure-run", Right{"", "secrets", "watch"}},
	}, granted)
	all := inALog(User, "create", "", "pods", "allow", byRole("tenure-run")) +
		inALog(User, "get", "", "pods", "allow", byRole("tenure-run")) +
		inALog(User, "update", "x.io", "ats/status", "allow", byRole("tenure-run")) +
		inALog(User, "watch", "", "secrets", "allow", byRole("tenure-run")) // which began with a list of its own
	for name, c := range map[string]struct{ log, want string }{
		"all is used": {log: all},
		"a cut line":  {log: all + inALog(User, "list", "", "pods", "forbid", "")[:90]},
		"a default role": {log: all + inALog(User, "create", "a.io", "selfsubjectreviews", "allow",
			byRole("system:basic-user"))},
		"somebody's refusal": {log: all + inALog("mallory", "list", "", "pods", "forbid", "")},
		"a provoked refusal": {log: all + inNamespace(Unbound, User, "list", "", "pods", "forbid", "")},
		"one is unused": {log: strings.Replace(all, `"get"`, `"create"`, 1),
			want: "tenure-run grants get pods, which nothing used"},
		"others used it": {log: strings.ReplaceAll(all, User, "mallory"),
			want: "grants update ats/status.x.io, which nothing used"},
		"another role has it": {log: strings.ReplaceAll(all, "tenure-run", "edit"), want: "grants create pods"},
		"a server began":      {log: inALog(User, "get", "", "pods", "forbid", "") + all},
		"elsewhere it may": {log: all + inNamespace("m", User, "get", "", "pods", "forbid", ""),
			want: `get pods was refused in namespace "m"`},
		"one was refused": {log: all + inALog(User, "list", "", "configmaps", "forbid", ""),
			want: `list configmaps was refused in namespace "n"`},
	} {
		err := Judge(io.Discard, granted, left(t, c.log))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := Judge(io.Discard, nil, Use{}); err == nil {
		t.Error("no grants at all are no error")
	}
}

func TestTheShippedRolesAreFound(t *testing.T) {
	granted, err := Granted("../../../config")
	must.Succeed(t, err)
	roles := map[string]int{}
	for _, g := range granted {
		roles[g.Role]++
	}
	for _, role := range []string{"tenure-home", "tenure-metrics-auth", "tenure-ats-watch", "tenure-ats-run"} {
		if roles[role] == 0 {
			t.Errorf("role %s isn't among %v", role, roles)
		}
	}
}

func TestReadsAreLoggedOnlyWhereUseIsLeft(t *testing.T) {
	policy := []byte("rules:\n- level: None\n")
	t.Setenv(Variable, "")
	if got := AuditPolicy(policy); string(got) != string(policy) {
		t.Errorf("without a folder: %s", got)
	}
	t.Setenv(Variable, t.TempDir())
	if got := string(AuditPolicy(policy)); !strings.Contains(got, "verbs: [get]") ||
		!strings.HasSuffix(got, "- level: None\n") {
		t.Errorf("with a folder: %s", got)
	}
}
