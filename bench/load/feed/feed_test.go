package feed

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/must"
)

// A watch that ends with an error goes on where it stopped, unless the API server has forgotten what came after that.
func TestAWatchGoesOnUntilChangesAreMissed(t *testing.T) {
	var since []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since = append(since, r.URL.Query().Get("resourceVersion"))
		switch len(since) {
		case 1:
			fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}`)
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`)
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500}}`)
		case 2:
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}`)
		default:
			t.Errorf("watched again, since %s", since[len(since)-1])
		}
	}))
	defer server.Close()
	client, err := NewClient(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	var seen []string
	err = client.Follow(t.Context(), Ats, "5", func(e Event) { seen = append(seen, e.Type+" "+e.Object.Metadata.Name) })
	if !errors.Is(err, errGone) {
		t.Errorf("ended with %v, wanted %v", err, errGone)
	}
	if diff := cmp.Diff([]string{"5", "9"}, since); diff != "" {
		t.Errorf("watched since (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ADDED a"}, seen); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
}
