package onboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// discovered answers as an API server does that has one kind.
func discovered(w http.ResponseWriter, r *http.Request, kind metav1.APIResource) {
	switch r.URL.Path {
	case "/api":
		answer(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
	case "/apis":
		answer(w, http.StatusOK, metav1.APIGroupList{})
	default:
		answer(w, http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{kind}})
	}
}

// Lists come in pages, and all of the first one may be on its way out.
func TestSomebodysObjectIsFoundBehindMany(t *testing.T) {
	soon := metav1.Now()
	pages := map[string]metav1.PartialObjectMetadataList{
		"": {ListMeta: metav1.ListMeta{Continue: "2"}, Items: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "leaving", DeletionTimestamp: &soon}}}},
		"2": {ListMeta: metav1.ListMeta{Continue: "3"}, Items: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{madeByLabel: madeBy}}}}},
		"3": {ListMeta: metav1.ListMeta{Continue: "4"}, Items: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api", "/apis", "/api/v1":
			discovered(w, r, metav1.APIResource{Name: "persistentvolumeclaims", Namespaced: true,
				Kind: "PersistentVolumeClaim", Verbs: []string{"list"}})
		default:
			page, found := pages[r.URL.Query().Get("continue")]
			if !found {
				t.Error("it reads on though one object is found")
			}
			page.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
			answer(w, http.StatusOK, page)
		}
	}))
	defer server.Close()
	names, err := inhabitants(t.Context(), &rest.Config{Host: server.URL}, accountNamespace)
	must.Succeed(t, err)
	if !slices.Equal(names, []string{"persistentvolumeclaims/theirs"}) {
		t.Errorf("found %q", names)
	}
}

// forEver answers each page of each list with a further one.
type forEver struct{ asked int }

func (f *forEver) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if strings.Contains(r.URL.Path, "/namespaces/") {
		list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: "on"}}
		if f.asked++; f.asked > 10_000 {
			list.Continue = "" // so that the test ends
		}
		list.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
		answer(w, http.StatusOK, list)
	} else {
		discovered(w, r, metav1.APIResource{Name: "pods", Namespaced: true, Kind: "Pod", Verbs: []string{"list"}})
	}
	return w.Result(), nil
}

func TestAListWithoutEndEndsTheSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := inhabitants(t.Context(), &rest.Config{Host: "http://west", Transport: &forEver{}}, accountNamespace)
		if took := time.Since(began); err == nil || took > inhabitantsTimeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A cluster of a folder's file has no Secret that could be compared.
func TestANameOfAnotherServedClusterIsRefused(t *testing.T) {
	held, quiet, removed := []string{"r1", "r1", "r1", "r1"}, []string{"r3", "", "", ""}, []string{"", "", "", ""}
	for what, c := range map[string]struct {
		holders   []string
		was, name string
		own       bool
		refused   bool
	}{
		"served":                  {held, "file", "west", false, true},
		"by one that may live":    {quiet, "file", "west", false, true},
		"removed before":          {removed, "file", "west", false, false},
		"the same cluster":        {held, "new", "west", false, false},
		"unknown":                 {held, "", "west", false, false},
		"compared by its Secret":  {held, "file", "west", true, false},
		"another name":            {held, "file", "north", false, false},
		"this one, as west, also": {held, "new", "north", false, true},
	} {
		layouts := []tenurev1alpha1.Shard{layoutOf("west", c.was)}
		err := clash(fleetOf(t, c.holders...), layouts, c.name, "new", c.own)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", what, err)
		}
		if what == "served" && err != nil {
			for _, says := range []string{"NAME west", "file", "choose another NAME", "--kubeconfig-folder"} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q doesn't say %q", err, says)
				}
			}
		}
	}
}

func TestAddRefusesANameUnderWhichReplicasServeAnotherCluster(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	o, home := behind(t, server, certs.Of(server), certs.Of(server))
	layout := layoutOf("west", "another")
	layout.Namespace, layout.Name = "ns", "layout"
	for _, object := range []client.Object{&layout, recordOf("r0-a"), leaseOf("1h", time.Now())} {
		must.Succeed(t, home.Create(t.Context(), object))
	}
	there := homeWith(t, system(types.UID(west.UID)))
	if _, err := o.planAdd(t.Context(), home, there, AddOptions{}); err != nil {
		t.Errorf("with a Secret, which is compared: %v", err)
	}
	must.Succeed(t, home.Delete(t.Context(), newSecret("ns", "west", "", everywhere)))
	_, err := o.planAdd(t.Context(), home, there, AddOptions{})
	if err == nil || !strings.Contains(err.Error(), "NAME west: replicas serve another cluster under this name") {
		t.Errorf("without one: %v", err)
	}
}

