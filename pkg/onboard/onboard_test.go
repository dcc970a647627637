package onboard

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	everywhere = Access{Roles: []Role{Ats}}
	now        = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	west       = target{Server: "https://west.example.com:6443", UID: "uid-west"}
)

func objectsOf(t *testing.T, a Access) []*unstructured.Unstructured {
	t.Helper()
	all, err := objectsFor(a)
	must.Succeed(t, err)
	return all
}

func TestAClusterGetsTheRightsOfItsRolesAndNoOthers(t *testing.T) {
	const (
		run, watch  = "create pods in ", "watch pods in "
		copied, see = "patch deployments.apps in ", "list deployments.apps in "
		record      = "record replications.tenure.dev in "
	)
	for _, c := range []struct {
		access    Access
		has, lack []string
	}{
		{everywhere, []string{run, watch, "get namespaces kube-system in "}, []string{copied, see, record}},
		{Access{[]Role{Ats}, []string{"a", "b"}}, []string{run + "a", run + "b", watch}, []string{run, watch + "a", copied}},
		{Access{[]Role{Deployments}, nil}, []string{watch, copied, see}, []string{run, record}},
		{Access{[]Role{Deployments}, []string{"a"}}, []string{watch, copied + "a", "get namespaces in a", see},
			[]string{copied, run, "get namespaces in "}},
		{Access{[]Role{Ats, DeploymentSource}, []string{"a"}}, []string{run + "a", record + "a", see},
			[]string{record, "create deployments.apps in a"}},
	} {
		all, err := rightsIn(objectsOf(t, c.access))
		must.Succeed(t, err)
		var got []string
		for _, r := range all {
			got = append(got, r.String()+" in "+r.Namespace)
		}
		for _, want := range c.has {
			if !slices.Contains(got, want) {
				t.Errorf("%v: lacks %q: %q", c.access, want, got)
			}
		}
		for _, not := range c.lack {
			if slices.Contains(got, not) {
				t.Errorf("%v: has %q", c.access, not)
			}
		}
	}
}

// Whoever adds a binding to config/ says here what it is for, or nothing can be added.
func TestEachBindingOfTheManifestsHasAPurpose(t *testing.T) {
	seen := 0
	for _, o := range objectsOf(t, Access{Roles: Roles}) {
		if o.GetKind() == kindClusterBinding {
			seen++
		}
	}
	if seen != len(bindings) {
		t.Errorf("%d bindings are rendered for all roles, and %d have a purpose", seen, len(bindings))
	}
}

func TestWhatIsNotAskedForStaysAsTheClusterWasAdded(t *testing.T) {
	narrow := Access{[]Role{Ats, Deployments}, []string{"jobs", "reports"}}
	added := newSecret("ns", "west", "uid", narrow)
	strange := newSecret("ns", "west", "uid", narrow)
	strange.Annotations[kubeconfig.RolesAnnotation] = "ats,jobs"
	for name, c := range map[string]struct {
		wish  Wish
		own   *corev1.Secret
		want  Access
		fails string
	}{
		"a new cluster":       {want: everywhere},
		"made by hand":        {own: &corev1.Secret{}, want: everywhere},
		"nothing is said":     {own: added, want: narrow},
		"other namespaces":    {Wish{Namespaces: []string{"a"}}, added, Access{narrow.Roles, []string{"a"}}, ""},
		"all namespaces":      {Wish{Namespaces: []string{AllNamespaces}}, added, Access{narrow.Roles, nil}, ""},
		"another role":        {Wish{Roles: []Role{Ats}}, added, Access{[]Role{Ats}, narrow.Namespaces}, ""},
		"both":                {Wish{[]Role{Ats}, []string{AllNamespaces}}, added, everywhere, ""},
		"a role of the later": {own: strange, fails: `annotation tenure.dev/cluster-roles is "ats,jobs"`},
		"another for that":    {Wish{Roles: []Role{Ats}}, strange, Access{[]Role{Ats}, narrow.Namespaces}, ""},
	} {
		got, err := c.wish.of(c.own)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want %s", name, err, c.fails)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if said := c.wish.keptNote(got); (said != "") != (name == "nothing is said" || name == "other namespaces" ||
			name == "all namespaces" || name == "another role" || name == "another for that") {
			t.Errorf("%s: the report says %q", name, said)
		}
	}
	const want = "the cluster is now for ats, in namespace default; a flag that you leave out keeps its earlier value"
	if got := (Wish{}).keptNote(Access{[]Role{Ats}, []string{"default"}}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// asServed is an object as an API server shows it, with defaults and fields of its own.
func asServed(o *unstructured.Unstructured, made bool) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetUID("u")
	o.SetResourceVersion("7")
	o.SetAnnotations(with(o.GetAnnotations(), map[string]string{"somebodys": "own"}))
	if made {
		mark(o)
	}
	o.Object["status"] = map[string]any{"observedGeneration": int64(1)}
	spec, _ := o.Object["spec"].(map[string]any)
	switch o.GetKind() {
	case kindNamespace:
		o.Object["spec"] = map[string]any{"finalizers": []any{"kubernetes"}}
	case kindAccount:
		o.Object["imagePullSecrets"] = []any{map[string]any{"name": "registry"}} // a platform adds it
	case kindCRD:
		spec["conversion"] = map[string]any{"strategy": "None"}
	case kindPolicy:
		match := spec["matchConstraints"].(map[string]any)
		match["matchPolicy"] = "Equivalent"
		for _, selector := range []string{"namespaceSelector", "objectSelector"} {
			if match[selector] == nil {
				match[selector] = map[string]any{}
			}
		}
		for _, rule := range match["resourceRules"].([]any) {
			rule.(map[string]any)["scope"] = "*"
		}
	}
	return o
}

func TestANamespaceThatIsMissingIsBlamedOnWhatNamesIt(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "jobs"}}).Build()
	own := newSecret("ns", "west", "uid", Access{[]Role{Ats}, []string{"jobs", "gone"}})
	for name, tt := range map[string]struct {
		wish Wish
		own  *corev1.Secret
		want string // "" for no error
	}{
		"the Secret of before": {Wish{}, own, "Secret ns/west: annotation " + namespacesAnnotation + " names gone, and " +
			"the cluster has no such namespace any more: create it, or say by --namespaces where the fleet may write"},
		"the flag": {Wish{Namespaces: []string{"gone"}}, own,
			"--namespaces gone: the cluster has no such namespace: create it, or leave it out"},
		"nothing":           {Wish{Namespaces: []string{"jobs"}}, own, ""},
		"nothing, at first": {Wish{}, nil, ""},
	} {
		access, err := tt.wish.of(tt.own)
		must.Succeed(t, err)
		got := ""
		missing, err := missingNamespace(t.Context(), c, access.Namespaces)
		must.Succeed(t, err)
		if missing != "" {
			got = tt.wish.namespaceMissing(missing, tt.own).Error()
		}
		expect.Equal(t, name, tt.want, got)
	}
}

