package kubeconfig

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// everything is a kubeconfig with all that a policy can allow.
func everything(t testing.TB) *clientcmdapi.Config {
	t.Helper()
	certificate, key := certs.Pair(t)
	c := clientcmdapi.NewConfig()
	c.Clusters["its"] = &clientcmdapi.Cluster{
		Server: "https://west.example.com:6443/k8s/", TLSServerName: "west.example.com", InsecureSkipTLSVerify: true,
		ProxyURL: "http://user:password@proxy.example.com:3128", DisableCompression: true,
	}
	c.AuthInfos["ours"] = &clientcmdapi.AuthInfo{
		Token: "token", ClientCertificateData: certificate, ClientKeyData: key, Impersonate: "other",
		ImpersonateUID: "uid", ImpersonateGroups: []string{"group"},
		ImpersonateUserExtra: map[string][]string{"key": {"value"}},
	}
	c.Contexts["theirs"] = &clientcmdapi.Context{Cluster: "its", AuthInfo: "ours", Namespace: "lost"}
	c.CurrentContext = "theirs"
	return c
}

// kubeconfigOf is a kubeconfig that has this server and user, and nothing else.
func kubeconfigOf(t testing.TB, server string, user clientcmdapi.AuthInfo) []byte {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"], c.AuthInfos["c"] = &clientcmdapi.Cluster{Server: server}, &user
	c.Contexts["c"], c.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}, "c"
	return write(t, c)
}

func write(t testing.TB, c *clientcmdapi.Config) []byte {
	t.Helper()
	text, err := clientcmd.Write(*c)
	must.Succeed(t, err)
	return text
}

func TestWhatIsAllowedArrivesAndNothingElse(t *testing.T) {
	source := everything(t)
	source.Clusters["another"] = &clientcmdapi.Cluster{Server: "https://another.example.com"}
	source.AuthInfos["another"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "/bin/false", APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	access, err := Inspect(write(t, source), Policy{Proxy: true, Impersonation: true, Insecure: true})
	must.Succeed(t, err)
	text, err := access.Kubeconfig()
	must.Succeed(t, err)
	got, err := clientcmd.Load(text)
	must.Succeed(t, err)
	want := clientcmdapi.NewConfig()
	want.Clusters["cluster"], want.AuthInfos["cluster"] = source.Clusters["its"], source.AuthInfos["ours"]
	want.Clusters["cluster"].Server = "https://west.example.com:6443/k8s" // or /k8s//version would be asked for
	want.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "cluster"}
	want.CurrentContext = "cluster"
	expect.Equal(t, "the new kubeconfig differs", want, got, cmpopts.EquateEmpty())
	c, err := access.REST()
	must.Succeed(t, err)
	if c.Host != "https://west.example.com:6443/k8s" || c.BearerToken != "token" ||
		c.Impersonate.UserName != "other" || c.Proxy == nil {
		t.Errorf("the connection: %v", c)
	}
}

func TestNothingIsAllowedUnlessItIsAskedFor(t *testing.T) {
	_, err := Inspect(write(t, everything(t)), Policy{})
	want := "kubeconfig: clusters[].cluster.insecure-skip-tls-verify isn't allowed: use certificate-authority-data, or " +
		"start the replicas with --kubeconfig-allow=insecure; clusters[].cluster.proxy-url isn't allowed: leave it out, or " +
		"start the replicas with --kubeconfig-allow=proxy; users[].user.as isn't allowed: use the credentials of the user " +
		"that is meant, or start the replicas with --kubeconfig-allow=impersonation; users[].user.as-uid isn't allowed: " +
		"use the credentials of the user that is meant, or start the replicas with --kubeconfig-allow=impersonation; and 2 " +
		"more"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if !Allowable(err) {
		t.Error("it isn't known that a policy can allow all of that")
	}
	broken := everything(t)
	broken.AuthInfos["ours"].Token = "with a space"
	if _, err := Inspect(write(t, broken), Policy{}); err == nil || Allowable(err) {
		t.Errorf("a policy could allow a token that is none: %v", err)
	}
}

// What the connection would trip over takes the place of nothing that works.
func TestAPluginWhoseAPIIsTooOldIsRefused(t *testing.T) {
	exec := &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1beta1", Command: "true",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	user := clientcmdapi.AuthInfo{Exec: exec}
	if _, err := Inspect(kubeconfigOf(t, "https://west.example.com", user), Policy{Exec: true}); err != nil {
		t.Errorf("a plugin of today: %v", err)
	}
	exec.APIVersion = "client.authentication.k8s.io/v1alpha1"
	_, err := Inspect(kubeconfigOf(t, "https://west.example.com", user), Policy{Exec: true})
	if refused := (*Refused)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "exec.apiVersion") {
		t.Errorf("an old one: %v, want it refused", err)
	}
}

