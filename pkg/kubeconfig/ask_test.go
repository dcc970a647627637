package kubeconfig

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/conns"
	"github.com/tenure-dev/tenure/test/must"
)

// Of an answer that isn't read, HTTP/2 gives back the room with a frame of its own, and HTTP/1 gives up the connection,
// which can be counted.
func TestAnAnswerIsReadToItsEndSoThatItsConnectionStays(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.37.2"}`)
	}))
	counts := conns.Of(server)
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	for range 10 {
		status, err := Ask(t.Context(), &rest.Config{Host: server.URL, Transport: transport}, false)
		if must.Succeed(t, err); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	if n := counts.Opened.Load(); n > 3 { // net/http doesn't use a connection again whose writer was 50 ms late
		t.Errorf("%d connections for ten questions, one after the other", n)
	}
}