func TestWhatIsThereDecidesWhatIsDone(t *testing.T) {
	want := objectsOf(t, Access{[]Role{Ats}, []string{"a"}})
	served := func(made bool, objects []*unstructured.Unstructured,
		change func(o *unstructured.Unstructured)) (all []*unstructured.Unstructured) {
		for _, o := range objects {
			o = asServed(o, made)
			if change != nil {
				change(o)
			}
			all = append(all, o)
		}
		return all
	}
	lessRights := func(o *unstructured.Unstructured) {
		if o.GetName() == "tenure-ats-run" && o.GetKind() == kindClusterRole {
			rules := o.Object["rules"].([]any)
			o.Object["rules"] = rules[1:]
		}
	}
	lessAsked := func(o *unstructured.Unstructured) {
		if o.GetName() == "tenure-at-status" && o.GetKind() == kindPolicy {
			delete(o.Object["spec"].(map[string]any), "variables")
		}
	}
	alsoReplica := func(o *unstructured.Unstructured) {
		if subjects, ok := o.Object["subjects"].([]any); ok {
			o.Object["subjects"] = append(subjects, map[string]any{"kind": "User", "name": "replica@elsewhere"})
		}
		if fleet := fleetVariable(o); fleet != nil {
			fleet["expression"] = `["system:serviceaccount:tenure-system:tenure", 'replica@elsewhere']`
		}
	}
	anotherReplica := func(o *unstructured.Unstructured) {
		if fleet := fleetVariable(o); fleet != nil {
			fleet["expression"] = "['replica@elsewhere']"
		}
	}
	wide := objectsOf(t, Access{[]Role{Ats, Deployments}, nil})
	n := len(want)
	for name, c := range map[string]struct {
		live []*unstructured.Unstructured
		want map[action]int
	}{
		"nothing":                             {nil, map[action]int{created: n}},
		"all of it, by this":                  {served(true, want, nil), map[action]int{unchanged: n}},
		"all of it, by kubectl":               {served(false, want, nil), map[action]int{unchanged: n}},
		"a role that lost a rule, by this":    {served(true, want, lessRights), map[action]int{unchanged: n - 1, updated: 1}},
		"a policy without variables, by this": {served(true, want, lessAsked), map[action]int{unchanged: n - 1, updated: 1}},
		"a user was added to ours, by this":   {served(true, want, alsoReplica), map[action]int{unchanged: n}},
		"ours was replaced, by this": {served(true, want, anotherReplica),
			map[action]int{unchanged: n - 2, updated: 2}},
		"more than wanted, by this": {served(true, wide, nil),
			map[action]int{unchanged: n - 1, created: 1, deleted: 5}},
		// The three bindings of all namespaces; roles without binding give nothing.
		"more than wanted, by kubectl": {served(false, wide, nil), map[action]int{unchanged: n - 1, created: 1, left: 3}},
	} {
		steps, err := decide(c.live, want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := map[action]int{}
		for _, s := range steps {
			got[s.Action]++
			if made := s.Object.GetLabels()[madeByLabel] == madeBy; made != (s.Action == created ||
				strings.HasSuffix(name, "this") || s.Action == updated) {
				t.Errorf("%s: %s %s: label says made by us: %v", name, s.Action, idOf(s.Object), made)
			}
			if s.Action == deleted && holds(s.Object) {
				t.Errorf("%s: deletes %s", name, idOf(s.Object))
			}
		}
		expect.Equal(t, name, c.want, got)
	}
}

// Fewer rights, or a policy that is asked less often: neither lacks anything that the manifests have.
func TestWhatSomebodyAddedToAnObjectIsTakenAway(t *testing.T) {
	want := objectsOf(t, Access{Roles: Roles})
	text := func(s ...string) (all []any) {
		for _, s := range s {
			all = append(all, s)
		}
		return all
	}
	never := []any{map[string]any{"name": "never", "expression": "false"}}
	for what, c := range map[string]struct {
		kind string
		add  func(o map[string]any)
	}{
		"names": {kindClusterRole, func(o map[string]any) {
			o["rules"].([]any)[0].(map[string]any)["resourceNames"] = text("one")
		}},
		"rules of other roles": {kindClusterRole, func(o map[string]any) {
			o["aggregationRule"] = map[string]any{"clusterRoleSelectors": []any{map[string]any{}}}
		}},
		"conditions":  {kindPolicy, func(o map[string]any) { o["spec"].(map[string]any)["matchConditions"] = never }},
		"not to fail": {kindPolicy, func(o map[string]any) { o["spec"].(map[string]any)["failurePolicy"] = "Ignore" }},
		"exceptions": {kindPolicy, func(o map[string]any) {
			match := o["spec"].(map[string]any)["matchConstraints"].(map[string]any)
			match["excludeResourceRules"] = match["resourceRules"]
		}},
		"no subresources": {kindPolicy, func(o map[string]any) {
			match := o["spec"].(map[string]any)["matchConstraints"].(map[string]any)
			match["resourceRules"].([]any)[0].(map[string]any)["scope"] = "Cluster"
		}},
		"parameters": {kindPolicyBinding, func(o map[string]any) {
			o["spec"].(map[string]any)["paramRef"] = map[string]any{"name": "none", "parameterNotFoundAction": "Allow"}
		}},
		"a schema": {kindCRD, func(o map[string]any) { o["spec"].(map[string]any)["preserveUnknownFields"] = true }},
	} {
		var there []client.Object
		var changed, meant *unstructured.Unstructured
		for _, w := range want {
			o := asServed(w, true)
			if o.GetKind() == c.kind && changed == nil {
				o.SetLabels(with(o.GetLabels(), map[string]string{"somebodys": "own"}))
				changed, meant = o, o.DeepCopy()
				maps.Copy(meant.Object, w.DeepCopy().Object) // the fake API server gives no defaults
				meant.Object["metadata"] = o.DeepCopy().Object["metadata"]
				c.add(o.Object)
			}
			there = append(there, o)
		}
		cluster := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(there...).Build()
		for _, updates := range []int{1, 0} {
			found, err := readLive(t.Context(), cluster, want)
			must.Succeed(t, err)
			steps, err := decide(found, want)
			must.Succeed(t, err)
			made, err := carryOut(t.Context(), cluster, steps)
			must.Succeed(t, err)
			made = slices.DeleteFunc(made, func(s step) bool { return s.Action == unchanged })
			if len(made) != updates {
				t.Errorf("%s: %d objects were changed, want %d", what, len(made), updates)
			}
		}
		must.Succeed(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(changed), changed))
		changed.SetResourceVersion(meant.GetResourceVersion())
		expect.Equal(t, what, meant.Object, changed.Object)
	}
}

func TestARoleBindingThatSomebodyElseMadeIsFoundAndTold(t *testing.T) {
	var live []*unstructured.Unstructured
	found := 0
	for _, o := range objectsOf(t, Access{[]Role{Ats}, []string{"a", "b"}}) {
		o = asServed(o, false)
		if live = append(live, o); o.GetKind() == kindBinding && givesRights(o) {
			found++
			o.Object["subjects"].([]any)[0].(map[string]any)["name"] = "somebody"
			if givesRights(o) {
				t.Errorf("%s gives the fleet rights, and is for somebody else", idOf(o))
			}
			o.Object["subjects"].([]any)[0].(map[string]any)["name"] = accountName
		}
	}
	if found != 2 {
		t.Errorf("%d bindings give the fleet rights in a namespace, want one in each of two", found)
	}
	for about, c := range map[string]struct {
		namespaces []string
		left       int
	}{"one of them": {[]string{"a"}, 1}, "both": {[]string{"a", "b"}, 0}, "all": {nil, 0}} {
		steps, err := decide(live, objectsOf(t, Access{[]Role{Ats}, c.namespaces}))
		must.Succeed(t, err)
		left := slices.DeleteFunc(steps, func(s step) bool { return s.Action != left })
		if len(left) != c.left {
			t.Errorf("with rights in %s: %d bindings are told to be left, want %d", about, len(left), c.left)
		}
	}
}

// A binding of a former name would go on to give rights everywhere after they were narrowed to a namespace.
func TestWhatAnotherVersionMadeUnderAnotherNameIsFoundAndDeleted(t *testing.T) {
	var there []client.Object
	want := objectsOf(t, Access{Roles, []string{"jobs"}})
	former := map[id]bool{} // those that are ours
	for _, o := range append(objectsOf(t, Access{Roles: Roles}), want...) {
		there = append(there, asServed(o, true))
		if holds(o) {
			continue
		}
		for name, ours := range map[string]bool{"former-": true, "strange-": false} {
			o := asServed(o, ours)
			o.SetName(name + o.GetName())
			there = append(there, o)
			former[idOf(o)] = ours
		}
	}
	byID := map[id]client.Object{} // what all namespaces and one have in common is there twice
	for _, o := range there {
		byID[idOf(o.(*unstructured.Unstructured))] = o
	}
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(
		slices.Collect(maps.Values(byID))...).Build()
	found, err := readLive(t.Context(), c, want)
	must.Succeed(t, err)
	narrowed, err := decide(found, want)
	must.Succeed(t, err)
	for about, steps := range map[string][]step{
		"narrowed": narrowed,
		"removed":  decideRemoval(found, func(*unstructured.Unstructured) string { return "" }),
	} {
		done := map[id]action{}
		for _, s := range steps {
			done[idOf(s.Object)] = s.Action
		}
		for o, ours := range former {
			if want := map[bool]action{true: deleted}[ours]; done[o] != want {
				t.Errorf("%s: %s becomes %q, want %q", about, o, done[o], want)
			}
		}
	}
}

