package engage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/must"
)

// Something between may answer for a server that has gone.
func TestAWatchIsNotBelievedForEver(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		every time.Duration // something comes
		query string
		ends  time.Duration
		err   error
	}{
		"silent, though bookmarks are due": {day, "timeoutSeconds=400&allowWatchBookmarks=true", watchSilence, nil},
		"bookmarks come, and nobody ends it": {time.Minute, "timeoutSeconds=400&allowWatchBookmarks=true",
			400*time.Second + watchGrace, context.DeadlineExceeded},
		"bookmarks come, without an end": {time.Minute, "allowWatchBookmarks=true", time.Hour, nil},
		"silent, and may be so":          {day, "timeoutSeconds=400", 400*time.Second + watchGrace, context.DeadlineExceeded},
	} {
		// The home cluster's watches go one way, those of shards and of what isn't fenced another.
		for way, transport := range map[string]func(http.RoundTripper) http.RoundTripper{
			"home":    Noting,
			"cluster": func(base http.RoundTripper) http.RoundTripper { return Unfenced(base, &Breaker{}) },
		} {
			bubble.Run(t, name+", "+way, func(t *testing.T) {
				began := time.Now()
				_, _, err := read(t.Context(), t, transport(&dripping{c.every, 60}), http.MethodGet,
					"https://home/api/v1/secrets?watch=true&"+c.query)
				if took := time.Since(began); !errors.Is(err, c.err) || took != c.ends {
					t.Errorf("it ended after %v: %v; want %v and %v", took, err, c.ends, c.err)
				}
				time.Sleep(day) // no timer is left
			})
		}
	}
}

func TestAWatchThatIsNeverAnsweredIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		res, err := send(t.Context(), Noting(silent), http.MethodGet,
			"https://home/api/v1/secrets?watch=true&timeoutSeconds=400&allowWatchBookmarks=true")
		if took := time.Since(began); err == nil || took != watchSilence {
			t.Errorf("%v, %v after %v", res, err, took)
		}
	})
}

// Whoever keeps the stream of a server open that has gone may keep it until its cluster was restored: a watch that is
// resumed from a later version than that of the restored cluster would be silent for good. So is one that follows a
// stream which ended in order, when traffic was turned over to the restored cluster.
func TestAStreamThatWasLostIsFollowedByAList(t *testing.T) {
	const silence, something, theEnd = "", "x", "."
	for name, c := range map[string]struct {
		streams []string // what comes by each at once; then it is silent, or ends
		lists   bool
	}{
		"silent from the beginning":         {[]string{silence, silence}, false},
		"silent after something had come":   {[]string{something}, true},
		"silent, and the one before wasn't": {[]string{something + theEnd, silence}, true},
		"they end in order":                 {[]string{something + theEnd, theEnd, something + theEnd}, false},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			var stream string
			transport := Noting(servers(func(req *http.Request) (*http.Response, error) {
				body := io.Reader(strings.NewReader(stream))
				if !strings.HasSuffix(stream, theEnd) {
					body = io.MultiReader(body, &drip{dripping: dripping{24 * time.Hour, 60}, ctx: req.Context()})
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
			}))
			lw := toolscache.ToListerWatcherWithContext(Live(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return emptyList(), nil
				},
				WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet,
						"https://home/api/v1/secrets?watch=true&allowWatchBookmarks=true", nil)
					if err != nil {
						return nil, err
					}
					res, err := transport.RoundTrip(req)
					if err != nil {
						return nil, err
					}
					_, err = io.ReadAll(res.Body)
					return watch.NewEmptyWatch(), errors.Join(err, res.Body.Close())
				},
			}, time.Second, func(error) {}))
			follow := func() error {
				_, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
				return err
			}
			for _, stream = range c.streams {
				must.Succeed(t, follow())
			}
			err := follow()
			if lists := apierrors.IsResourceExpired(err); lists != c.lists || !lists && err != nil {
				t.Errorf("the next watch: %v; is it to be followed by a list? %v", err, c.lists)
			}
			_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
			must.Succeed(t, err)
			stream = silence
			if err := errors.Join(follow(), follow()); err != nil {
				t.Errorf("silent since the list: %v", err)
			}
		})
	}
}

// A watch goes on by another one. Nothing follows a log: whoever reads it has to learn that the rest is missing.
func TestALogThatIsCutDoesNotLookComplete(t *testing.T) {
	transport := Noting(servers(func(*http.Request) (*http.Response, error) {
		cut := io.MultiReader(strings.NewReader("a line"), iotest.ErrReader(io.ErrUnexpectedEOF))
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(cut)}, nil
	}))
	_, log, err := read(t.Context(), t, transport, http.MethodGet,
		"https://west/api/v1/namespaces/n/pods/p/log?follow=true")
	if log != "a line" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %q, %v", log, err)
	}
}

// client-go reads all of an answer to a watch that is no stream, and doesn't close one that it can't decode.
func TestAnAnswerToAWatchThatIsNoStreamIsBounded(t *testing.T) {
	const html, json = "text/html; charset=utf-8", "application/json"
	for name, c := range map[string]struct {
		status int
		kind   string
		query  string
		want   int
		whole  bool // all of the body comes
	}{
		"an error":                  {http.StatusInternalServerError, json, "watch=1", http.StatusInternalServerError, false},
		"a refusal":                 {http.StatusForbidden, json, "watch=1", http.StatusForbidden, false},
		"a page to log in at":       {http.StatusOK, html, "watch=1", http.StatusServiceUnavailable, false},
		"text":                      {http.StatusOK, "text/plain", "watch=1", http.StatusServiceUnavailable, false},
		"a stream":                  {http.StatusOK, json, "watch=1", http.StatusOK, true},
		"a stream of no named type": {http.StatusOK, "", "watch=1", http.StatusOK, true},
		"a stream in binary": {http.StatusOK, "application/vnd.kubernetes.protobuf;stream=watch", "watch=1",
			http.StatusOK, true},
		"a log that is followed": {http.StatusOK, "text/plain", "follow=true", http.StatusOK, true},
	} {
		for way, transport := range map[string]func(http.RoundTripper) http.RoundTripper{
			"home":    Noting,
			"cluster": func(base http.RoundTripper) http.RoundTripper { return Unfenced(base, &Breaker{}) },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				const size = largestObject + 1<<20
				var closed atomic.Bool
				by := transport(servers(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}},
						Body: leaving{io.LimitReader(zeros{}, size), &closed}}, nil
				}))
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a/api/v1/pods?"+c.query, nil)
				must.Succeed(t, err)
				res, err := by.RoundTrip(req)
				must.Succeed(t, err)
				if replaced := c.status != c.want; closed.Load() != replaced {
					t.Errorf("its body is closed: %v, and nobody has read it", closed.Load())
				}
				n, err := io.Copy(io.Discard, res.Body)
				if res.StatusCode != c.want || (n == size && err == nil) != c.whole {
					t.Errorf("%d, of which %d bytes came, error %v", res.StatusCode, n, err)
				}
			})
		}
	}
}

// leaving is a body that says that it was closed.
type leaving struct {
	io.Reader
	closed *atomic.Bool
}

func (l leaving) Close() error {
	l.closed.Store(true)
	return nil
}