func TestServersAreMatchedByNameAddressAndPort(t *testing.T) {
	for pattern, hosts := range map[string]map[string]bool{
		"west.example.com": {
			"https://west.example.com": true, "https://WEST.example.com.:6443": true, "https://east.example.com": false,
			"https://west.example.com.evil.org": false, "https://x.west.example.com": false,
		},
		"*.example.com:6443": {
			"https://west.example.com:6443": true, "https://west.example.com": false, "https://a.b.example.com:6443": false,
			"https://example.com:6443": false,
		},
		"*.example.com:443": {"https://west.example.com": true},
		"10.0.0.0/8": {"https://10.1.2.3": true, "https://11.0.0.1": false, "https://[::ffff:10.1.2.3]:1": true,
			"https://ten.example.com": false},
		"::ffff:10.0.0.0/104": {"https://10.1.2.3": true, "https://11.0.0.1": false, "https://[::ffff:10.1.2.3]": true},
		"[fd00::1]:6443": {"https://[fd00::1]:6443": true, "https://[fd00:0:0::1]:6443": true,
			"https://[fd00::2]:6443": false},
		"fd00::/8": {"https://[fd12::1]": true},
		"*":        {"https://localhost": true, "https://a.b": false, "https://127.0.0.1": false},
	} {
		policy, err := ParsePolicy(nil, []string{pattern})
		must.Succeed(t, err)
		for host, want := range hosts {
			text := kubeconfigOf(t, host, clientcmdapi.AuthInfo{Token: "token"})
			if _, err := Inspect(text, policy); (err == nil) != want {
				t.Errorf("%s, %s: %v, want %v", pattern, host, err, want)
			}
		}
	}
	for pattern, want := range map[string]string{
		"": "", "https://a.example.com": "", "a b": "", "[": "", "west.example.com:": "", "10.0.0.0/99": "", "a/b": "",
		"::ffff:10.0.0.0/8": "such as 10.0.0.0/8",
		"user@host":         "", "10.0.0.*": "10.0.0.0/24", "10.*:6443": "10.0.0.0/24", "10.0.0.300": "10.0.0.0/24",
		"2130706433": "10.0.0.0/24", "west.example.com:06443": "a port from 1", "west.example.com:0": "a port from 1",
		"[fd00::1]:+1": "a port from 1", "west.example.com:65536": "a port from 1",
	} {
		_, err := ParsePolicy(nil, []string{pattern})
		if err == nil || !strings.Contains(err.Error(), "--kubeconfig-servers") || !strings.Contains(err.Error(), want) {
			t.Errorf("pattern %q: %v, want it refused with %q", pattern, err, want)
		}
	}
	if _, err := ParsePolicy([]string{"exec", "everything"}, nil); err == nil ||
		!strings.Contains(err.Error(), `"everything"`) {
		t.Errorf("a word that there isn't: %v", err)
	}
}

func TestAConnectionStaysWithItsServer(t *testing.T) {
	asked := ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked += r.URL.Path }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/stolen", http.StatusFound)
		case "/odd":
			w.Header().Set("Location", "//%zz")
			w.WriteHeader(http.StatusTemporaryRedirect)
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		case "/here":
			_, _ = io.WriteString(w, "fine")
		}
	}))
	defer server.Close()
	c := &rest.Config{Host: server.URL + "/", BearerToken: "token"}
	must.Succeed(t, Pin(c))
	httpClient, err := rest.HTTPClientFor(c)
	must.Succeed(t, err)
	for path, want := range map[string]int{"/away": http.StatusFound, "/odd": http.StatusTemporaryRedirect,
		"/moved": http.StatusOK} {
		res, err := httpClient.Get(server.URL + path)
		must.Succeed(t, err)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, res.Status, want)
		}
	}
	if asked != "" {
		t.Errorf("the other server was asked for %s", asked)
	}
}