func TestABindingToAnotherRoleIsRefused(t *testing.T) {
	want := objectsOf(t, everywhere)
	live := asServed(want[slices.IndexFunc(want, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kindClusterBinding
	})], false)
	live.Object["roleRef"].(map[string]any)["name"] = "cluster-admin"
	_, err := decide([]*unstructured.Unstructured{live}, want)
	if err == nil || !strings.Contains(err.Error(), "ClusterRoleBinding tenure-ats-") ||
		!strings.Contains(err.Error(), "roleRef is map[") ||
		!strings.Contains(err.Error(), "delete the binding") {
		t.Errorf("%v", err)
	}
}

func TestRemovalDeletesOnlyWhatWasMadeHereAndNoAPI(t *testing.T) {
	var live []*unstructured.Unstructured
	for i, o := range objectsOf(t, everywhere) {
		live = append(live, asServed(o, i%4 != 3))
	}
	steps := decideRemoval(live, func(o *unstructured.Unstructured) string {
		return map[bool]string{true: "in use"}[o.GetKind() == kindNamespace]
	})
	for i, s := range steps {
		stays := !ours(s.Object) || s.Object.GetKind() == kindCRD || s.Object.GetKind() == kindNamespace
		if (s.Action == left) != stays || stays == (s.Note == "") {
			t.Errorf("%s: %s, %q", idOf(s.Object), s.Action, s.Note)
		}
		if i == 0 && s.Object.GetKind() != kindAccount || i == len(steps)-1 && s.Object.GetKind() != kindNamespace {
			t.Errorf("%s is step %d", idOf(s.Object), i)
		}
	}
	if len(steps) != len(live) {
		t.Errorf("%d steps for %d objects", len(steps), len(live))
	}
}

func TestTokensOfAnAccountThatIsLeftAreToldOfUnlessTheReplicasRunWithIt(t *testing.T) {
	for name, c := range map[string]struct {
		ours   bool
		stays  string
		tokens bool
	}{
		"made here": {true, "", false}, "made by kubectl": {false, "", true},
		"at home": {false, "the replicas run with it", false},
	} {
		var live []*unstructured.Unstructured
		for _, o := range objectsOf(t, everywhere) {
			live = append(live, asServed(o, c.ours))
		}
		keep := func(*unstructured.Unstructured) string { return c.stays }
		if got := leavesTokens(decideRemoval(live, keep), keep); got != c.tokens {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// tokenFrom looks like a token of a service account.
func tokenFrom(issued, expires time.Time) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, issued.Unix(), expires.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
}

// give puts a kubeconfig with this token into a cluster's Secret, as add does.
func give(t *testing.T, s *corev1.Secret, target target, token string) {
	t.Helper()
	text, err := target.kubeconfig(s.Name, token)
	must.Succeed(t, err)
	fill(s, text, true)
}

// holding is what is known of a cluster by its own Secret, nil if there is none.
func holding(own *corev1.Secret) clusterSecrets {
	if own == nil {
		return clusterSecrets{}
	}
	return clusterSecrets{Own: own, Held: Hold(own)}
}

// secretOf is the Secret of a cluster as add writes it, changed.
func secretOf(t *testing.T, name string, target target, expires time.Time,
	changes ...func(*corev1.Secret)) *corev1.Secret {
	t.Helper()
	s := newSecret("ns", name, target.UID, everywhere)
	give(t, s, target, tokenFrom(now.Add(-time.Hour), expires))
	for _, change := range changes {
		change(s)
	}
	return s
}

func byHand(s *corev1.Secret)   { s.Annotations = nil }
func unsummed(s *corev1.Secret) { delete(s.Annotations, SumAnnotation) }
func emptied(s *corev1.Secret)  { s.Data = nil }

// An admin may come through a tunnel, and the Secret hold what --server said when the cluster was added.
func TestReplicasGoOnReachingAClusterAsBefore(t *testing.T) {
	later := now.Add(time.Hour)
	tunnel := target{Server: "https://127.0.0.1:6443", UID: west.UID}
	for name, c := range map[string]struct {
		own  *corev1.Secret
		want target
	}{
		"a new cluster":         {nil, tunnel},
		"another way":           {secretOf(t, "west", west, later), west},
		"the same way":          {secretOf(t, "west", tunnel, later), tunnel},
		"which one isn't known": {secretOf(t, "west", west, later, byHand), tunnel},
		"another cluster":       {secretOf(t, "west", target{Server: west.Server, UID: "u"}, later), tunnel},
		"nothing can be read":   {secretOf(t, "west", west, later, emptied), tunnel},
		"it leads to another":   {secretOf(t, "west", west, later), tunnel},
		"it leads to this one":  {secretOf(t, "west", west, later, byHand), west},
	} {
		uid := map[string]string{"it leads to another": "uid-east", "it leads to this one": west.UID}[name]
		k := holding(c.own)
		k.UID = uid
		got, err := tunnel.asBefore(k, nil)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		proxied, err := tunnel.asBefore(k, &adminsOnly{"through a proxy"})
		if want := name == "another way" || name == "the same way" || uid == west.UID; (err == nil) != want ||
			want && proxied.Server != c.want.Server {
			t.Errorf("%s, through a proxy: %+v, %v", name, proxied, err)
		}
	}
}

// throughProxy puts in a kubeconfig that replicas use with --kubeconfig-allow=proxy.
func throughProxy(s *corev1.Secret) {
	s.Data[kubeconfig.Key] = bytes.Replace(s.Data[kubeconfig.Key], []byte("    server:"),
		[]byte("    proxy-url: http://proxy:3128\n    server:"), 1)
}

func TestAFleetThatCannotBeReadIsNeitherDeadNorHolding(t *testing.T) {
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden"}`))
	}))
	defer home.Close()
	o := Onboarder{Home: &rest.Config{Host: home.URL}, Namespace: "ns", Name: "west"}
	reader, err := o.home()
	must.Succeed(t, err)
	began := time.Now()
	_, err = o.awaitService(t.Context(), reader, time.Minute, intent{})
	if err == nil || strings.Contains(err.Error(), "is alive") || !strings.Contains(err.Error(), "isn't known") {
		t.Errorf("serving: %v", err)
	}
	_, err = o.awaitRelease(t.Context(), reader, time.Minute, true)
	if err == nil || strings.Contains(err.Error(), "is deleted") || !strings.Contains(err.Error(), "isn't known") {
		t.Errorf("letting go: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v to learn that it may not look", took)
	}
}

// fixed has nobody change what a Secret holds.
func fixed(s *corev1.Secret) { s.Immutable = new(true) }

// dying has a Secret being deleted, which a finalizer holds.
func dying(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }

