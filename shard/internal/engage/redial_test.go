package engage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenure-dev/tenure/test/must"
)

// freezer passes connections on to a server. What it has passed on until it is told to freeze stays open, and nothing
// more comes through.
type freezer struct {
	net.Listener
	to     string
	takes  time.Duration // to connect
	mu     sync.Mutex    // guards frozen
	frozen []*atomic.Bool
	dials  atomic.Int32
}

func (f *freezer) run() {
	for {
		from, err := f.Accept()
		if err != nil {
			return
		}
		f.dials.Add(1)
		time.Sleep(f.takes)
		to, err := net.Dial("tcp", f.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		still := &atomic.Bool{}
		f.mu.Lock()
		f.frozen = append(f.frozen, still)
		f.mu.Unlock()
		pass := func(into, out net.Conn) {
			defer into.Close()
			defer out.Close()
			buffer := make([]byte, 1<<14)
			for {
				n, err := out.Read(buffer)
				if err != nil {
					return
				}
				if !still.Load() {
					_, _ = into.Write(buffer[:n])
				}
			}
		}
		go pass(to, from)
		go pass(from, to)
	}
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, still := range f.frozen {
		still.Store(true)
	}
}

func TestARequestGoesOverAnotherConnectionOnceOneHasDied(t *testing.T) {
	arrived, over := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-over:
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer close(over)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	between := &freezer{Listener: listener, to: server.Listener.Addr().String()}
	defer listener.Close()
	go between.run()
	c, err := Redialing(&rest.Config{Host: "https://" + listener.Addr().String(),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	must.Succeed(t, err)
	defer c.CloseIdleConnections()
	get := func(path string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+listener.Addr().String()+path, nil)
		if err != nil {
			return err
		}
		res, err := c.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.Body.Close()
	}
	must.Succeed(t, get("/", 10*time.Second))
	// A request that takes too long beside others that don't says nothing of the connection.
	slow := make(chan error, 1)
	go func() { slow <- get("/slow", 8*time.Second) }() // so that others are answered meanwhile, whatever the machine does
	for range 12 {
		time.Sleep(150 * time.Millisecond)
		must.Succeed(t, get("/", 10*time.Second))
	}
	if err := <-slow; err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		t.Fatalf("the slow request: %v", err)
	}
	if n := between.dials.Load(); n != 1 {
		t.Fatalf("%d connections to a server that answers", n)
	}
	<-arrived
	go func() { _ = get("/slow", time.Minute) }() // so that the connection is in use and can't be closed
	<-arrived
	between.freeze()
	if err := get("/", 500*time.Millisecond); err == nil {
		t.Fatal("a dead connection answers")
	}
	if err := get("/", 10*time.Second); err != nil {
		t.Errorf("after a connection has died: %v", err)
	}
	if n := between.dials.Load(); n != 2 {
		t.Errorf("%d connections, want the dead one and another", n)
	}
}

// deadServer is one that never answers, over a connection that is there.
type deadServer struct{}

func (deadServer) RoundTrip(req *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{Reused: true})
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// liveServer is one that answers at once.
type liveServer struct{}

func (liveServer) RoundTrip(*http.Request) (*http.Response, error) { return &http.Response{}, nil }

// To make a connection may mean to read certificates.
func TestAVolumeThatHangsHoldsUpNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var makes atomic.Int32
		release := make(chan struct{})
		r := &redialing{by: deadServer{}, make: func() (http.RoundTripper, error) {
			makes.Add(1)
			<-release
			return liveServer{}, nil
		}}
		ask := func() (took time.Duration, err error) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://home", nil)
			must.Succeed(t, err)
			_, err = r.RoundTrip(req) //nolint:bodyclose // it has none
			return time.Since(began), err
		}
		for range 3 {
			if took, err := ask(); err == nil || took > time.Second+makePatience {
				t.Errorf("a request over a dead connection ends after %v (%v)", took, err)
			}
		}
		if n := makes.Load(); n != 1 {
			t.Errorf("%d connections are being made, want one", n)
		}
		close(release)
		synctest.Wait()
		if _, err := ask(); err != nil {
			t.Errorf("once the volume is back: %v", err)
		}
	})
}

// A name server that is dead, or a slow proxy, lets each connection take longer than a request may.
func TestAConnectionThatTakesLongIsWaitedFor(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(150 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"uid":"u"}}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for name, client := range map[string]func(*rest.Config) (ask func(context.Context) error, failed func()){
		"home": func(config *rest.Config) (func(context.Context) error, func()) {
			c, err := Redialing(config)
			must.Succeed(t, err)
			return func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host, nil)
				must.Succeed(t, err)
				res, err := c.Do(req)
				if err == nil {
					_ = res.Body.Close()
				}
				return err
			}, func() {}
		},
		"a cluster": func(config *rest.Config) (func(context.Context) error, func()) {
			c, err := Connect(configured{config: config})
			must.Succeed(t, err)
			return func(ctx context.Context) error { _, err := c.Identify(ctx); return err }, c.Redial
		},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		defer listener.Close()
		go (&freezer{Listener: listener, to: server.Listener.Addr().String(), takes: 600 * time.Millisecond}).run()
		ask, failed := client(&rest.Config{Host: "https://" + listener.Addr().String(),
			TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
		for began := time.Now(); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			err := ask(ctx)
			cancel()
			if err == nil {
				break
			}
			if failed(); time.Since(began) > 20*time.Second {
				t.Fatalf("%s is never reached: %v", name, err)
			}
		}
	}
}

// client-go waits for such a program without heed of a request's context: nobody would hear of the renewals that fail.
func TestARequestToHomeEndsWithItsContextWhileTheProgramOfItsCredentialsHangs(t *testing.T) {
	hangs := filepath.Join(t.TempDir(), "hangs")
	must.Succeed(t, os.WriteFile(hangs, nil, 0o600))
	home, err := Redialing(&rest.Config{Host: "http://127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: "/bin/sh", Args: []string{"-c", fmt.Sprintf("while [ -e %q ]; do sleep 0.1; done", hangs)},
	}})
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1", nil)
	must.Succeed(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := home.Do(req)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the request goes on")
	}
	must.Succeed(t, os.Remove(hangs))
}
