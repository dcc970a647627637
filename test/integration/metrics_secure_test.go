package integration

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// A replica with the rights that config/ ships, asked for its metrics by nobody, by somebody and by who may.
func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	home := labtest.Planes(t, localplane.ClusterConfig{Name: lab.Home}).Cluster(lab.Home)
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", "-k", filepath.Join(root, "config/default")},
		{"wait", "--for=condition=Established", "crd/shards.tenure.dev"},
		{"create", "serviceaccount", "prometheus", "-n", "default"},
		{"create", "serviceaccount", "stranger", "-n", "default"},
		{"create", "clusterrolebinding", "scrape", "--clusterrole=tenure-metrics-reader", "--serviceaccount=default:prometheus"},
	} {
		labtest.Kubectl(t, home, args...)
	}
	account, err := home.ServiceAccountKubeconfig(ctx, "tenure-system", "tenure")
	if err != nil {
		t.Fatal(err)
	}
	address := startSecure(t, ctx, account)

	token := func(account string) string {
		clientset, err := kubernetes.NewForConfig(home.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := clientset.CoreV1().ServiceAccounts("default").CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Token
	}
	labtest.Until(t, "metrics are served", func() bool { _, err := get(ctx, address, ""); return err == nil })
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"nobody":                 {"", http.StatusUnauthorized},
		"a made-up token":        {"abc", http.StatusInternalServerError}, // how controller-runtime says no to it
		"somebody without right": {token("stranger"), http.StatusForbidden},
		"who may":                {token("prometheus"), http.StatusOK},
	} {
		if got, err := get(ctx, address, c.token); err != nil || got != c.want {
			t.Errorf("%s gets %d %v, want %d", name, got, err, c.want)
		}
	}
}

func startSecure(t *testing.T, ctx context.Context, kubeconfig string) (address string) {
	t.Helper()
	binary, err := lab.Build(ctx, t.TempDir(), "tenure", lab.RaceDetector)
	if err != nil {
		t.Fatal(err)
	}
	r, err := lab.StartProgram(lab.Program{
		Name: "secure", Binary: binary, LogPath: filepath.Join(t.TempDir(), "log"), Addresses: 1,
		Args: func(addresses []string) []string {
			return []string{"--home-kubeconfig=" + kubeconfig, "--replica=secure", "--metrics-bind-address=" + addresses[0],
				"--metrics-secure", "--health-probe-bind-address=0"}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { labtest.Leave(t, r) })
	return r.Address(0)
}

// get asks for metrics; the certificate is the replica's own.
func get(ctx context.Context, address, token string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