func TestASecretIsKeptRenewedOrRefused(t *testing.T) {
	later := now.Add(24 * time.Hour)
	moved := target{Server: "https://new.example.com", UID: west.UID}
	east := target{Server: "https://east.example.com", UID: "uid-east"}
	mine, more := secretOf(t, "west", west, later), Access{Roles: []Role{Ats, Deployments}}
	update, renew := verdict{Action: updated}, verdict{Action: updated, NewToken: true}
	for name, c := range map[string]struct {
		own, other *corev1.Secret
		reason     string
		uid        string // of the cluster that it leads to
		target     target
		access     Access
		want       verdict // without its reason
		why        string
		refusal    []string
	}{
		"none":                           {want: verdict{Action: created, NewToken: true}},
		"the same":                       {own: mine, want: verdict{Action: unchanged}},
		"made by hand":                   {own: secretOf(t, "west", west, later, byHand), want: update, why: "what it says"},
		"another role":                   {own: mine, access: more, want: update},
		"expired":                        {own: secretOf(t, "west", west, now), want: renew, why: "expired at 2026-11-23"},
		"put there by hand, and expired": {own: secretOf(t, "west", west, now, unsummed), want: renew, why: "expired at"},
		"put there by hand, another address": {own: secretOf(t, "west", west, later, unsummed), target: moved,
			want: update, why: "the way"},
		"refused by its API server": {own: mine, reason: clusterhealth.ReasonRefused, want: renew, why: "are refused"},
		"broken, but ours": {own: secretOf(t, "west", west, later, emptied), want: renew,
			why: "replicas don't use what it holds"},
		"with what only replicas may do": {own: secretOf(t, "west", west, later, throughProxy),
			want: verdict{Action: unchanged}, why: "proxy-url isn't allowed"},
		"with what only replicas may do, and another role": {own: secretOf(t, "west", west, later, throughProxy),
			access: more, want: update, why: "the kubeconfig in it stays"},
		"another address": {own: mine, target: moved, want: update, why: "the way"},
		"its credentials lead elsewhere": {own: mine, uid: "uid-east", want: renew,
			why: "it leads to another cluster: the UID of its namespace kube-system is uid-east, not uid-west"},
		"with what only replicas may do, elsewhere": {own: secretOf(t, "west", west, later, throughProxy),
			uid: "uid-east", want: renew, why: "it leads to another cluster"},
		"made by hand, and its credentials lead elsewhere": {own: secretOf(t, "west", west, later, byHand), uid: "uid-east",
			reason:  clusterhealth.ReasonUsable,
			refusal: []string{"the UID of namespace kube-system where it leads is uid-east", "has uid-west"}},
		"made by hand, by another address": {own: secretOf(t, "west", moved, later, byHand), uid: west.UID,
			reason: clusterhealth.ReasonUsable, want: update, why: "the way"},
		"made by hand, and replicas still go by a cluster that was there": {uid: "uid-old",
			own: secretOf(t, "west", west, later, byHand), reason: clusterhealth.ReasonRefused, want: renew,
			why: "it leads to another cluster"},
		"another cluster": {own: secretOf(t, "west", east, later),
			refusal: []string{"Secret ns/west: annotation tenure.dev/cluster-uid is uid-east", "has uid-west",
				"choose another NAME", "cluster remove west"}},
		"another cluster at the same address": {own: secretOf(t, "west", target{Server: west.Server, UID: "uid-old"}, later),
			refusal: []string{"uid-old", "has uid-west"}},
		"another cluster, made by hand": {own: secretOf(t, "west", east, later, byHand),
			refusal: []string{"clusters[].cluster.server is https://east.example.com, not https://west.example.com:6443",
				"choose another NAME"}},
		"broken, made by hand": {own: secretOf(t, "west", west, later, byHand, emptied),
			refusal: []string{"doesn't say which cluster it is of", "choose another NAME"}},
		"being deleted": {own: secretOf(t, "west", west, later, dying),
			refusal: []string{"Secret ns/west is being deleted", "cluster add west"}},
		"not a cluster's": {own: secretOf(t, "west", west, later, func(s *corev1.Secret) { s.Labels = nil }),
			refusal: []string{"label " + kubeconfig.Label + ` is ""`, "delete it"}},
		"known under another name": {other: secretOf(t, "occident", west, later),
			refusal: []string{"Secret ns/occident: annotation tenure.dev/cluster-uid is uid-west", "worked on twice",
				"use the name occident"}},
		"known under another name, made by hand": {other: secretOf(t, "occident", west, later, byHand),
			refusal: []string{"Secret ns/occident: clusters[].cluster.server is https://west"}},
		"beside another": {other: secretOf(t, "east", east, later), want: verdict{Action: created, NewToken: true}},
	} {
		t.Run(name, func(t *testing.T) {
			k := holding(c.own)
			k.Reason, k.Note, k.UID = c.reason, "no", c.uid
			if c.other != nil {
				k.Others = []corev1.Secret{*c.other}
			}
			if c.target.UID == "" {
				c.target = west
			}
			if c.access.Roles == nil {
				c.access = everywhere
			}
			got, err := judgeSecret("ns", "west", c.target, c.access, k, now)
			for _, want := range c.refusal {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("refusal doesn't say %q: %v", want, err)
				}
			}
			if c.refusal != nil {
				return
			}
			if !strings.Contains(got.Why, c.why) {
				t.Errorf("why: %q, want %q", got.Why, c.why)
			}
			got.Why = ""
			if err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestATokenOfAServiceAccountThatIsMadeAnewIsReplaced(t *testing.T) {
	account := &unstructured.Unstructured{Object: map[string]any{"kind": kindAccount}}
	anew, there := []step{{account, created, ""}}, []step{{account, unchanged, ""}}
	for name, c := range map[string]struct {
		own   *corev1.Secret
		steps []step
		want  bool
	}{
		"made anew":                            {secretOf(t, "west", west, now), anew, true},
		"there":                                {secretOf(t, "west", west, now), there, false},
		"made anew, but the token isn't of it": {secretOf(t, "west", west, now, byHand), anew, false},
		"no Secret":                            {nil, anew, false},
	} {
		was := verdict{Action: unchanged}
		if got := was.after(c.steps, c.own); got.NewToken != c.want || (got == was) == c.want {
			t.Errorf("%s: %+v, new token wanted: %v", name, got, c.want)
		}
	}
}

func TestReplicasRefuseATemplateAndNameTheField(t *testing.T) {
	s, err := template("ns", "west", west, everywhere)
	must.Succeed(t, err)
	_, err = kubeconfig.Inspect([]byte(s.StringData[kubeconfig.Key]), kubeconfig.Policy{})
	if refused := (&kubeconfig.Refused{}); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "users[].user.token") {
		t.Errorf("a template reads as %v", err)
	}
}

func TestAnAdminsConnectionThatReplicasCantUseIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	for name, c := range map[string]struct {
		config *rest.Config
		server string
		want   string
	}{
		"unverified": {&rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "",
			"insecure-skip-tls-verify"},
		"without TLS": {&rest.Config{Host: "http://a"}, "", "clusters[].cluster.server"},
		"no address":  {&rest.Config{Host: "https://a"}, "west", "clusters[].cluster.server isn't an address"},
		"by a proxy":  {&rest.Config{Host: "https://a", Proxy: http.ProxyFromEnvironment}, "", "proxy-url is set"},
		"no file": {&rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAFile: "/no/such"}}, "",
			"/no/such"},
	} {
		if _, err := targetOf(c.config, c.server); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	got, err := targetOf(&rest.Config{Host: "https://a/", BearerToken: "secret"}, "https://b:1/")
	if err != nil || got.Server != "https://b:1" {
		t.Errorf("%+v, %v", got, err)
	}
}

// homeWith is a home cluster with these objects.
func homeWith(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(clientgoscheme.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)))
	kind := func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }
	return fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.Event{}, "involvedObject.kind", kind).
		WithObjects(objects...).Build()
}

// leaseOf is that of incarnation r0-a, in namespace ns.
func leaseOf(duration string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r0-a",
			Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember,
				tenurev1alpha1.ReplicaLabel: "r0"},
			Annotations: map[string]string{tenurev1alpha1.LeaseDurationAnnotation: duration}},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// recordOf is that of the only shard of west.
func recordOf(holder string) *tenurev1alpha1.Shard {
	id := keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(0)[0]}
	return &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: id.RecordName("")},
		Spec:   tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: id.Prefix.String()},
		Status: tenurev1alpha1.ShardStatus{Holder: holder, Epoch: 1, Phase: tenurev1alpha1.ShardHeld}}
}

// layoutOf is a record that says which cluster has this name.
func layoutOf(name, uid string) tenurev1alpha1.Shard {
	return tenurev1alpha1.Shard{Spec: tenurev1alpha1.ShardSpec{Cluster: name,
		Layout: &tenurev1alpha1.ShardLayout{ClusterUID: uid}}}
}

// fleetOf has two live replicas, a quiet one, and shards of west with the given holders.
func fleetOf(t *testing.T, holders ...string) console.Fleet {
	t.Helper()
	f := console.Fleet{Namespace: "ns", Totals: console.Totals{Replicas: 2}, Replicas: []console.Replica{
		{Incarnation: "r1", State: console.Live, Coordinator: true}, {Incarnation: "r2", State: console.Live},
		{Incarnation: "r3", State: console.Quiet},
	}}
	for i, holder := range holders {
		prefix, err := keyspace.ParsePrefix(fmt.Sprintf("%02b", i))
		must.Succeed(t, err)
		f.Shards = append(f.Shards, console.Shard{
			ID: keyspace.ShardID{Cluster: "west", Prefix: prefix}, Cluster: "west", Holder: protocol.Incarnation(holder),
			Served: holder == "r1" || holder == "r2",
		})
	}
	return f
}

