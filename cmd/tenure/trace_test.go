package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/expect"
)

func TestTracesAreAskedForByWhatTheyAreAbout(t *testing.T) {
	var operation string
	tags := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operation = r.URL.Query().Get("operation")
		clear(tags)
		if text := r.URL.Query().Get("tags"); text != "" {
			if err := json.Unmarshal([]byte(text), &tags); err != nil {
				t.Error(err)
			}
		}
		_, _ = w.Write([]byte(`{"data":[]}`))
	}))
	defer server.Close()
	for args, want := range map[string]struct {
		operation string
		tags      map[string]string
	}{
		"at/x": {"reconcile At", map[string]string{"k8s.object.name": "x"}},
		"deployment/x -n y --cluster west": {"reconcile Deployment", map[string]string{
			"k8s.object.name": "x", "k8s.namespace.name": "y", "k8s.cluster.name": "west",
		}},
		"west/01": {"handoff west/01", map[string]string{}},
		"west/":   {"handoff west/", map[string]string{}},
		"slowest": {"", map[string]string{}},
		"slowest -n y --cluster west": {"", map[string]string{
			"k8s.namespace.name": "y", "k8s.cluster.name": "west",
		}},
	} {
		operation = "(none)"
		code, _, text := tenure(t, append([]string{"trace", "--jaeger", server.URL}, strings.Fields(args)...)...)
		if code != exitFailed || operation != want.operation || !strings.Contains(text, "no such trace") {
			t.Errorf("%s: exit code %d, asked for %q, %s", args, code, operation, text)
		}
		expect.Equal(t, args+": tags", want.tags, tags)
	}
}

func TestATraceIsFoundByItsIDInUpperCase(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		_, _ = w.Write([]byte(`{"data":[]}`))
	}))
	defer server.Close()
	id := strings.Repeat("0123456789abcdef", 2)
	if _, _, text := tenure(t, "trace", "--jaeger", server.URL, strings.ToUpper(id)); asked != "/api/traces/"+id {
		t.Errorf("asked for %q: %s", asked, text)
	}
}
