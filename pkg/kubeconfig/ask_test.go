package kubeconfig

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/conns"
	"github.com/tenure-dev/tenure/test/must"
)

// A page to log in at may come at once, or where a redirect leads.
func TestOnlyAnAPIServersAnswerIsTakenForOne(t *testing.T) {
	const page, version = "<html><title>Log in</title>", `{"major": "1", "gitVersion": "v1.37.2", "unknown": {}}`
	for name, c := range map[string]struct {
		status     int
		kind, body string
		want       int // 0: an error
	}{
		"an API server's":                  {http.StatusOK, "application/json", version, http.StatusOK},
		"a long one":                       {http.StatusOK, "", strings.Repeat(" ", 32<<10) + version, http.StatusOK},
		"one that hides the patch":         {http.StatusOK, "", `{"major": "1", "minor": "37"}`, http.StatusOK},
		"half a version":                   {http.StatusOK, "application/json", `{"major": "1", "error": "log in"}`, 0},
		"it says no type":                  {http.StatusOK, "", version, http.StatusOK},
		"a refusal":                        {http.StatusForbidden, "text/html", page, http.StatusForbidden},
		"a redirect":                       {http.StatusFound, "text/html", page, http.StatusFound},
		"a page":                           {http.StatusOK, "text/html; charset=utf-8", page, 0},
		"a page that came through another": {http.StatusNonAuthoritativeInfo, "text/html", page, 0},
		"JSON":                             {http.StatusOK, "application/json", `{"error": "log in"}`, 0},
		"no object":                        {http.StatusOK, "application/json", `["gitVersion"]`, 0},
		"nothing":                          {http.StatusOK, "application/json", "", 0},
		"no content":                       {http.StatusNoContent, "", "", 0},
		"without an end":                   {http.StatusOK, "application/json", strings.Repeat(" ", mostRead) + version, 0},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				t.Errorf("%s: %s is asked for", name, r.URL.Path)
			}
			w.Header().Set("Content-Type", c.kind)
			w.Header().Set("Location", "/login")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		status, err := Ask(t.Context(), &rest.Config{Host: server.URL}, true)
		server.Close()
		if status != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s: %d, %v; want %d", name, status, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "og in") {
			t.Errorf("%s: it shows what came: %v", name, err)
		}
	}
}

// Of an answer that isn't read, HTTP/2 gives back the room with a frame of its own, and HTTP/1 gives up the connection,
// which can be counted.
func TestAnAnswerIsReadToItsEndSoThatItsConnectionStays(t *testing.T) {
	var code atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(code.Load()))
		fmt.Fprint(w, `{"gitVersion": "v1.37.2"}`)
	}))
	counts := conns.Of(server)
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	for i := range 10 {
		code.Store([]int64{http.StatusOK, http.StatusForbidden}[i%2])
		status, err := Ask(t.Context(), &rest.Config{Host: server.URL, Transport: transport}, false)
		if must.Succeed(t, err); status != int(code.Load()) {
			t.Fatal(status)
		}
	}
	if n := counts.Opened.Load(); n > 3 { // net/http doesn't use a connection again whose writer was 50 ms late
		t.Errorf("%d connections for ten questions, one after the other", n)
	}
}