func TestAClusterIsServedWhenItsShardsCoverItAndLiveReplicasHoldThem(t *testing.T) {
	for _, c := range []struct {
		holders  []string
		complete bool
		taken    int
		says     string
		obstacle string
	}{
		{[]string{"r1", "r2", "r1", "r2"}, true, 4, "4 of 4 held by 2 of 2 replicas", ""},
		{[]string{"r1", "r1", "r1"}, false, 3, "3 of 3 held by 1 of 2 replicas", ""}, // a quarter has no record
		{[]string{"r1", "", "r3", "r2"}, false, 3, "2 of 4 held by 2 of 2 replicas",
			"not served: west/01, west/10: see whether replicas reach its server"},
		{[]string{"", "", "", ""}, false, 0, "0 of 4 held by nobody", "a replica says Unreachable: no route"},
		{nil, false, 0, "not divided into shards", "the coordinator hasn't divided the cluster"},
	} {
		f := fleetOf(t, c.holders...)
		s := serving(f, "west")
		if s.Complete != c.complete || s.Taken != c.taken || s.String() != c.says {
			t.Errorf("%q: %+v, %s", c.holders, s, s)
		}
		told := []console.Answer{{Cluster: "west", Reason: clusterhealth.ReasonUnreachable, Note: "no route"},
			{Cluster: "east", Reason: "x"}}
		if got := obstacle(f, "west", told); !strings.Contains(got, c.obstacle) {
			t.Errorf("%q: obstacle %q, want %q", c.holders, got, c.obstacle)
		}
	}
	f := fleetOf(t, "r1", "r1", "r1", "r1")
	f.Replicas[1].Unfit, f.Replicas[2].Unfit = "north,west", "west"
	if got := serving(f, "west"); !got.Complete ||
		got.String() != "4 of 4 held by 1 of 2 replicas; can't serve it, by their own word: r2" {
		t.Errorf("%s", got)
	}
	f.Replicas[0].Unfit = "west"
	if got := serving(f, "west"); got.Complete || !strings.Contains(obstacle(f, "west", nil), "not served: west/00") {
		t.Errorf("its only holder can't serve it: %+v, %s", got, obstacle(f, "west", nil))
	}
	f.Clusters = []console.Cluster{{Name: "east", State: protocol.ClusterLimited}, {Name: "west",
		State: protocol.ClusterOpen, Cause: "throttling"}}
	if got := serving(f, "west"); !strings.HasSuffix(got.String(), "; nothing is served (throttling)") {
		t.Errorf("%s", got)
	}
	f.Replicas[0].Unfit, f.Clusters[1] = "", console.Cluster{Name: "west", Stuck: 4}
	if got := serving(f, "west"); got.Complete || strings.Contains(obstacle(f, "west", nil), "not served") ||
		!strings.HasSuffix(got.String(), "; the holders of 4 can't serve them now") {
		t.Errorf("%+v, %s", got, obstacle(f, "west", nil))
	}
	if got := serving(f, "east"); got.Trouble != "" {
		t.Errorf("limits count as %q", got.Trouble)
	}
	nobody := console.Fleet{Namespace: "ns"}
	if got := obstacle(nobody, "west", nil); !strings.Contains(got,
		"no replica is alive in namespace ns: kubectl -n ns get pods") {
		t.Error(got)
	}
}

func TestAClusterThatIsServedUnderAnotherNameIsFoundByItsLayout(t *testing.T) {
	layouts := []tenurev1alpha1.Shard{layoutOf("west", "w")}
	held, quiet, removed := []string{"r1", "r1", "r1", "r1"}, []string{"r3", "", "", ""}, []string{"", "", "", ""}
	for what, c := range map[string]struct {
		holders         []string
		name, uid, want string
	}{
		"served": {held, "north", "w", "west"}, "by one that may live": {quiet, "north", "w", "west"},
		"removed before": {removed, "north", "w", ""}, "its own name": {held, "west", "w", ""},
		"another cluster": {held, "north", "x", ""}, "unknown": {held, "north", "", ""},
	} {
		if got := servedAs(fleetOf(t, c.holders...), layouts, c.name, c.uid); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func TestAnExaminationNamesWhatIsWrongAndTheWayOut(t *testing.T) {
	says := func(clusters ...console.Cluster) func(*probe) {
		return func(p *probe) { p.Fleet.Clusters = clusters }
	}
	away := func(clusters ...console.Cluster) func(*probe) {
		return func(p *probe) {
			p.Reason, p.Note, p.Fleet.Clusters = clusterhealth.ReasonUnreachable, "no route", clusters
		}
	}
	onlyReplicas := func(p *probe) {
		p.Held, p.Reason = Hold(secretOf(t, "west", west, now.Add(500*time.Hour), throughProxy)), "BadKubeconfig"
	}
	good := probe{
		Name: "west", Now: now, Access: everywhere, Reason: clusterhealth.ReasonUsable, Asked: make([]Right, 10),
		Held: Hold(secretOf(t, "west", west, now.Add(500*time.Hour))), Fleet: fleetOf(t, "r1", "r1", "r2", "r2"),
	}
	for name, c := range map[string]struct {
		change func(*probe)
		want   string // "" for nothing wrong
	}{
		"all well": {func(*probe) {}, ""},
		"refused": {func(p *probe) {
			p.Held = Held{Refused: errors.New("users[].user.exec")}
			p.Reason = "BadKubeconfig"
		}, "kubeconfig: users[].user.exec"},
		"being removed": {func(p *probe) { p.hold(secretOf(t, "west", west, now.Add(500*time.Hour), dying)) },
			"removal: Secret ns/west is being deleted"},
		"only for replicas": {onlyReplicas, ""},
		"only for replicas, which refuse it": {func(p *probe) {
			onlyReplicas(p)
			p.Reported = []console.Answer{{Cluster: "west", Reason: clusterhealth.ReasonBadConfig,
				Note: "not here (said at 9:00)"}}
		}, "kubeconfig: a replica says BadKubeconfig: not here (said at 9:00)"},
		"refused by the flags of replicas": {
			says(console.Cluster{Name: "west", Reason: clusterhealth.ReasonBadConfig, Note: "not here"}),
			"kubeconfig: a replica says BadKubeconfig: not here"},
		"another cluster's is": {
			says(console.Cluster{Name: "east", Reason: clusterhealth.ReasonBadConfig, Note: "not here"}), ""},
		"served by the kubeconfig before": {
			says(console.Cluster{Name: "west", Shards: 4, Held: 4, Reason: clusterhealth.ReasonUnreachable, Note: "no route"}),
			"kubeconfig: a replica says Unreachable: no route"},
		"not asked from here": {says(console.Cluster{Name: "west", Reason: console.ReasonNotFromHere}), ""},
		"away":                {away(), "server: Unreachable: no route"},
		"away from here":      {away(console.Cluster{Name: "west", Shards: 4, Held: 4}), ""},
		"away, and from a replica, too": {func(p *probe) {
			away(console.Cluster{Name: "west", Shards: 4, Held: 4})(p)
			p.Reported = []console.Answer{{Cluster: "west", Reason: clusterhealth.ReasonUnreachable,
				Note: "none (said at 9:00)"}}
		}, "server: a replica says Unreachable: none (said at 9:00)"},
		"away, and served in part": {away(console.Cluster{Name: "west", Shards: 4, Held: 4, State: "open"}),
			"server: Unreachable: no route"},
		"away, and a replica can't serve it": {away(console.Cluster{Name: "west", Shards: 4, Held: 4, Unfit: true}),
			"server: Unreachable: no route"},
		"of another cluster": {func(p *probe) {
			p.Reason, p.Note, p.Astray = console.ReasonAnother, "leads to", true
			says(console.Cluster{Name: "west", Reason: console.ReasonAnother, Note: "leads to"})(p)
		}, "kubeconfig: AnotherCluster: leads to"},
		"another API": {func(p *probe) { p.API = errors.New("differs at .spec") }, "API of Ats: differs at .spec"},
		"fewer rights": {func(p *probe) { p.Missing = make([]Right, 2) },
			"rights: 2 of 10 are missing: tenure cluster add gives them"},
		"unknown": {func(p *probe) { p.Unasked = errors.New("no") }, "rights: couldn't be asked for: no"},
		"another fleet's home": {func(p *probe) { p.OthersHome = true },
			"home: the cluster is another fleet's home, and its token is of that fleet's service account: tenure cluster " +
				"remove west"},
		"expired": {func(p *probe) { p.Now = now.Add(600 * time.Hour) },
			"credentials: expired 2026-12-14 05:00 UTC: tenure cluster rotate west"},
		"expires soon": {func(p *probe) { p.Now = now.Add(430 * time.Hour) },
			"credentials: expires 2026-12-14 05:00 UTC, in 70h, and the fleet should have renewed them"},
		"unfit": {func(p *probe) { p.Fleet.Replicas[1].Unfit = "west" },
			"shards: of its shards 4 of 4 held by 2 of 2 replicas; can't serve it"},
		"not served": {func(p *probe) { p.Fleet = fleetOf(t, "r1", "", "", "") }, "shards: of its shards 1 of 4 held"},
	} {
		p := good
		p.Fleet.Replicas = slices.Clone(p.Fleet.Replicas)
		c.change(&p)
		e := examine(p)
		var wrong []string
		for _, f := range e.Findings {
			if !f.OK {
				wrong = append(wrong, f.Check+": "+f.Says)
			}
		}
		if e.OK != (c.want == "") || e.OK != (wrong == nil) || len(wrong) > 1 && name != "refused" ||
			!strings.HasPrefix(strings.Join(wrong, ""), c.want) {
			t.Errorf("%s: %v, %q, want %q", name, e.OK, wrong, c.want)
		}
	}
}

func TestASecretWithoutTheLabelIsReadByNobody(t *testing.T) {
	s := secretOf(t, "west", west, now.Add(500*time.Hour))
	if h := asReplicasRead(s); h.Refused != nil || h.Server != west.Server {
		t.Errorf("with the label: %v, server %s", h.Refused, h.Server)
	}
	delete(s.Labels, kubeconfig.Label)
	if err := asReplicasRead(s).Refused; err == nil ||
		!strings.Contains(err.Error(), "secret west "+kubeconfig.Label+"=true") {
		t.Errorf("without the label: %v", err)
	}
}

func TestWhatFailedIsNotReportedAsDone(t *testing.T) {
	steps, err := decide(nil, objectsOf(t, everywhere))
	must.Succeed(t, err)
	calls := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			if calls++; calls > 2 {
				return errors.New("forbidden")
			}
			return nil
		},
	})
	made, err := carryOut(t.Context(), c, steps)
	if err == nil || len(made) != 2 {
		t.Fatalf("%d steps, %v; want 2 and an error", len(made), err)
	}
	r := summarize("west", made)
	want := []Line{{"west", "namespace tenure-system", "1 created"}, {"west", "API of Ats", "1 created"}}
	if diff := cmp.Diff(want, r.Lines); diff != "" || !r.Changed {
		t.Errorf("changed %v (-want +got):\n%s", r.Changed, diff)
	}
}

