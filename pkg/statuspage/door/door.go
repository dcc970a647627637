// Package door opens the status page of a replica on the caller's own machine, with the caller's own credentials. The
// command `tenure page` calls it.
//
// The connection is a port-forward through the API server of the home cluster, so replicas need no address that can
// be reached from outside. The replica has the API server check the token and whether its user may see the page, as
// it does for Prometheus.
//
// # Considerations
//
// The replica receives the token, so an attacker who has taken over a replica's Pod could keep it. With
// [Options].ServiceAccount the replica gets a token of that service account instead, which needs no right but to see
// the page.
//
// The local port adds the token to every request that it forwards, so it must not serve everybody who can connect to
// it. The first request has to present the key that is part of the printed address, and gets a cookie. All others
// have to present the cookie. (A browser gives the cookie to any server at the same address that is asked for
// /status, at other ports, too: don't use it to visit servers of other users of the machine meanwhile.) A request with
// another Host header than the port's own address is refused, against DNS rebinding. Only the page and its parts can be
// read.
package door

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/transport/spdy"

	"github.com/tenure-dev/tenure/pkg/statuspage"
)

// patience is how long one answer of the API server or of the replica may take. A test shortens it.
var patience = 20 * time.Second

// Options say whose page is opened, how and where.
type Options struct {
	// Namespace is that of the replicas. Selector are the labels of their Pods. Pod names one of them; "" means any
	// that is ready.
	Namespace, Selector, Pod string
	// Port of metrics and page.
	Port int
	// Plain is whether the replicas serve them without TLS and authorization.
	Plain bool
	// ServiceAccount of the replicas' namespace whose token is presented instead of the caller's; "" means the caller's.
	ServiceAccount string
	// Listen is the loopback address to open the page at.
	Listen string
}

// Check returns what makes no sense in the options, by the name of its flag.
func (o Options) Check() error {
	if _, err := labels.Parse(o.Selector); err != nil {
		return fmt.Errorf("--selector %q: %w", o.Selector, err)
	}
	for _, f := range []struct{ name, value string }{{"pod", o.Pod}, {"service-account", o.ServiceAccount}} {
		if problems := validation.IsDNS1123Subdomain(f.value); f.value != "" && len(problems) > 0 {
			return fmt.Errorf("--%s %q: %s", f.name, f.value, strings.Join(problems, "; "))
		}
	}
	switch {
	case o.Port < 1 || o.Port > 65535:
		return fmt.Errorf("--metrics-port %d: must be from 1 to 65535", o.Port)
	case o.Plain && o.ServiceAccount != "":
		return errors.New("--service-account: not with --plain, which presents no token to anybody")
	}
	_, err := o.address()
	return err
}

// address returns the address to listen at, which only this machine may reach.
func (o Options) address() (*net.TCPAddr, error) {
	address, err := net.ResolveTCPAddr("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", o.Listen, err)
	}
	if !address.IP.IsLoopback() {
		return nil, fmt.Errorf("--listen %s: must be a loopback address: who reaches it looks with your credentials",
			o.Listen)
	}
	return address, nil
}

// Open opens the page, calls ready with its address, and keeps it open until the context ends or the way to the replica
// breaks.
func Open(ctx context.Context, home *rest.Config, o Options, ready func(pod, address string)) error {
	listener, err := o.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	clients, err := kubernetes.NewForConfig(home)
	if err != nil {
		return fmt.Errorf("connecting to the home cluster: %w", err)
	}
	pod, err := o.pod(ctx, clients)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	port, err := o.forward(ctx, home, clients, pod, cancel)
	if err != nil {
		return err
	}
	caller, err := o.caller(ctx, home, clients)
	if err != nil {
		return err
	}
	replica := &url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	if o.Plain {
		replica.Scheme = "http"
	}
	if err := o.try(ctx, caller, replica); err != nil {
		return err
	}
	key := rand.Text()
	server := &http.Server{Handler: guard(listener.Addr().String(), key, proxy(replica, caller)),
		ReadHeaderTimeout: 10 * time.Second}
	go func() { cancel(server.Serve(listener)) }()
	defer server.Close()
	ready(pod, "http://"+listener.Addr().String()+statuspage.Path+"?key="+key)
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// pod returns the name of the Pod whose page is opened.
func (o Options) pod(ctx context.Context, clients kubernetes.Interface) (string, error) {
	if o.Pod != "" {
		return o.Pod, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods, err := clients.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: o.Selector})
	if err != nil {
		return "", fmt.Errorf("looking for the replicas' Pods (--pod names one): %w", err)
	}
	for _, p := range pods.Items {
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return p.Name, nil
		}
	}
	if len(pods.Items) == 0 {
		return "", fmt.Errorf("there is no Pod with %s in namespace %s: --namespace and --selector say where replicas are",
			o.Selector, o.Namespace)
	}
	return "", fmt.Errorf("none of the %d Pods with %s in namespace %s is ready: --pod names one all the same",
		len(pods.Items), o.Selector, o.Namespace)
}

