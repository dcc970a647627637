package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// A watch that ends, with an error or without, goes on where it stopped, unless the API server has forgotten what came
// after that.
func TestAWatchGoesOnUntilChangesAreMissed(t *testing.T) {
	var since []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since = append(since, r.URL.Query().Get("resourceVersion"))
		switch len(since) {
		case 1:
			fmt.Fprintln(w,
				`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"},"status":{"phase":"DONE"}}}`)
		case 2:
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`)
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500}}`)
		case 3:
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}`)
		default:
			t.Errorf("watched again, since %s", since[len(since)-1])
		}
	}))
	defer server.Close()
	client, err := NewClient(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	var seen []string
	err = client.Follow(t.Context(), Ats, "5", func(e Event) {
		seen = append(seen, e.Type+" "+e.Object.Metadata.Name+" "+e.Object.Status.Phase)
	})
	if !errors.Is(err, errGone) || !strings.Contains(err.Error(), "9") {
		t.Errorf("ended with %v, wanted %v, since 9", err, errGone)
	}
	expect.Equal(t, "watched since", []string{"5", "7", "9"}, since)
	expect.Equal(t, "seen", []string{"ADDED a DONE"}, seen)
}

func TestAFeedEndsWithItsContextWithoutAnError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	c, err := NewClient(&rest.Config{Host: s.URL})
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Follow(ctx, Pods, "1", func(Event) {}); err != nil {
		t.Errorf("got %v", err)
	}
}