func TestAClusterWithoutSecretIsTheFleetsIfItsLayoutSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		layouts []tenurev1alpha1.Shard
		uid     string
		want    bool
	}{
		"removed before":          {[]tenurev1alpha1.Shard{layoutOf("east", "e"), layoutOf("west", "w")}, "w", true},
		"never heard of":          {[]tenurev1alpha1.Shard{layoutOf("east", "e")}, "w", false},
		"served by another name":  {[]tenurev1alpha1.Shard{layoutOf("east", "w")}, "w", false},
		"another of that name":    {[]tenurev1alpha1.Shard{layoutOf("west", "old")}, "w", false},
		"which one isn't known":   {[]tenurev1alpha1.Shard{layoutOf("west", "")}, "", false},
		"a fleet without records": {nil, "w", false},
	} {
		if got := served(c.layouts, "west", c.uid); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// An account that is deleted while replicas still work with it leaves them without rights in the middle of that.
func TestNoClusterIsCleanedUpThatReplicasMayStillWorkIn(t *testing.T) {
	home := &rest.Config{Host: "https://127.0.0.1:1"} // nobody is there to be asked anything
	_, err := Onboarder{Home: home, Namespace: "ns", Name: "west", Workload: home}.Remove(t.Context(), 0)
	if usage := (&console.UsageError{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--wait 0") {
		t.Errorf("%v, want a UsageError about --wait", err)
	}
}

// An aggregated API that is away keeps nobody from taking the fleet's rights away; only the namespace stays.
func TestWhereItIsNotKnownWhatTheNamespaceHoldsTheAccountGoesAllTheSame(t *testing.T) {
	cluster := func(uid types.UID) client.Client {
		return fake.NewClientBuilder().WithObjects(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}).Build()
	}
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer away.Close()
	keep, err := Onboarder{Name: "west", Workload: &rest.Config{Host: away.URL}}.keeper(t.Context(), "home",
		cluster("west"))
	must.Succeed(t, err)
	for kind, want := range map[string]string{kindNamespace: "what else it holds isn't known: ", kindAccount: ""} {
		object := &unstructured.Unstructured{}
		object.SetKind(kind)
		if why := keep(object); !strings.HasPrefix(why, want) || want == "" && why != "" {
			t.Errorf("%s is kept since %q, want %q", kind, why, want)
		}
	}
}

// Fleets of one namespace read the same Secrets, so all must have let go before the account of the replicas is deleted.
func TestRemovalWaitsForEachFleetThatHoldsShardsOfTheCluster(t *testing.T) {
	var records []client.Object
	for i, r := range []struct{ fleet, cluster, holder string }{
		{"", "west", "a-1"}, {"blue", "west", "b-1"}, {"blue", "west", "b-2"}, {"green", "east", "c-1"}, {"red", "west", ""},
	} {
		s := &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i),
			Labels: map[string]string{tenurev1alpha1.FleetLabel: r.fleet}}}
		s.Spec.Cluster, s.Status.Holder = r.cluster, r.holder
		records = append(records, s)
	}
	home := homeWith(t, records...)
	got, err := Onboarder{Namespace: "ns", Name: "west"}.fleets(t.Context(), home)
	if diff := cmp.Diff([]keyspace.Fleet{"", "blue"}, got); diff != "" || err != nil {
		t.Errorf("%v (- want, + got):\n%s", err, diff)
	}
}

func TestAFleetWhoseLeasesLookOldIsWatchedBeforeItCountsAsDead(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	lease := leaseOf("10s", old)
	lease.Labels[tenurev1alpha1.FleetLabel] = "blue"
	home := homeWith(t, lease)
	o := Onboarder{Home: &rest.Config{}, Namespace: "ns", Fleet: "blue", Name: "west"}
	if alive, err := o.alive(t.Context(), home, 0); alive || err != nil {
		t.Errorf("without a wait: %v, %v", alive, err)
	}
	looks := 0
	renewed := interceptor.NewClient(home, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, leases := list.(*coordinationv1.LeaseList); leases {
				looks++
			}
			if looks == 2 {
				lease.Spec.RenewTime = &metav1.MicroTime{Time: old.Add(time.Second)}
				if err := c.Update(ctx, lease); err != nil {
					return err
				}
			}
			return c.List(ctx, list, opts...)
		},
	})
	if alive, err := o.alive(t.Context(), renewed, time.Minute); !alive || err != nil {
		t.Errorf("a fleet whose clock is an hour late: %v, %v", alive, err)
	}
}

func TestTheListNamesTheWorstOfEachCluster(t *testing.T) {
	f := fleetOf(t, "r1", "r1", "r2", "r2")
	f.Taken = now
	in := func(d time.Duration) *corev1.Secret { return secretOf(t, "west", west, now.Add(d)) }
	for _, c := range []struct {
		secret *corev1.Secret
		reason string
		want   string
	}{
		{in(500 * time.Hour), "", "served"}, {in(500 * time.Hour), clusterhealth.ReasonUnreachable,
			clusterhealth.ReasonUnreachable},
		{secretOf(t, "west", west, now.Add(500*time.Hour), throughProxy), "", "served"},
		{in(-time.Minute), "", "expired"}, {in(10 * time.Minute), "", "expires soon"},
		{secretOf(t, "north", west, now.Add(500*time.Hour)), "", "not served"},
		{secretOf(t, "west", west, now, emptied), "", clusterhealth.ReasonBadConfig},
		{secretOf(t, "west", west, now.Add(500*time.Hour), dying), "", "being removed"},
	} {
		f.Clusters = []console.Cluster{{Name: "west", Reason: c.reason}}
		got := entries(f, []corev1.Secret{*c.secret})
		if len(got) != 1 || got[0].State != c.want || got[0].OK != (c.want == "served") {
			t.Errorf("%+v, want %s", got, c.want)
		}
	}
}

