package attacks

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/conns"
	"github.com/tenure-dev/tenure/test/must"
)

// kubeconfigCase is described in testdata/kubeconfigs.yaml.
type kubeconfigCase struct {
	Name                  string
	Cluster, User, Config map[string]any
	Text                  *string
	Allow, Servers        []string
	Want                  string
	Accepted              bool
}

func (c kubeconfigCase) caseName() string { return c.Name }

// server is an API server, and counts the connections to it.
func server(t testing.TB) (s *httptest.Server, asked *conns.Counts) {
	t.Helper()
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" && len(r.TLS.PeerCertificates) == 0 ||
			!strings.HasSuffix(r.URL.Path, "/version") || strings.Contains(r.URL.Path, "//") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`)
	}))
	asked = conns.Of(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, asked
}

// kubeconfigOf is one of a server, with a token, and the server's certificate in base64.
func kubeconfigOf(s *httptest.Server) (text, authority string) {
	authority = base64.StdEncoding.EncodeToString(certs.Of(s))
	return `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], ` +
		`clusters: [{name: c, cluster: {server: "` + s.URL + `", certificate-authority-data: "` + authority + `"}}], ` +
		`users: [{name: u, user: {token: ` + canary + `}}]}`, authority
}

func repeat(what string, times int) string { return strings.Repeat(what, times) }

func TestKubeconfigs(t *testing.T) {
	set := setTraps(t)
	elsewhere, asked := server(t)
	good, answered := server(t)
	certificate, key := certs.Pair(t)
	_, key2 := certs.Pair(t)
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	var keys strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&keys, "users%d: []\n", i)
	}
	base, authority := kubeconfigOf(good)
	fill := strings.NewReplacer(
		"${FILE}", set.file, "${PROGRAM}", set.program, "${ELSEWHERE}", elsewhere.URL, "${SERVER}", good.URL,
		"${SERVERHOST}", good.Listener.Addr().String(), "${CANARY}", canary, "${CANARY64}", encode(canary),
		"${AUTHORITY}", authority,
		"${CERTIFICATE}", encode(string(certificate)), "${KEY}", encode(string(key)), "${KEY2}", encode(string(key2)),
		"${BASE}", base+"\n",
		"${BLOCK64}", encode("-----BEGIN "+canary+"-----\nAAAA\n-----END "+canary+"-----\n"),
		"${LONG}", repeat("long", 8<<10/4), "${LONGER}", repeat("long", 32<<10/4), "${LONG64}",
		encode(repeat("long", 70<<10/4)),
		"${HOST}", repeat("host.", 100)+"example", "${HUGE}", repeat("# "+canary+"\n", 1<<20/18), "${KEYS}",
		"users: "+canary+"\n"+keys.String(),
		"${DEEP}", repeat("[", 100)+repeat("]", 100), "${DEEPEST}", repeat("[", 20000), "${ALIASES}",
		repeat("*a,", 20000)+"x",
	)
	for _, c := range read[kubeconfigCase](t, "kubeconfigs") {
		t.Run(c.Name, func(t *testing.T) {
			asked.Opened.Store(0)
			answered.Opened.Store(0)
			for i, s := range c.Servers {
				c.Servers[i] = fill.Replace(s)
			}
			policy, err := kubeconfig.ParsePolicy(c.Allow, c.Servers)
			must.Succeed(t, err)
			text := c.text(t, base, fill)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "west"},
				Data: map[string][]byte{kubeconfig.Key: text}}
			reason, note := "", ""
			bounded(t, func() { reason, note, _ = clusterhealth.Look(t.Context(), secret, policy, 2*time.Second) })
			file := inFile(t, text)
			bounded(t, func() {
				r, n, _ := clusterhealth.Look(t.Context(), file, policy, 2*time.Second)
				if shown(t, n); r != reason {
					t.Errorf("the same text in a file: %s: %s\nin a Secret: %s: %s", r, n, reason, note)
				}
			})
			set.check(t)
			shown(t, note)
			if len(note) > 1000 {
				t.Errorf("the reason has %d bytes", len(note))
			}
			switch {
			case asked.Opened.Load() > 0:
				t.Error("a server was asked that is none of ours")
			case c.Accepted && reason != clusterhealth.ReasonUsable:
				t.Errorf("%s: %s; it should work", reason, note)
			case c.Accepted && answered.Opened.Load() == 0:
				t.Error("it is said to work, and nobody was asked")
			case !c.Accepted && (reason != clusterhealth.ReasonBadConfig || !strings.Contains(note, c.Want) || c.Want == ""):
				t.Errorf("%s: %s\nwant a refusal with: %s", reason, note, c.Want)
			case !c.Accepted && answered.Opened.Load() > 0:
				t.Error("it was refused, and a server was asked")
			}
		})
	}
}

// inFile is what replicas make of the text in a file of --kubeconfig-folder.
func inFile(t testing.TB, text []byte) *corev1.Secret {
	t.Helper()
	path := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(path, "west"), text, 0o600))
	folder, err := kubeconfig.OpenFolder(path, "n", logr.Discard())
	must.Succeed(t, err)
	return folder.Secret("west")
}

// text is the kubeconfig of a case.
func (c kubeconfigCase) text(t testing.TB, base string, fill *strings.Replacer) []byte {
	t.Helper()
	if c.Text != nil {
		return []byte(fill.Replace(*c.Text))
	}
	var all map[string]any
	must.Succeed(t, yaml.Unmarshal([]byte(base), &all))
	inside := func(list, entry string) map[string]any {
		return all[list].([]any)[0].(map[string]any)[entry].(map[string]any)
	}
	lay(inside("clusters", "cluster"), c.Cluster, fill)
	lay(inside("users", "user"), c.User, fill)
	lay(all, c.Config, fill)
	text, err := yaml.Marshal(all)
	must.Succeed(t, err)
	return text
}

// lay lays a map over another; null takes a key away.
func lay(under, over map[string]any, fill *strings.Replacer) {
	for key, value := range over {
		if value == nil {
			delete(under, key)
			continue
		}
		under[key] = filled(value, fill)
	}
}

func filled(value any, fill *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return fill.Replace(value)
	case map[string]any:
		full := map[string]any{}
		lay(full, value, fill)
		return full
	case []any:
		if len(value) == 1 {
			if many := manyOf(value[0]); many != nil {
				return many
			}
		}
		full := make([]any, len(value))
		for i := range value {
			full[i] = filled(value[i], fill)
		}
		return full
	}
	return value
}

// manyOf is a list of 1000 entries of a kind; nil for what isn't one.
func manyOf(kind any) []any {
	name, _ := kind.(string)
	entry := map[string]func(int) any{
		"${MANY}":    func(i int) any { return fmt.Sprint("x", i) },
		"${MANYENV}": func(i int) any { return map[string]any{"name": fmt.Sprint("x", i), "value": canary} },
		"${MANYUSERS}": func(i int) any {
			return map[string]any{"name": fmt.Sprint("u", i), "user": map[string]any{"token": canary}}
		},
	}[name]
	if entry == nil {
		return nil
	}
	many := make([]any, 1000)
	for i := range many {
		many[i] = entry(i)
	}
	return many
}