// forward makes a port of this machine one of the Pod's, for as long as the context lasts.
func (o Options) forward(ctx context.Context, home *rest.Config, clients kubernetes.Interface, pod string,
	broken context.CancelCauseFunc) (uint16, error) {
	way, upgrader, err := spdy.RoundTripperFor(home)
	if err != nil {
		return 0, fmt.Errorf("connecting to the home cluster: %w", err)
	}
	to := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(o.Namespace).Name(pod).SubResource(
		"portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: way}, http.MethodPost, to)
	opened := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesWithContext(ctx, dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", o.Port)}, opened, io.Discard, io.Discard)
	if err != nil {
		return 0, fmt.Errorf("forwarding a port to Pod %s: %w", pod, err)
	}
	failed := make(chan error, 1)
	go func() {
		err := forwarder.ForwardPorts()
		failed <- err
		broken(fmt.Errorf("the way to Pod %s is closed: %w", pod, errors.Join(err, io.EOF)))
	}()
	select {
	case <-opened:
	case err := <-failed:
		return 0, fmt.Errorf("forwarding a port to Pod %s/%s: %w", o.Namespace, pod, err)
	case <-time.After(patience):
		return 0, fmt.Errorf("forwarding a port to Pod %s/%s: no answer from %s within %v", o.Namespace, pod,
			home.Host, patience)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, fmt.Errorf("forwarding a port to Pod %s: %w", pod, err)
	}
	return ports[0].Local, nil
}

// caller returns a transport that presents the caller's token, or the service account's.
func (o Options) caller(ctx context.Context, home *rest.Config,
	clients kubernetes.Interface) (http.RoundTripper, error) {
	// The certificate isn't verified. The API server vouches for the replica: the connection is a stream to its Pod.
	base := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if o.Plain {
		return base, nil
	}
	if o.ServiceAccount != "" {
		tokens := transport.NewCachedTokenSource(&accountTokens{ctx, clients, o.Namespace, o.ServiceAccount})
		if _, err := tokens.Token(); err != nil {
			return nil, err
		}
		return transport.ResettableTokenSourceWrapTransport(tokens)(base), nil
	}
	own := rest.AnonymousClientConfig(home)
	own.BearerToken, own.BearerTokenFile, own.ExecProvider, own.AuthProvider = home.BearerToken, home.BearerTokenFile,
		home.ExecProvider, home.AuthProvider
	config, err := own.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("reading your credentials: %w", err)
	}
	return transport.HTTPWrappersForConfig(config, base)
}

// noToken says why the replica doesn't know who asks.
func (o Options) noToken() string {
	if o.ServiceAccount != "" {
		return fmt.Sprintf("the replica's home cluster doesn't accept the token of service account %s/%s: see whether "+
			"its home is another cluster than this one", o.Namespace, o.ServiceAccount)
	}
	return "your kubeconfig logs in with a client certificate, and a replica can only check tokens: give " +
		"--service-account NAME (docs/operate.md#rights)"
}

// try asks for the page once, and says in plain words why it can't be had.
func (o Options) try(ctx context.Context, caller http.RoundTripper, replica *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, replica.String()+statuspage.Path, nil)
	if err != nil {
		return err
	}
	res, err := caller.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("asking the replica for its page (--metrics-port, --plain): %w", err)
	}
	res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return errors.New(o.noToken())
	case http.StatusInternalServerError: // controller-runtime's answer to a bad token, and to a home that can't tell
		return errors.New(o.noToken() + ". Or it may not ask the home cluster about tokens (cluster role " +
			"tenure-metrics-auth): its log says so")
	case http.StatusForbidden:
		who := "you"
		if o.ServiceAccount != "" {
			who = fmt.Sprintf("service account %s/%s", o.Namespace, o.ServiceAccount)
		}
		return fmt.Errorf("%s may not look at the page: it takes the cluster role tenure-metrics-reader", who)
	case http.StatusNotFound:
		return errors.New("the replica has no page: one with --sharding=off has none")
	}
	return fmt.Errorf("the replica answers %s", res.Status)
}

func (o Options) listen() (net.Listener, error) {
	address, err := o.address()
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w; name another port, or 0 for any", o.Listen, err)
	}
	return listener, nil
}

// proxy passes requests on to the replica, as the caller.
func proxy(replica *url.URL, caller http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     caller,
		FlushInterval: -1, // the page lives from a stream
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(replica)
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
		},
	}
}

// accountTokens requests tokens of a service account. A token counts as expired when four fifths of its life are
// over.
type accountTokens struct {
	ctx             context.Context
	clients         kubernetes.Interface
	namespace, name string
}

func (a *accountTokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	asked := time.Now()
	answer, err := a.clients.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, a.name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for a token of service account %s/%s: %w", a.namespace, a.name, err)
	}
	life := answer.Status.ExpirationTimestamp.Sub(asked)
	return &oauth2.Token{AccessToken: answer.Status.Token, Expiry: asked.Add(life * 4 / 5)}, nil
}

// guard lets requests through to the page alone, if they know the key and name the right host.
func guard(address, key string, next http.Handler) http.Handler {
	knows := func(text string) bool { return subtle.ConstantTimeCompare([]byte(text), []byte(key)) == 1 }
	// Cookies aren't kept apart by port: another page that is open at the same time needs a cookie of another name.
	cookie := "tenure-page-" + address[strings.LastIndexByte(address, ':')+1:]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != address && r.Host+":80" != address: // browsers leave out the usual port
			http.Error(w, "this is "+address, http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead,
			r.URL.Path != statuspage.Path && !strings.HasPrefix(r.URL.Path, statuspage.Path+"/") ||
				strings.Contains(r.URL.Path, ".."):
			http.Error(w, "only the status page is here", http.StatusNotFound)
		case knows(r.URL.Query().Get("key")):
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: key, Path: statuspage.Path, HttpOnly: true,
				SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, statuspage.Path, http.StatusFound) // removes the key from the browser's address
		default:
			if c, err := r.Cookie(cookie); err != nil || !knows(c.Value) {
				http.Error(w, "open the address that tenure page printed", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		}
	})
}