func TestTheListSaysWhatCouldNotBeRead(t *testing.T) {
	f := fleetOf(t, "r1", "r1", "r2", "r2")
	f.Taken, f.Unread = now, []string{"events about clusters"}
	all := entries(f, []corev1.Secret{*secretOf(t, "west", west, now.Add(500*time.Hour))})
	var out strings.Builder
	must.Succeed(t, ShowEntries(&console.Screen{To: &out}, all, now))
	if encoded, err := json.Marshal(all); err != nil ||
		!strings.Contains(string(encoded), `"unread":["events about clusters"]`) ||
		!strings.HasSuffix(out.String(), "\n\nnot read: events about clusters\n") {
		t.Errorf("%s, %v\n%s", encoded, err, out.String())
	}
}

func TestNoTokenIsPutIntoASecretThatReplicasDoNotRead(t *testing.T) {
	o, unread := Onboarder{Name: "west", Namespace: "ns", Home: &rest.Config{}}, secretOf(t, "west", west, now)
	unread.Labels = nil
	frozen := secretOf(t, "west", west, now, fixed)
	for want, own := range map[string]*corev1.Secret{
		"": secretOf(t, "west", west, now), "no cluster is registered": nil, "so replicas don't read the Secret": unread,
		"Secret ns/west is being deleted": secretOf(t, "west", west, now, dying), "Secret ns/west is immutable": frozen,
	} {
		if err := o.rotatable(holding(own)); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestTheListSaysHowLongCredentialsAreGood(t *testing.T) {
	for left, want := range map[time.Duration]string{
		100 * time.Hour: "in 4d", 90*time.Minute + time.Second: "in 1h30m", 61 * time.Second: "in 1m",
		30 * time.Second: "in 30s", 0: "expired",
	} {
		expires := now.Add(left)
		var out strings.Builder
		must.Succeed(t, ShowEntries(&console.Screen{To: &out}, []Entry{{Name: "west", Expires: &expires}}, now))
		if !strings.Contains(out.String(), " "+want+" ") {
			t.Errorf("%v left: want %q\n%s", left, want, out.String())
		}
	}
}

func TestThePublishedSchemaIsComparedWithTheManifests(t *testing.T) {
	const schema = `{"components":{"schemas":{"info.programming-kubernetes.cnat.v1alpha1.At":{"properties":{"spec":%s,"status":%s}}}}}`
	objects := objectsOf(t, everywhere)
	if err := schemaDiffers(fmt.Appendf(nil, schema, "{}", "{}"), objects); err == nil ||
		!strings.Contains(err.Error(), "the cluster's At differs from this program's at .spec.properties") {
		t.Errorf("%v", err)
	}
	if err := schemaDiffers([]byte(`{`), objects); err == nil {
		t.Error("half a schema is accepted")
	}
	const status = "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/{namespace}/ats/{name}/status"
	for what, c := range map[string]struct {
		lacks, want string
		paths       map[string]any
	}{
		"as it is":                   {paths: map[string]any{status: map[string]any{}}},
		"rules of the whole object":  {lacks: "x-kubernetes-validations", want: "at .x-kubernetes-validations"},
		"fields to select by":        {lacks: "x-kubernetes-selectable-fields", want: "at .x-kubernetes-selectable-fields"},
		"the status's own endpoint":  {want: "at its subresource status, which isn't there"},
		"another kind's status only": {want: "at its subresource status", paths: map[string]any{"/x/cats/{name}/status": 0}},
	} {
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kindCRD })
		versions, _, err := unstructured.NestedSlice(objects[i].Object, "spec", "versions")
		must.Succeed(t, err)
		version := versions[0].(map[string]any)
		at, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		must.Succeed(t, err)
		at["x-kubernetes-selectable-fields"] = []any{map[string]any{"fieldPath": "status.phase"},
			map[string]any{"fieldPath": "status.over"}}
		delete(at, c.lacks)
		raw, err := json.Marshal(map[string]any{"paths": c.paths,
			"components": map[string]any{"schemas": map[string]any{"info.programming-kubernetes.cnat.v1alpha1.At": at}}})
		must.Succeed(t, err)
		if err := schemaDiffers(raw, objects); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), "differs from this program's "+c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

func TestTheLifeThatWasGrantedIsSaid(t *testing.T) {
	for _, c := range []struct {
		asked, got time.Duration
		text, note string
	}{
		{24 * time.Hour, 24*time.Hour - 2*time.Second, "expires 2026-11-24 08:59 UTC, in 24h", ""},
		{720 * time.Hour, time.Hour, "expires 2026-11-23 10:00 UTC, in 1h",
			"asked for a token for 720h, the API server granted 1h"},
	} {
		text, note := granted(c.asked, now.Add(c.got), now)
		if text != c.text || !strings.HasPrefix(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%q, %q, want %q, %q", text, note, c.text, c.note)
		}
	}
}

func TestATokenThatLivesLongerThanAskedIsSaidToStay(t *testing.T) {
	const stays = "its token stays, which was issued for 721h: tenure cluster rotate west --token-lifetime 24h0m0s"
	for name, c := range map[string]struct {
		lifetime time.Duration
		verdict  verdict
		changes  []func(*corev1.Secret)
		want     string
	}{
		"a shorter one is asked for": {24 * time.Hour, verdict{}, nil, stays},
		"the same one":               {721 * time.Hour, verdict{}, nil, ""},
		"there is a new one":         {24 * time.Hour, verdict{NewToken: true}, nil, ""},
		"somebody else's":            {24 * time.Hour, verdict{}, []func(*corev1.Secret){byHand}, ""},
	} {
		p := intent{access: everywhere, target: west, verdict: c.verdict,
			known: holding(secretOf(t, "west", west, now.Add(720*time.Hour), c.changes...))}
		got := strings.Join(p.notes(AddOptions{Lifetime: c.lifetime}, &rest.Config{Host: west.Server}), "\n")
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestARemovalSaysWhatIsLeft(t *testing.T) {
	lease := leaseOf("1h", time.Now())
	secret, strange := secretOf(t, "west", west, now), secretOf(t, "west", west, now)
	delete(strange.Labels, kubeconfig.Label)
	for name, c := range map[string]struct {
		there  []client.Object
		own    *corev1.Secret
		fleets []keyspace.Fleet
		want   []string
	}{
		"nothing was there": {nil, nil, []keyspace.Fleet{""},
			[]string{"Secret ns/west not there", "shards let go of, after "}},
		"it is let go of": {[]client.Object{secret, recordOf("")}, secret, []keyspace.Fleet{""},
			[]string{"Secret ns/west deleted", "shards let go of, after ", "1 Shard records left, held by nobody",
				"Shard records stay for their epochs, which go on if the cluster comes back"}},
		"it is held": {[]client.Object{secret, recordOf("r0-a"), lease}, secret, []keyspace.Fleet{""},
			[]string{"Secret ns/west deleted", "shards 1 of 1 held by 1 of 1 replicas",
				"replicas weren't waited for: they let go of these shards by themselves"}},
		"a fleet is dead": {nil, nil, []keyspace.Fleet{"", "blue"},
			[]string{"Secret ns/west not there", "shards let go of, after ",
				`shards of fleet "blue" weren't waited for: no replica of it renews its Lease`}},
		"it is no cluster's": {[]client.Object{strange}, strange, nil,
			[]string{"Secret ns/west: label " + kubeconfig.Label + ` is "", so it is no cluster's, and wasn't deleted`}},
	} {
		home := homeWith(t, c.there...)
		own := c.own
		if own != nil {
			own = &corev1.Secret{}
			must.Succeed(t, home.Get(t.Context(), client.ObjectKeyFromObject(c.own), own))
		}
		o, r := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west"}, Report{}
		err := o.deleteSecret(t.Context(), home, own, &r)
		if err == nil {
			err = o.awaitReleases(t.Context(), home, c.fleets, 0, &r)
		}
		var got []string
		for _, l := range r.Lines {
			got = append(got, l.What+" "+l.Done)
		}
		if got = append(got, r.Notes...); err != nil {
			got = append(got, err.Error())
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhoeverTakesARoleAwayIsToldWhichDeploymentsAreLeft(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	source := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "source",
		Finalizers: []string{replication.Finalizer}}}
	copied := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "copy",
		Annotations: map[string]string{replication.AnnotationSource: "home/default/copy"}}}
	other := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}
	there := homeWith(t, system(types.UID(west.UID)), source, copied, other)
	const ofCopy, ofSource = "copies of Deployments left: 1. Nobody keeps", "Deployments left that are copied to other " +
		"clusters: 1; they can't be deleted until the finalizer tenure.dev/replication is removed"
	for name, c := range map[string]struct {
		had  string
		gets []Role
		want []string
	}{
		"all stay":                {"ats,deployment-source,deployments", Roles, nil},
		"no more copies":          {"ats,deployment-source,deployments", []Role{Ats, DeploymentSource}, []string{ofCopy}},
		"no more sources":         {"deployment-source,deployments", []Role{Ats, Deployments}, []string{ofSource}},
		"it had none":             {"ats", []Role{Ats}, nil},
		"what it had isn't known": {"", []Role{Ats}, []string{ofCopy, ofSource}},
	} {
		o, home := behind(t, server, certs.Of(server), certs.Of(server))
		secret := &corev1.Secret{}
		must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
		secret.Annotations[kubeconfig.RolesAnnotation] = c.had
		must.Succeed(t, home.Update(t.Context(), secret))
		p, err := o.planAdd(t.Context(), home, there, AddOptions{Wish: Wish{Roles: c.gets}})
		must.Succeed(t, err)
		notes := p.notes(AddOptions{Wish: Wish{Roles: c.gets, Namespaces: []string{}}}, o.Workload)
		notes = slices.DeleteFunc(notes, func(n string) bool { return !strings.Contains(n, "Deployments left") })
		if !slices.EqualFunc(notes, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
	o := Onboarder{Name: "west"}
	notes := o.unmanaged(t.Context(), there, Roles)
	if !slices.EqualFunc(notes, []string{ofCopy, ofSource}, strings.HasPrefix) {
		t.Errorf("%q when the cluster is removed", notes)
	}
	for roles, want := range map[string]int{"": 2, "ats,deployments": 1, "deployment-source": 2} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			kubeconfig.RolesAnnotation: roles}}}
		if notes := o.untouched(secret); len(notes) != want {
			t.Errorf("a cluster for %q is removed without its kubeconfig: %q", roles, notes)
		}
	}
	if notes := o.untouched(nil); len(notes) != 1 {
		t.Errorf("without a Secret: %q", notes)
	}
}