func TestOfSeveralReasonsNotToAddAClusterTheOneAboutWhichItIsIsTold(t *testing.T) {
	o := Onboarder{Home: &rest.Config{}, Workload: &rest.Config{}, Namespace: "ns", Name: "west"}
	failed := errors.New("refused")
	f := facts{now: now, target: west, unfit: &adminsOnly{"through a proxy"}, atHome: west.UID, isHome: true,
		missing: "jobs", fleet: fleetOf(t, "r1", "r1", "r1", "r1")}
	f.known.Others = []corev1.Secret{*secretOf(t, "north", west, now)}
	f.snapshot.Records.Layouts = []tenurev1alpha1.Shard{layoutOf("west", "another")}
	f.failed.atHome, f.failed.isHome, f.failed.namespaces, f.failed.live = failed, failed, failed, failed
	f.failed.records = &meta.NoKindMatchError{}
	for _, step := range []struct {
		want string
		mend func()
	}{
		{"home cluster: refused", func() { f.failed.atHome = nil }},
		{"is the home cluster itself", func() { f.atHome = "uid-home" }},
		{"through a proxy", func() { f.unfit = nil }},
		{"it is the same cluster", func() { f.known.Others = nil }},
		{"has no kind Shard", func() { f.failed.records = nil }},
		{"replicas serve another cluster under this name", func() { f.snapshot.Records.Layouts = nil }},
		{"cluster west: refused", func() { f.failed.isHome = nil }},
		{"another fleet's home", func() { f.isHome = false }},
		{"refused", func() { f.failed.namespaces = nil }},
		{"has no such namespace", func() { f.missing = "" }},
		{"cluster west: refused", func() { f.failed.live = nil }},
	} {
		if _, err := o.decideAdd(f, AddOptions{}); err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("got %v, want %q", err, step.want)
		}
		step.mend()
	}
	p, err := o.decideAdd(f, AddOptions{})
	must.Succeed(t, err)
	if !p.moved() {
		t.Error("replicas serve it already, and that isn't by the new Secret")
	}
	for i := range f.fleet.Replicas {
		f.fleet.Replicas[i].State = console.Quiet
	}
	for i := range f.fleet.Shards {
		f.fleet.Shards[i].Served = false
	}
	if p, err = o.decideAdd(f, AddOptions{}); err != nil || p.moved() {
		t.Errorf("replicas that died don't serve it any more (%v)", err)
	}
}

// A token of one cluster is nothing to show to another, and that one isn't this one's either.
func TestASecretThatLeadsToAnotherClusterGetsItsOwnBackWithANewToken(t *testing.T) {
	clock := atomic.Int64{}
	clock.Store(time.Now().Unix())
	for name, refused := range map[string]bool{"by its answer": false, "by the layout of what replicas serve": true} {
		for command, run := range map[string]func(Onboarder, client.Client, client.Client) error{
			"add": func(o Onboarder, home, there client.Client) error {
				a := AddOptions{Lifetime: time.Hour}
				p, err := o.planAdd(t.Context(), home, there, a)
				if err != nil {
					return err
				}
				if notes := strings.Join(p.notes(a, o.Workload), " "); !strings.Contains(notes, "now reach the cluster at") {
					t.Errorf("%s: %q", name, notes)
				}
				return o.addSecret(t.Context(), home, a, p, "Secret", &Report{})
			},
			"rotate": func(o Onboarder, home, there client.Client) error {
				_, err := o.rotate(t.Context(), home, there, time.Hour)
				return err
			},
		} {
			east, its := newIssuer(t, &clock), newIssuer(t, &clock)
			east.uid, its.uid = "uid-east", types.UID(west.UID)
			o, home := behind(t, its.Server, certs.Of(its.Server), certs.Of(its.Server))
			secret := &corev1.Secret{}
			must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
			token := Hold(secret).token
			give(t, secret, target{Server: east.URL, CA: certs.Of(east.Server)}, token)
			must.Succeed(t, home.Update(t.Context(), secret))
			if refused {
				east.bad.Store(true)
				east.first.Store("")
				layout := layoutOf("west", "uid-east")
				layout.Namespace, layout.Name = "ns", "layout"
				for _, object := range []client.Object{&layout, recordOf("r0-a"), leaseOf("1h", time.Now())} {
					must.Succeed(t, home.Create(t.Context(), object))
				}
			}
			if k, err := o.readSecrets(t.Context(), home); err != nil || k.UID != "uid-east" {
				t.Errorf("%s: it leads to %q, %v", name, k.UID, err)
			}
			must.Succeed(t, run(o, home, homeWith(t, system(types.UID(west.UID)))))
			must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
			if held := Hold(secret); held.Server != o.Workload.Host || held.token == token || !requested(secret) {
				t.Errorf("%s, %s: the Secret leads to %s, by the token from before: %v", name, command, held.Server,
					held.token == token)
			}
			east.seen.Range(func(shown, _ any) bool {
				if shown != token {
					t.Errorf("%s, %s: the other cluster was shown another token than its own", name, command)
				}
				return true
			})
		}
	}
}

