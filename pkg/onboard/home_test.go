package onboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// rightsAtHome are a Role and a RoleBinding by which a cluster is known as a fleet's home.
func rightsAtHome() []client.Object {
	meta := metav1.ObjectMeta{Namespace: accountNamespace, Name: homeRole}
	return []client.Object{&rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta}}
}

// barred is a client that may not get objects of that name.
func barred(c client.WithWatch, name string) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{Get: func(ctx context.Context, to client.WithWatch,
		key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == name {
			return apierrors.NewForbidden(schema.GroupResource{}, name, nil)
		}
		return to.Get(ctx, key, o, opts...)
	}})
}

func TestAHomeIsKnownByWhatIsInstalledThere(t *testing.T) {
	text, err := os.ReadFile("../../config/rbac/home_role.yaml")
	must.Succeed(t, err)
	found := map[string]bool{}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var o metav1.PartialObjectMetadata
		must.Succeed(t, yaml.Unmarshal([]byte(part), &o))
		found[o.Kind] = o.Namespace == accountNamespace && o.Name == homeRole
	}
	if !found[kindRole] || !found[kindBinding] {
		t.Errorf("of Role and RoleBinding %s, config/rbac has %v", homeRole, found)
	}
	for _, o := range objectsOf(t, Access{Roles: Roles}) {
		if o.GetName() == homeRole {
			t.Errorf("a workload cluster gets %s", idOf(o))
		}
	}
}

// The service account that would be deleted is the one with which the other fleet's replicas run.
func TestAnotherFleetsHomeIsNotCleanedUp(t *testing.T) {
	known := holding(secretOf(t, "west", west, now))
	o := Onboarder{Namespace: "ns", Name: "west", Workload: &rest.Config{Host: west.Server}}
	for _, sign := range rightsAtHome() {
		there := homeWith(t, system(types.UID(west.UID)), sign)
		clean := func(there client.Client, atHome string) error {
			return o.mayClean(t.Context(), homeWith(t), there, atHome, known, []tenurev1alpha1.Shard{layoutOf("west", west.UID)})
		}
		must.Succeed(t, clean(there, west.UID)) // this fleet's own
		err := clean(there, "uid-home")
		for _, says := range []string{west.Server + " is another fleet's home", "role,rolebinding tenure-home", letsGo} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("with a %T: %v, want %q", sign, err, says)
			}
		}
		if err := clean(barred(there, homeRole), "uid-home"); !apierrors.IsForbidden(err) {
			t.Errorf("it is cleaned up although it may be another fleet's home: %v", err)
		}
	}
}

func TestAnotherFleetsHomeIsNotAdded(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	const refused = " is another fleet's home"
	for what, c := range map[string]struct {
		uid        string
		registered bool
		bars       bool // from getting namespace kube-system of home
		doubt      bool
		refused    string // "" for no error
	}{
		"a new cluster":              {west.UID, false, false, false, "choose another cluster, or let that fleet serve"},
		"one that was added before":  {west.UID, true, false, false, "tenure cluster remove west, without --kubeconfig"},
		"this fleet's home":          {"uid-home", false, false, false, ""},
		"maybe, where none may look": {west.UID, false, true, true, ""},
	} {
		for _, sign := range rightsAtHome() {
			o, all := behind(t, server, certs.Of(server), certs.Of(server))
			home := all.(client.WithWatch)
			if !c.registered {
				must.Succeed(t, home.Delete(t.Context(), newSecret("ns", "west", "", everywhere)))
			}
			if c.bars {
				home = barred(home, metav1.NamespaceSystem)
			}
			there := homeWith(t, system(types.UID(c.uid)), sign)
			p, err := o.planAdd(t.Context(), home, there, AddOptions{AllowHome: true})
			if c.refused == "" && err != nil || (p.doubt != "") != c.doubt {
				t.Errorf("%s: %q, %v", what, p.doubt, err)
			}
			if c.refused != "" && (err == nil || !strings.Contains(err.Error(), refused) ||
				!strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%s: %v, want %q", what, err, c.refused)
			}
		}
	}
	o, home := behind(t, server, certs.Of(server), certs.Of(server))
	p, err := o.planAdd(t.Context(), home, homeWith(t, system(types.UID(west.UID))), AddOptions{})
	if must.Succeed(t, err); p.doubt != "" {
		t.Errorf("of a cluster that is no home: %s", p.doubt)
	}
}

func TestACheckFindsAnotherFleetsHomeByTheRightsOfItsAccount(t *testing.T) {
	for account, c := range map[string]struct {
		namespaces string // in which it may write records
		unanswered bool   // what asks about records
	}{
		"a workload cluster's": {"", false}, "a home's": {accountNamespace, false},
		"one that may do all": {accountNamespace + "kube-system", false}, "one of whose records nobody knows": {"", true},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			review, _ := sent[*authorizationv1.SelfSubjectAccessReview](t, r)
			a := review.Spec.ResourceAttributes
			if c.unanswered && a.Resource == "shards" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			review.Status.Allowed = !c.unanswered && (a.Resource != "shards" || strings.Contains(c.namespaces, a.Namespace))
			answer(w, http.StatusCreated, review)
		}))
		defer server.Close()
		for _, elsewhere := range []bool{false, true} {
			p := probe{Access: everywhere}
			must.Succeed(t, p.ask(t.Context(), access(t, server), elsewhere))
			if p.Unasked != nil || len(p.Missing) > 0 != c.unanswered || p.OthersHome != (account == "a home's" && elsewhere) {
				t.Errorf("%s, elsewhere: %v: another's home: %v, %v, missing: %v", account, elsewhere, p.OthersHome, p.Unasked,
					p.Missing)
			}
		}
	}
	home := homeWith(t, system("uid-home"))
	k := func(uid string, changes ...func(*clusterSecrets)) clusterSecrets {
		k := holding(secretOf(t, "west", west, now))
		k.UID = uid
		for _, change := range changes {
			change(&k)
		}
		return k
	}
	for what, c := range map[string]struct {
		k    clusterSecrets
		home client.Client
		want bool
	}{
		"another cluster":           {k(west.UID), home, true},
		"home itself":               {k("uid-home"), home, false},
		"it isn't known which":      {k(""), home, false},
		"home's isn't known":        {k(west.UID), barred(home, metav1.NamespaceSystem), false},
		"somebody's own kubeconfig": {k(west.UID, func(k *clusterSecrets) { unsummed(k.Own) }), home, false},
	} {
		if got := c.k.elsewhere(t.Context(), c.home); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