// The fence is what the provider reads Secrets through.
func TestARefusedSecretReadsLikeTheLastGoodOneOrAsIfItWereNotThere(t *testing.T) {
	good := func(host string) []byte { return kubeconfigOf(t, host, clientcmdapi.AuthInfo{Token: "token"}) }
	synctest.Test(t, func(t *testing.T) {
		const grace = 10 * time.Second
		home := fake.NewClientBuilder().Build()
		s := newSecrets(home, Policy{}, grace)
		key := client.ObjectKey{Namespace: "n", Name: "west"}
		put := func(text []byte) {
			t.Helper()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			_ = home.Delete(context.Background(), secret)
			if text == nil {
				return
			}
			secret.ResourceVersion, secret.Data = "", map[string][]byte{Key: text, "more": []byte("x")}
			must.Succeed(t, home.Create(context.Background(), secret))
		}
		bad := []byte("what?")
		for step, c := range []struct {
			after time.Duration // since the step before
			text  []byte
			want  string // the server; "" for none
		}{
			{0, bad, ""}, {0, good("https://one"), "https://one"}, {0, good("https://two"), "https://two"},
			{0, bad, "https://two"}, {time.Hour, bad, "https://two"},
			{0, nil, ""}, {grace - 1, bad, "https://two"}, {time.Hour, bad, "https://two"},
			{0, nil, ""}, {grace - 1, nil, ""}, {1, bad, ""}, {0, good("https://three"), "https://three"},
			{0, nil, ""}, {grace - 1, good("https://four"), "https://four"}, {time.Hour, bad, "https://four"},
		} {
			time.Sleep(c.after)
			synctest.Wait()
			put(c.text)
			secret := &corev1.Secret{}
			err := s.Get(t.Context(), key, secret)
			if c.want == "" {
				if !apierrors.IsNotFound(err) {
					t.Errorf("step %d: %v, %v", step, secret, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[Key])
			must.Succeed(t, err)
			if config.Host != c.want || len(secret.Data) != 1 {
				t.Errorf("step %d: server %s, %d keys; want %s alone", step, config.Host, len(secret.Data), c.want)
			}
		}
		put(nil)
		_ = s.Get(t.Context(), key, &corev1.Secret{})
		time.Sleep(grace)
		synctest.Wait()
		if len(s.last) > 0 {
			t.Error("credentials are kept of a Secret that is gone for good")
		}
		if err := s.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			t.Errorf("another kind: %v", err)
		}
	})
}

// A file that isn't there yet is no reason to give a Secret up: the provider tries an error again.
func TestAFileThatASecretNamesMayComeLater(t *testing.T) {
	home := fake.NewClientBuilder().Build()
	s := newSecrets(home, Policy{Files: true}, time.Second)
	token := filepath.Join(t.TempDir(), "token")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "west"}}
	read := func() error {
		t.Helper()
		return s.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})
	}
	names := func(file string) {
		t.Helper()
		secret.Data = map[string][]byte{Key: kubeconfigOf(t, "https://one", clientcmdapi.AuthInfo{TokenFile: file})}
		must.Succeed(t, client.IgnoreNotFound(home.Delete(t.Context(), secret)))
		must.Succeed(t, home.Create(t.Context(), &corev1.Secret{ObjectMeta: secret.ObjectMeta, Data: secret.Data}))
	}
	names(token)
	if err := read(); err == nil || apierrors.IsNotFound(err) || !Passing(err) || strings.Contains(err.Error(), token) {
		t.Errorf("without the file: %v", err)
	}
	must.Succeed(t, os.WriteFile(token, []byte("secret"), 0o600))
	if err := read(); err != nil {
		t.Errorf("with the file: %v", err)
	}
	names(token + "-new")
	if err := read(); !Passing(err) {
		t.Errorf("the Secret names another file, which isn't there: %v; an error leaves the cluster as it is", err)
	}
	must.Succeed(t, home.Delete(t.Context(), secret))
	if err := read(); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret is gone: %v", err)
	}
	names(token + "-new")
	if err := read(); !Passing(err) {
		t.Errorf("the Secret is back, and its file isn't there: %v; what it named before would be used for ever", err)
	}
	s.mu.Lock()
	if last := s.last[client.ObjectKeyFromObject(secret)]; last == nil || last.away != nil {
		t.Errorf("the Secret is back, and what it held last is forgotten after the grace: %+v", last)
	}
	s.mu.Unlock()
	secret.Data[Key] = []byte("what?")
	if _, err := OfSecret(secret, Policy{Files: true}); err == nil || Passing(err) {
		t.Errorf("what no time mends: %v", err)
	}
}

// naming returns a kubeconfig whose fields name these files.
func naming(t *testing.T, authority, token, certificate, key string) []byte {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://one", CertificateAuthority: authority}
	c.AuthInfos["c"] = &clientcmdapi.AuthInfo{TokenFile: token, ClientCertificate: certificate, ClientKey: key}
	c.Contexts["c"], c.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}, "c"
	return write(t, c)
}