func TestACheckNamesTheClusterThatCredentialsLeadTo(t *testing.T) {
	s := console.Snapshot{Registered: true, Clusters: []console.Answer{
		{Cluster: "east", Recorded: "uid-east"}, {Cluster: "west", Recorded: west.UID}}}
	for uid, want := range map[string]bool{"": false, west.UID: false, "uid-east": true} {
		p := probe{Name: "west", Reason: clusterhealth.ReasonUsable}
		p.assess(s, uid)
		if p.Astray != want || (p.Reason == console.ReasonAnother) != want {
			t.Errorf("to %q: %+v", uid, p)
		}
	}
}

func TestAClusterThatCannotBeCleanedUpKeepsItsSecret(t *testing.T) {
	const rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + accountNamespace + "/"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api", "/apis", "/api/v1":
			discovered(w, r, metav1.APIResource{Name: "namespaces", Kind: kindNamespace, Verbs: []string{"get"}})
		case "/api/v1/namespaces/kube-system":
			answer(w, http.StatusOK, system(types.UID(west.UID)))
		case "/apis/rbac.authorization.k8s.io/v1":
			answer(w, http.StatusOK, metav1.APIResourceList{GroupVersion: "rbac.authorization.k8s.io/v1",
				APIResources: []metav1.APIResource{{Name: "roles", Kind: kindRole, Namespaced: true},
					{Name: "rolebindings", Kind: kindBinding, Namespaced: true}}})
		case rights + "roles/" + homeRole, rights + "rolebindings/" + homeRole: // it is no home
			answer(w, http.StatusNotFound, metav1.Status{Status: "Failure", Code: http.StatusNotFound,
				Reason: metav1.StatusReasonNotFound})
		default:
			answer(w, http.StatusForbidden, metav1.Status{Status: "Failure", Code: http.StatusForbidden,
				Reason: metav1.StatusReasonForbidden})
		}
	}))
	defer server.Close()
	o, home := behind(t, server, certs.Of(server), certs.Of(server))
	k := holding(secretOf(t, "west", west, time.Now()))
	for host, says := range map[string]string{o.Workload.Host: "reading Namespace", "https://127.0.0.1:1": "refused"} {
		o.Workload.Host = host
		there, _, err := o.toClean(t.Context(), home, k, nil)
		if there != nil || err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "without --kubeconfig and --context the fleet lets go") {
			t.Error(err)
		}
	}
}

