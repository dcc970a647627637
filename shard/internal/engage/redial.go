package engage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// Redialing returns a client for requests that each have a deadline. If a deadline passes, and the server has
// answered nothing since that request was sent over a connection that was there, the next request uses another. A
// server that is dead, or cut off, doesn't close its connections, and HTTP/2 would make all requests wait for it for
// 45 s, though behind a load balancer there may be others. A connection that is being made is waited for by the next
// request, too. Credentials and wrappers of the transport are taken from the configuration.
func Redialing(config *rest.Config) (*http.Client, error) {
	r := &redialing{make: func() (http.RoundTripper, error) {
		fresh := rest.CopyConfig(config)
		if fresh.Dial == nil && fresh.Transport == nil { // its own: client-go shares connections between equal configurations
			fresh.Dial = newDial()
		}
		return kubeconfig.TransportFor(fresh)
	}}
	first, err := r.make()
	if err != nil {
		return nil, fmt.Errorf("building the transport of %s: %w", config.Host, err)
	}
	r.by = first
	return &http.Client{Transport: r, Timeout: config.Timeout}, nil
}

// newDial returns what net/http's own transport dials by.
func newDial() func(context.Context, string, string) (net.Conn, error) {
	return dial(&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second})
}

type redialing struct {
	make func() (http.RoundTripper, error)

	mu     sync.Mutex // guards all below
	by     http.RoundTripper
	heard  time.Time // when the server answered last
	making bool      // another transport is being made
}

// makePatience is how long a request waits for another transport. To make one may mean to read certificates, and the
// volume that has them may hang.
const makePatience = 100 * time.Millisecond

func (r *redialing) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	by := r.by
	r.mu.Unlock()
	sent, reused := time.Now(), &atomic.Bool{}
	res, err := by.RoundTrip(notingReuse(req, reused))
	r.mu.Lock()
	if err == nil {
		r.heard = time.Now()
	}
	dead := errors.Is(req.Context().Err(), context.DeadlineExceeded) && reused.Load() && r.by == by &&
		r.heard.Before(sent) && !r.making
	r.making = r.making || dead
	r.mu.Unlock()
	if dead {
		made := make(chan struct{})
		go func() {
			r.replace()
			close(made)
		}()
		select {
		case <-made:
		case <-time.After(makePatience):
		}
	}
	return res, err
}

// replace makes another transport for the next requests.
func (r *redialing) replace() {
	fresh, err := r.make()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.making = false
	if err == nil { // otherwise the last one may still come to life
		utilnet.CloseIdleConnectionsFor(r.by)
		r.by = fresh
	}
}
