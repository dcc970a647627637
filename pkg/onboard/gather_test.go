package onboard

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/must"
)

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
		case "/api":
			answer(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
		case "/apis":
			answer(w, http.StatusOK, metav1.APIGroupList{})
		case "/api/v1":
			answer(w, http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{
				Name: "persistentvolumeclaims", Namespaced: true, Kind: "PersistentVolumeClaim", Verbs: []string{"list"}}}})
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
	o, home := behind(t, server, caOf(server), caOf(server))
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