func TestTheWaitForServiceReadsRecordsOnly(t *testing.T) {
	home := homeWith(t, leaseOf("1h", time.Now()), recordOf("r0-a"))
	o := Onboarder{Home: &rest.Config{Host: "127.0.0.1:1"}, Namespace: "ns", Name: "west"} // nothing else can be asked
	if s, err := o.awaitService(t.Context(), home, 0, intent{}); err != nil || !s.Complete {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAClusterOfAWrongNamespaceIsTakenBackWithoutItsKubeconfig(t *testing.T) {
	o := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west"}
	const want = "tenure cluster remove west --namespace ns, without --kubeconfig, takes it back"
	for alive, home := range map[bool]client.Client{false: homeWith(t), true: homeWith(t, leaseOf("1h", time.Now()))} {
		_, err := o.awaitService(t.Context(), home, 0, intent{})
		if err == nil || strings.HasSuffix(err.Error(), want) == alive {
			t.Errorf("a replica is alive: %v; %v", alive, err)
		}
	}
}

// Replicas that can't use a changed Secret go on with the connection from before, and say so in an event.
func TestAClusterThatIsServedByTheConnectionFromBeforeIsNotReportedAsAdded(t *testing.T) {
	own, other := secretOf(t, "west", west, now.Add(500*time.Hour)), west
	own.UID, other.Server = "u", "https://127.0.0.1:1"
	moved := intent{known: holding(own), target: other, verdict: verdict{Action: updated}}
	asBefore := intent{known: holding(own), target: west, verdict: verdict{Action: unchanged}}
	const never = time.Hour
	for name, c := range map[string]struct {
		p                  intent
		uid                types.UID     // of the Secret that is complained of
		version            string        // of it
		complains, settles time.Duration // when an event says so
		took               time.Duration
		fails              string
	}{
		"a new cluster, of a name that was removed": {intent{target: other, verdict: verdict{Action: created}}, "before", "2",
			0, never, 0, ""},
		"a new cluster, which is served without a Secret": {intent{target: other, taken: true}, "u", "2", time.Second, never,
			time.Minute, "a replica says Unreachable: no route"},
		"unchanged, of a name that was removed": {asBefore, "before", "2", 0, never, 0, ""},
		"unchanged, and still not used": {asBefore, "u", "2", 0, never, time.Minute,
			"a replica says Unreachable: no route"},
		"unchanged, and complained of by replicas that have gone": {asBefore, "u", "2", -5 * time.Minute, never, 0, ""},
		"changed since they complained of it":                     {asBefore, "u", "1", 0, never, 0, ""},
		"nobody complains":                                        {moved, "u", "2", never, never, judgedWithin, ""},
		"a new token": {intent{known: holding(own), target: west, verdict: verdict{Action: updated}}, "u", "2", never, never,
			0, ""},
		"another server, which isn't reached": {moved, "u", "2", time.Second, never, time.Minute,
			"a replica says Unreachable: no route"},
		"another server, which is reached later": {moved, "u", "2", time.Second, 30 * time.Second, 30 * time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := own.DeepCopy()
			now.ResourceVersion = "2"
			lease := leaseOf("1h", time.Now())
			lease.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
			home := homeWith(t, lease, recordOf("r0-a"), now)
			say := func(name string, after time.Duration, reason string) {
				time.Sleep(after)
				if err := home.Create(t.Context(), &corev1.Event{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
						CreationTimestamp: metav1.NewTime(time.Now().Add(min(after, 0)))},
					InvolvedObject: corev1.ObjectReference{Kind: "Secret", Name: "west", UID: c.uid, ResourceVersion: c.version},
					Reason:         reason, Message: "no route",
					ReportingController: clusterhealth.EventReporter,
				}); err != nil {
					t.Error(err)
				}
			}
			go say("bad", c.complains, clusterhealth.ReasonUnreachable)
			go say("good", c.settles, clusterhealth.ReasonUsable)
			synctest.Wait()
			o, began := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west"}, time.Now()
			_, err := o.awaitService(t.Context(), home, time.Minute, c.p)
			took := time.Since(began)
			time.Sleep(2 * never) // the events have been written then
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) ||
				took < c.took || took > c.took+2*pollMost {
				t.Errorf("%s: %v after %v, want %q after %v", name, err, took, c.fails, c.took)
			}
		})
	}
}

// The role of those who add clusters may lack it.
func TestANewClusterIsAddedWithoutTheRightToReadEvents(t *testing.T) {
	own := secretOf(t, "west", west, now)
	home := interceptor.NewClient(homeWith(t, leaseOf("1h", time.Now()), recordOf("r0-a"), own), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, events := list.(*corev1.EventList); events {
				return apierrors.NewForbidden(corev1.Resource("events"), "", nil)
			}
			return c.List(ctx, list, opts...)
		}})
	o := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west"}
	s, err := o.awaitService(t.Context(), home, time.Minute, intent{target: west, taken: true})
	if err != nil || !s.Complete || !strings.Contains(s.Doubt, "isn't known: events is forbidden") {
		t.Errorf("a new one: %+v, %v", s, err)
	}
	if _, err = o.awaitService(t.Context(), home, time.Minute, intent{known: holding(own), target: west}); err == nil {
		t.Error("one that had a Secret may be served by that one, and nobody can tell")
	}
}

func TestDurationsAreSaidInWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{2*time.Minute - 180*time.Nanosecond: "2m", 90 * time.Second: "1m30s",
		0: "0s", 720 * time.Hour: "720h", time.Hour - time.Second: "59m59s"} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// Replicas know a cluster for a while after its Secret is gone, and may take what nobody holds.
func TestAClusterIsLetGoOfWhenNoReplicaMayTakeItAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		deleted, alive bool
		least          time.Duration
	}{
		"its Secret was just deleted": {true, true, shard.DefaultRemovalGrace}, "it went before": {false, true, 0},
		"no replica is alive": {true, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			there := []client.Object{recordOf("")}
			if c.alive {
				there = append(there, leaseOf("1h", time.Now()))
			}
			o, began := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west"}, time.Now()
			s, err := o.awaitRelease(t.Context(), homeWith(t, there...), time.Minute, c.deleted)
			if took := time.Since(began); err != nil || s.Taken > 0 || took < c.least || took > c.least+2*pollMost {
				t.Errorf("%s: let go of after %v, want %v (%+v, %v)", name, took, c.least, s, err)
			}
		})
	}
}