func TestAFileThatCannotBeUsedIsRefusedByItsField(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	certificate, key := certs.Pair(t)
	for name, content := range map[string][]byte{"ca": certificate, "key": key, "token": []byte("secret"),
		"large": make([]byte, maxFile+1), "empty": nil} {
		must.Succeed(t, os.WriteFile(in(name), content, 0o600))
	}
	must.Succeed(t, syscall.Mkfifo(in("pipe"), 0o600))
	const authorityField, tokenField = "clusters[].cluster.certificate-authority", "users[].user.tokenFile"
	const absolute = " must be an absolute path"
	for name, c := range map[string]struct {
		text    []byte
		want    string // "" for none
		passing bool
	}{
		"all are right":        {naming(t, in("ca"), in("token"), in("ca"), in("key")), "", false},
		"a relative token":     {naming(t, in("ca"), "token", "", ""), tokenField + absolute, false},
		"a relative authority": {naming(t, "ca", in("token"), "", ""), authorityField + absolute, false},
		"a relative certificate": {naming(t, "", "", "./ca", in("key")),
			"users[].user.client-certificate" + absolute, false},
		"a relative key": {naming(t, "", "", in("ca"), "../key"), "users[].user.client-key" + absolute, false},
		"a pipe":         {naming(t, "", in("pipe"), "", ""), tokenField + " names a file", true},
		"a device":       {naming(t, "", "/dev/zero", "", ""), "isn't a regular file", true},
		"a folder":       {naming(t, "", folder, "", ""), "is a folder", true},
		"a large file": {naming(t, in("large"), in("token"), "", ""),
			authorityField + " names a file that can't be used: it has more", true},
		"a missing file": {naming(t, "", in("none"), "", ""), tokenField + " names a file", true},
		"not an authority": {naming(t, in("token"), in("token"), "", ""),
			authorityField + " names a file that holds", true},
		"an empty authority": {naming(t, in("empty"), in("token"), "", ""),
			authorityField + " names a file that holds", true},
	} {
		_, err := Inspect(c.text, Policy{Files: true})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), folder) || Passing(err) != c.passing) {
			t.Errorf("%s: %v (passing %v), want %q (%v)", name, err, Passing(err), c.want, c.passing)
		}
	}
}

// What comes out of an inspection holds nothing that the policy forbids, whatever goes in.
func FuzzInspect(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: "+
		"u}}]\n"+
		"clusters: [{name: c, cluster: {server: 'https://a.example.com'}}]\nusers: [{name: u, user: {token: x, tokenFile: "+
		"/dev/zero}}]\n"), false)
	f.Add([]byte("a: &a [x]\nb: *a\n"), false)
	f.Add([]byte(`{"users":[{"user":{"exec":{"command":"x"},"as":"y"}}]}`), true)
	f.Add(write(f, everything(f)), true)
	f.Fuzz(func(t *testing.T, text []byte, all bool) {
		servers, err := parsePattern("*.example.com")
		must.Succeed(t, err)
		policy := Policy{Servers: []Pattern{servers}}
		if all {
			policy.Insecure, policy.Proxy, policy.Impersonation = true, true, true
		}
		start := time.Now()
		access, err := Inspect(text, policy)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		c, err := access.REST()
		if err != nil {
			t.Fatalf("what was allowed is no connection: %v", err)
		}
		if c.BearerTokenFile+c.CAFile+c.CertFile+c.KeyFile != "" || c.ExecProvider != nil || c.AuthProvider != nil {
			t.Errorf("a file or a program: %v", c)
		}
		if !all && (c.Proxy != nil || c.Insecure || c.Impersonate.UserName != "" || !strings.HasPrefix(c.Host, "https://")) {
			t.Errorf("more than is allowed: %v", c)
		}
		if host, _, err := rest.DefaultServerUrlFor(c); err != nil ||
			!servers.matches(host.Hostname(), "") || host.User != nil {
			t.Errorf("server %v, %v", host, err)
		}
		again, err := access.Kubeconfig()
		must.Succeed(t, err)
		if _, err := Inspect(again, policy); err != nil {
			t.Errorf("inspected once more it is refused: %v", err)
		}
	})
}

func TestASecretMayNotHaveTheHomeClustersName(t *testing.T) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "home"}, Data: map[string][]byte{Key: []byte("clusters: []")}}
	if _, err := OfSecret(s, Policy{}); err == nil || !strings.Contains(err.Error(), "call the home cluster") ||
		Allowable(err) {
		t.Errorf("%v", err)
	}
}