// Secrets don't show a cluster of a folder's file, nor one of another namespace.
func TestAClusterThatIsServedElsewhereIsNotCleanedUp(t *testing.T) {
	const as = "serve this cluster as "
	own := holding(secretOf(t, "west", west, time.Now()))
	before := []tenurev1alpha1.Shard{layoutOf("west", west.UID)}
	for what, c := range map[string]struct {
		namespace, fleet, name, uid, holder string
		known                               clusterSecrets
		layouts                             []tenurev1alpha1.Shard
		barred                              bool
		want                                string // "" for no error
	}{
		"by a file, with a Secret":   {"ns", "", "east", west.UID, "r0-a", own, nil, false, "namespace ns " + as + "east"},
		"by a file, renamed":         {"ns", "", "east", west.UID, "r0-a", clusterSecrets{}, before, false, as + "east"},
		"by another fleet":           {"ns", "blue", "east", west.UID, "r0-a", own, nil, true, as + "east"},
		"by a fleet that is gone":    {"ns", "gone", "east", west.UID, "r0-a", own, nil, false, ""},
		"by one whose clock is late": {"ns", "late", "east", west.UID, "r0-a", own, nil, false, as + "east"},
		"by one that died ahead":     {"ns", "ahead", "east", west.UID, "r0-a", own, nil, false, ""},
		"by one that seldom renews":  {"ns", "seldom", "east", west.UID, "r0-a", own, nil, false, as + "east"},
		"from another namespace":     {"prod", "", "west", west.UID, "r0-a", own, nil, false, "prod " + as + "west"},
		"from where none may look":   {"prod", "", "west", west.UID, "r0-a", own, nil, true, ""},
		"elsewhere before":           {"prod", "", "west", west.UID, "", own, nil, false, ""},
		"by its name":                {"ns", "", "west", west.UID, "r0-a", own, nil, false, ""},
		"by its name, once":          {"ns", "", "west", west.UID, "", clusterSecrets{}, before, false, ""},
		"another":                    {"ns", "", "east", "uid-east", "r0-a", own, nil, false, ""},
		"never, nor another": {"ns", "", "east", "uid-east", "", clusterSecrets{}, nil, false,
			"no record says that this fleet"},
	} {
		synctest.Test(t, func(t *testing.T) { // a fleet whose Leases look old is watched
			labels := map[string]string{tenurev1alpha1.FleetLabel: c.fleet}
			layout, record, lease := layoutOf(c.name, c.uid), recordOf(c.holder), leaseOf("1h", time.Now())
			switch month := 30 * 24 * time.Hour; c.fleet {
			case "gone", "late":
				lease = leaseOf("1h", time.Now().Add(-month))
			case "ahead":
				lease = leaseOf("10s", time.Now().Add(month))
			case "seldom":
				lease = leaseOf("1h", time.Now().Add(month))
			}
			id := keyspace.ShardID{Cluster: keyspace.ClusterName(c.name), Prefix: keyspace.Partition(0)[0]}
			layout.Name, record.Name, record.Spec.Cluster = "layout", id.RecordName(keyspace.Fleet(c.fleet)), c.name
			home := homeWith(t)
			for _, o := range []client.Object{&layout, record, lease} {
				o.SetNamespace(c.namespace)
				if c.fleet != "" {
					o.SetLabels(with(o.GetLabels(), labels))
				}
				must.Succeed(t, home.Create(t.Context(), o))
			}
			home = interceptor.NewClient(home, interceptor.Funcs{List: func(ctx context.Context, to client.WithWatch,
				list client.ObjectList, opts ...client.ListOption) error {
				if c.barred && len(opts) == 0 {
					return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
				}
				if _, leases := list.(*coordinationv1.LeaseList); leases && c.fleet == "late" {
					lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(time.Second)
					must.Succeed(t, to.Update(ctx, lease))
				}
				return to.List(ctx, list, opts...)
			}})
			o := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west", Workload: &rest.Config{Host: west.Server}}
			err := o.mayClean(t.Context(), home, homeWith(t, system(types.UID(west.UID))), "uid-home", c.known, c.layouts)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("served %s: %v, want %q", what, err, c.want)
			}
		})
	}
}

func TestNothingIsBegunForASecretThatCannotTakeNewCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	o, home := behind(t, server, certs.Of(server), certs.Of(server))
	secret := &corev1.Secret{}
	must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
	there := homeWith(t, system(types.UID(west.UID)))
	fixed(secret)
	h := Hold(secret)
	if text := expiry(h, time.Now(), "west"); h.Renewed || !strings.Contains(text, ": Secret ns/west is immutable") {
		t.Errorf("renewed %v: %s", h.Renewed, text)
	}
	unsummed(secret) // else a token for the account, which isn't there, is asked for
	must.Succeed(t, home.Update(t.Context(), secret))
	if _, err := o.planAdd(t.Context(), home, there, AddOptions{Server: "https://new.example.com"}); err == nil ||
		!strings.Contains(err.Error(), "is immutable") {
		t.Errorf("with another address: %v", err)
	}
	_, err := o.planAdd(t.Context(), home, there, AddOptions{Wish: Wish{Roles: []Role{Ats, Deployments}}})
	must.Succeed(t, err) // only what it says of the cluster changes
	must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
	throughProxy(secret)
	must.Succeed(t, home.Update(t.Context(), secret))
	_, err = o.planAdd(t.Context(), home, there, AddOptions{Wish: Wish{Roles: []Role{Ats, Deployments}}})
	must.Succeed(t, err) // its kubeconfig, which replicas use if they may, stays
}

// Right after it, tenure cluster check compares the schema.
func TestAnAPIIsServedWhenItsSchemaIsPublished(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/openapi/v3/") {
			if asked++; asked < 3 {
				w.WriteHeader(http.StatusNotFound)
			}
			return
		}
		answer(w, http.StatusOK, metav1.APIResourceList{})
	}))
	defer server.Close()
	if err := awaitAPI(t.Context(), &rest.Config{Host: server.URL}); err != nil || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}
