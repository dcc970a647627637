package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/tools/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// knock opens r1's page through the API server. r1 serves it only to accounts that have the right to see it.
func (f *fleet) knock(t *testing.T) {
	_, port, err := net.SplitHostPort(f.replicas["r1"].Address(0))
	must.Succeed(t, err)
	f.pretendPod("r1")
	args := []string{"page", "--pod", "r1", "--metrics-port", port}
	if out, code := f.ask(args...); code != 1 || !strings.Contains(out, "a replica can only check tokens") {
		t.Errorf("with a client certificate: exit code %d\n%s", code, out)
	}
	// A replica remembers for a while which account was refused, so another account is let in below.
	if out, code := f.askAs(f.account("knocker", "tenure-page", "pods"), args...); code != 1 ||
		!strings.Contains(out, "tenure-metrics-reader") {
		t.Errorf("without the right to see the page: exit code %d\n%s", code, out)
	}
	kubeconfig := f.account("looker", "tenure-page", "pods")
	f.readsMetrics("looker")
	address, end := f.open(append(args, "--home-kubeconfig", kubeconfig)...)
	base, _, _ := strings.Cut(address, "/status")
	jar, err := cookiejar.New(nil)
	must.Succeed(t, err)
	guest, stranger := &http.Client{Jar: jar}, &http.Client{}
	for _, c := range []struct {
		who       *http.Client
		url, host string
		code      int
		want      string
	}{
		{stranger, base + "/status", "", http.StatusForbidden, "open the address that tenure page printed"},
		{stranger, base + "/status?key=made-up", "", http.StatusForbidden, ""},
		{guest, address, "", http.StatusOK, "<h1>Tenure</h1>"},
		{guest, base + "/status/data", "", http.StatusOK, `"by":"r1"`},
		{guest, base + "/metrics", "", http.StatusNotFound, ""},
		{guest, base + "/status/../metrics", "", http.StatusNotFound, ""},
		{guest, address, "evil.example.com", http.StatusMisdirectedRequest, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
		must.Succeed(t, err)
		request.Host = c.host
		response, err := c.who.Do(request)
		must.Succeed(t, err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.code || !strings.Contains(string(body), c.want) {
			t.Errorf("GET %s of %q: %s, %v, want %d and %q\n%s", c.url, c.host, response.Status, err, c.code, c.want, body)
		}
	}
	if err := end(); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// open runs a command that opens a page and returns its address. end interrupts it and waits.
func (f *fleet) open(args ...string) (address string, end func() error) {
	f.t.Helper()
	command := exec.Command(f.tenure, args...)
	command.Env = append(os.Environ(), "KUBECONFIG=")
	file, err := os.Create(filepath.Join(f.t.TempDir(), "output"))
	must.Succeed(f.t, err)
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	must.Succeed(f.t, command.Start())
	f.t.Cleanup(func() { _ = command.Process.Kill() })
	labtest.Within(f.t, time.Minute, "an address is printed", func() error {
		out, err := os.ReadFile(file.Name())
		if address = regexp.MustCompile(`http://\S+`).FindString(string(out)); address == "" {
			err = errors.Join(err, fmt.Errorf("it says: %s", out))
		}
		return err
	})
	return address, func() error {
		if err := command.Process.Signal(syscall.SIGINT); err != nil {
			return err
		}
		if err := command.Wait(); err != nil {
			out, _ := os.ReadFile(file.Name())
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// pretendPod has the home cluster believe that there is a Pod, on a node whose kubelet forwards ports to this machine:
// the lab's replicas are processes.
func (f *fleet) pretendPod(name string) {
	f.t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(forwardPorts))
	f.t.Cleanup(kubelet.Close)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
	f.create(f.home, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Listener.Addr().(*net.TCPAddr).Port)
	must.Succeed(f.t, f.home.Status().Update(f.t.Context(), node))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node.Name, ServiceAccountName: lab.Account, AutomountServiceAccountToken: new(false),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "manager", Image: "tenure", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	f.create(f.home, pod)
	f.t.Cleanup(func() { _ = f.home.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	pod.Status.Phase = corev1.PodRunning
	must.Succeed(f.t, f.home.Status().Update(f.t.Context(), pod))
}

// forwardPorts is what a kubelet does for kubectl port-forward: two streams a connection, one for errors, one for data.
func forwardPorts(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 16)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	for {
		select {
		case s := <-streams:
			if s.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
				_ = s.Close() // nothing went wrong
				continue
			}
			go func() {
				defer s.Reset()
				to, err := net.DialTimeout("tcp", "127.0.0.1:"+s.Headers().Get(corev1.PortHeader), 5*time.Second)
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, s) }()
				_, _ = io.Copy(s, to)
			}()
		case <-connection.CloseChan():
			return
		}
	}
}
