package onboard

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// anotherCA verifies no server of these tests.
func anotherCA(t *testing.T) []byte {
	t.Helper()
	ca, _ := certs.Pair(t)
	return ca
}

// system is the namespace by which a cluster is known.
func system(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
}

// behind is an Onboarder of west, whose replicas reach this server with a CA, and a home cluster with its Secret. Its
// admin reaches the server by another address, with another CA.
func behind(t *testing.T, server *httptest.Server, replicas, admin []byte) (Onboarder, client.Client) {
	t.Helper()
	secret := secretOf(t, "west", target{Server: server.URL, CA: replicas, UID: west.UID}, time.Now().Add(time.Hour))
	o := Onboarder{Home: &rest.Config{}, Namespace: "ns", Name: "west", Workload: &rest.Config{
		Host:            strings.Replace(server.URL, "127.0.0.1", "localhost", 1),
		TLSClientConfig: rest.TLSClientConfig{CAData: admin, ServerName: "example.com"}}}
	return o, homeWith(t, secret, system("uid-home"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
}

const itsVersion = `{"gitVersion":"v1.37.2"}` // an API server's answer to /version

func TestANewAuthorityIsTakenOnlyFromAServerThatIsVerifiedByItAlone(t *testing.T) {
	var answers []int // the last one is that to all further requests
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0])
		_, _ = io.WriteString(w, itsVersion)
		answers = answers[min(1, len(answers)-1):]
	}))
	defer server.Close()
	its, other := certs.Of(server), anotherCA(t)
	both := slices.Concat(other, its)
	for name, c := range map[string]struct {
		replicas, admin []byte
		answers         []int
		taken           bool
		reason          string
	}{
		"its authority is new":         {other, its, []int{200}, true, clusterhealth.ReasonUsable},
		"it is, and refuses the token": {other, its, []int{401}, true, clusterhealth.ReasonRefused},
		"it is, and is broken":         {other, its, []int{500}, false, clusterhealth.ReasonUnreachable},
		"its authority is its own":     {its, other, []int{200}, false, clusterhealth.ReasonUsable},
		"it is being replaced":         {its, both, []int{200}, false, clusterhealth.ReasonUsable},
		"it is broken for a moment":    {its, both, []int{500, 200}, false, clusterhealth.ReasonUnreachable},
		"neither verifies it":          {other, anotherCA(t), []int{200}, false, clusterhealth.ReasonUnreachable},
	} {
		answers = c.answers
		o, home := behind(t, server, c.replicas, c.admin)
		k, err := o.readSecrets(t.Context(), home)
		must.Succeed(t, err)
		if (len(k.NewCA) > 0) != c.taken || c.taken && !bytes.Equal(k.NewCA, c.admin) || k.Reason != c.reason {
			t.Errorf("%s: %s (%s), new CA %q", name, k.Reason, k.Note, k.NewCA)
		}
	}
}

func TestAddAndRotateTakeTheNewAuthorityOfTheReplicasServer(t *testing.T) {
	clock := atomic.Int64{}
	clock.Store(time.Now().Unix())
	at := newIssuer(t, &clock)
	its, other := certs.Of(at.Server), anotherCA(t)
	field := "clusters[].cluster.certificate-authority-data"
	for name, c := range map[string]struct {
		replicas, admin, want []byte
		says                  string
	}{
		"new": {other, its, its,
			"Secret ns/west: that of --kubeconfig takes the place of " + field + ", which doesn't verify " + at.URL},
		"being replaced": {its, slices.Concat(other, its), its, "Secret ns/west: " + field + " stays, by which replicas " +
			"verify " + at.URL + ", though that of --kubeconfig is another: if this server has a new authority, tenure " +
			"cluster add west --server " + at.URL + " takes that of --kubeconfig"},
		"the same": {its, its, its, ""},
	} {
		o, home := behind(t, at.Server, c.replicas, c.admin)
		check := func(command string, got target, notes []string) {
			said := strings.Join(notes, "\n")
			if got.Server != at.URL || !bytes.Equal(got.CA, c.want) || got.TLSServerName != "" ||
				!strings.Contains(said, c.says) || strings.Contains(said, field) != (c.says != "") {
				t.Errorf("%s: %s: %s by %q, as %q; want %q; notes %q", name, command, got.Server, got.CA, got.TLSServerName,
					c.want, said)
			}
		}
		there := homeWith(t, system(types.UID(west.UID)))
		p, err := o.planAdd(t.Context(), home, there, AddOptions{})
		must.Succeed(t, err)
		check("add", p.target, p.notes(AddOptions{}, o.Workload))
		r, err := o.rotate(t.Context(), home, there, time.Hour)
		must.Succeed(t, err)
		secret := &corev1.Secret{}
		must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
		check("rotate", Hold(secret).target, r.Notes)
	}
}

func TestAddWithAServerTakesTheAdminsAuthorityWithoutANote(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, itsVersion)
	}))
	defer server.Close()
	its := certs.Of(server)
	o, home := behind(t, server, anotherCA(t), its)
	a := AddOptions{Server: "https://new.example.com"}
	p, err := o.planAdd(t.Context(), home, homeWith(t, system(types.UID(west.UID))), a)
	must.Succeed(t, err)
	if notes := p.notes(a, o.Workload); !bytes.Equal(p.target.CA, its) || len(p.known.NewCA) == 0 ||
		strings.Contains(strings.Join(notes, "\n"), "certificate-authority-data") {
		t.Errorf("CA %q; notes %q", p.target.CA, notes)
	}
}

func TestCredentialsThatAreNoTokenStayWithTheirAuthority(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, itsVersion)
	}))
	defer server.Close()
	o, home := behind(t, server, anotherCA(t), certs.Of(server))
	secret := &corev1.Secret{}
	must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, secret))
	give(t, secret, Hold(secret).target, "")
	must.Succeed(t, home.Update(t.Context(), secret))
	if k, err := o.readSecrets(t.Context(), home); err != nil || len(k.NewCA) > 0 {
		t.Errorf("%v, new CA %q", err, k.NewCA)
	}
}
