package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenure-dev/tenure/test/must"
)

// hanging is a configuration whose program makes credentials only after a while, or once release was called.
func hanging(t *testing.T, host string) (_ *rest.Config, release func()) {
	t.Helper()
	done := filepath.Join(t.TempDir(), "done")
	script := fmt.Sprintf(`i=0; while [ ! -e %q ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done; echo '%s'`, done,
		`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"late"}}`)
	cfg := &rest.Config{Host: host, ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: "/bin/sh", Args: []string{"-c", script},
	}}
	return cfg, func() {
		t.Helper()
		must.Succeed(t, os.WriteFile(done, nil, 0o600))
	}
}

func TestAProgramThatHangsHoldsNoRequest(t *testing.T) {
	var tokens atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer late" {
			tokens.Add(1)
		}
		_, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`)
	}))
	t.Cleanup(server.Close)
	cfg, release := hanging(t, server.URL)
	reason := errors.New("waited for long enough")
	ask := func(within time.Duration) error {
		ctx, cancel := context.WithTimeoutCause(t.Context(), within, reason)
		defer cancel()
		_, err := Ask(ctx, cfg, false)
		return err
	}
	began := time.Now()
	for i := range mostLeftBehind {
		if err := ask(20 * time.Millisecond); !errors.Is(err, reason) {
			t.Fatalf("question %d: %v", i, err)
		}
	}
	if err := ask(time.Minute); err == nil || !strings.Contains(err.Error(), "doesn't end") {
		t.Errorf("one question too many: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the questions took %v", took)
	}
	another, _ := hanging(t, server.URL) // such as one whose Secret was mended
	another.ExecProvider.Args = []string{"-c", strings.Replace(another.ExecProvider.Args[1], "-lt 600", "-lt 0", 1)}
	if status, err := Ask(t.Context(), another, false); status != http.StatusOK {
		t.Errorf("another program: %d %v", status, err)
	}
	before := tokens.Load()
	release()
	must.Until(t, "it is asked, for the program has ended", func() bool { return ask(20*time.Second) == nil })
	if n := tokens.Load() - before; n != 1 {
		t.Errorf("%d requests were sent, want the one that was waited for alone", n)
	}
}

// answersLate answers when it is told to, whatever the context says.
type answersLate struct {
	now    chan struct{}
	closed chan struct{}
}

func (a *answersLate) RoundTrip(*http.Request) (*http.Response, error) {
	<-a.now
	return &http.Response{StatusCode: http.StatusOK, Body: a}, nil
}

func (a *answersLate) Read([]byte) (int, error) { return 0, errors.New("nobody reads this") }

func (a *answersLate) Close() error {
	close(a.closed)
	return nil
}

func TestAnAnswerThatNobodyWaitsForIsClosed(t *testing.T) {
	late := &answersLate{make(chan struct{}), make(chan struct{})}
	i := &impatient{base: late, left: &atomic.Int64{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://west", nil)
	must.Succeed(t, err)
	if res, err := i.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v %v", res, err)
	}
	if n := i.left.Load(); n != 1 {
		t.Errorf("%d requests are left behind, want 1", n)
	}
	close(late.now)
	<-late.closed
	if n := i.left.Load(); n != 0 {
		t.Errorf("%d requests are left behind in the end", n)
	}
}

func TestWhereNoProgramMakesCredentialsNothingIsBetween(t *testing.T) {
	transport, err := TransportFor(&rest.Config{Host: "http://west", BearerToken: "t"})
	must.Succeed(t, err)
	if _, is := transport.(*impatient); is {
		t.Error("a request has a goroutine of its own")
	}
}
