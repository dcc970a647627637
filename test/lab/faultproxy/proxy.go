package faultproxy

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config of a proxy.
type Config struct {
	// Upstream is the API server. Its address and CA are used, not its credentials.
	Upstream *rest.Config
	// Second, if there is one, is another API server of the same cluster. Every other request goes to it, as behind a load
	// balancer.
	Second *rest.Config
	// Seed of the choice of requests that a Probability picks.
	Seed uint64
}

// Proxy is one running proxy. It is safe for concurrent use.
type Proxy struct {
	upstreams []*url.URL
	passedOn  [2]atomic.Int64 // requests, by upstream
	turn      atomic.Uint32
	transport *http.Transport
	rules     *rules
	server    *httptest.Server
}

// Start listens on a free port of 127.0.0.1 and serves until Close.
func Start(config Config) (*Proxy, error) {
	upstream, _, err := rest.DefaultServerUrlFor(config.Upstream)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	upstreamTLS, err := rest.TLSConfigFor(config.Upstream)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's CA: %w", err)
	}
	upstreamTLS.Certificates, upstreamTLS.GetClientCertificate = nil, nil
	upstreams := []*url.URL{upstream}
	if config.Second != nil {
		second, _, err := rest.DefaultServerUrlFor(config.Second)
		if err != nil {
			return nil, fmt.Errorf("reading the address of the second API server: %w", err)
		}
		upstreams = append(upstreams, second)
	}
	p := &Proxy{
		upstreams: upstreams, rules: newRules(config.Seed),
		transport: &http.Transport{TLSClientConfig: upstreamTLS, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxIdleConnsPerHost: 64},
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that are killed leave half a handshake behind
	p.server.Config.ConnContext = withPeer
	p.server.StartTLS()
	return p, nil
}

// Close cuts everything and stops listening.
func (p *Proxy) Close() {
	p.rules.endAll()
	p.server.CloseClientConnections()
	p.server.Close()
	p.transport.CloseIdleConnections()
}

// Inject puts a rule into force. Of several that pick a request the oldest acts.
func (p *Proxy) Inject(rule Rule) *Injection { return p.rules.inject(rule) }

// PassedOn is how many requests went on to an API server: 0 is the Upstream, 1 the Second.
func (p *Proxy) PassedOn(to int) int { return int(p.passedOn[to].Load()) }

// URL is where clients connect to.
func (p *Proxy) URL() string { return p.server.URL }

// CA is the certificate that clients must trust, in PEM.
func (p *Proxy) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// Kubeconfig rewrites a kubeconfig so that all its clusters are reached through the proxy. Credentials stay.
func (p *Proxy) Kubeconfig(kubeconfig []byte) ([]byte, error) {
	return Kubeconfig(kubeconfig, p.URL(), p.CA())
}

// Kubeconfig rewrites a kubeconfig so that all its clusters are at a URL whose certificate a CA has signed. Credentials
// stay; without a CA, the one that they have does too.
func Kubeconfig(kubeconfig []byte, url string, ca []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = url
		if ca != nil {
			cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", ca
		}
	}
	return clientcmd.Write(*config)
}

// ServeHTTP serves one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	about := parse(r.Method, r.URL, r.UserAgent())
	about.peer, _ = r.Context().Value(peerKey{}).(*peer)
	rule := p.rules.of(about)
	if rule != nil {
		switch rule.Rule.Fault {
		case Answer:
			answer(w, about, rule.Rule)
			return
		case Blackhole:
			wait(r.Context(), rule.ended)
			cut()
		case CutWatch, Reset:
			cut()
		case Delay:
			if !pause(r.Context(), rule.Rule.Delay) {
				cut()
			}
		}
	}
	response, err := p.forward(r)
	if err != nil {
		if !errors.Is(err, context.Canceled) { // the API server is down: the client sees what it would without us
			cut()
		}
		return
	}
	defer response.Body.Close()
	if rule != nil && rule.Rule.Fault == LoseReply {
		_, _ = io.Copy(io.Discard, response.Body) // the API server has answered in full
		cut()
	}
	if rule != nil && rule.Rule.Fault == DropReplies {
		wait(r.Context(), rule.ended)
		cut()
	}
	if rule != nil && rule.Rule.Fault == Drip && about.verb != "watch" {
		response.Body = &dripping{response.Body, r.Context(), rule}
	}
	p.reply(w, r, about, response)
}

// cut ends the exchange without an answer.
func cut() { panic(http.ErrAbortHandler) }

// forward sends the client's request on.
func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	to := int(p.turn.Add(1)) % len(p.upstreams)
	upstream := p.upstreams[to]
	p.passedOn[to].Add(1)
	out.URL.Scheme, out.URL.Host, out.Host = upstream.Scheme, upstream.Host, upstream.Host
	out.Header.Del("Connection")
	if r.ContentLength == 0 {
		out.Body = nil
	}
	return p.transport.RoundTrip(out)
}

// answer is what an API server says that refuses, or, with status 200, what a proxy shows whose users must log in.
func answer(w http.ResponseWriter, about request, rule Rule) {
	if rule.Status == http.StatusOK {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><title>Log in</title></html>")
		return
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(rule.Status), Reason: reason(rule.Status),
		Message: fmt.Sprintf("fault proxy: %d to %s %s %s", rule.Status, about.verb, about.resource, about.name),
		Details: &metav1.StatusDetails{Name: about.name, Kind: about.resource, RetryAfterSeconds: int32(rule.RetryAfter)},
	}
	body, err := json.Marshal(status)
	if err != nil {
		cut()
	}
	w.Header().Set("Content-Type", "application/json")
	if rule.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(rule.RetryAfter))
	}
	w.WriteHeader(rule.Status)
	_, _ = w.Write(body) // a client that went away needs no answer
}

func reason(status int) metav1.StatusReason {
	switch status {
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusGone:
		return metav1.StatusReasonExpired
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	}
	return metav1.StatusReasonUnknown
}

// wait waits for a channel, or for the client to give up.
func wait(ctx context.Context, until <-chan struct{}) {
	select {
	case <-until:
	case <-ctx.Done():
	}
}

// pause waits for a time; false means that the client gave up.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
