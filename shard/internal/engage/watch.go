package engage

import (
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// watchGrace is how much later than it was asked to a server may end a watch.
	watchGrace = 30 * time.Second
	// watchSilence is for how long a watch with bookmarks may send nothing. API servers send one every
	// minute, or every other one while nothing of the kind changes.
	watchSilence = 200 * time.Second
)

// Noting is a transport that records for a [Live] list-watch which attempts weren't answered. It also keeps the
// client itself from waiting for more than a few seconds, whatever a server asks for. Without it, attempts that
// client-go repeats by itself go unnoticed: behind a load balancer no connection is refused.
func Noting(base http.RoundTripper) http.RoundTripper { return &noting{base} }

type noting struct{ base http.RoundTripper }

func (n *noting) RoundTrip(req *http.Request) (*http.Response, error) {
	if watches(req) {
		return beginWatch(req, nil, n.base)
	}
	res, err := n.base.RoundTrip(req)
	if err == nil {
		tellRetryAfter(req.Context(), nil, res)
	}
	return res, err
}

// WrappedRoundTripper returns the inner transport.
func (n *noting) WrappedRoundTripper() http.RoundTripper { return n.base }

// watches reports whether the answer to a request goes on until somebody ends it: a watch, or a log that is followed.
func watches(req *http.Request) bool {
	if req.Method != http.MethodGet {
		return false
	}
	query := req.URL.Query()
	return query.Get("watch") != "" || query.Get("follow") == "true"
}

// beginWatch sends a request to watch to a cluster, nil for home. What is between may keep a stream open whose server
// has gone, and answer for it whatever a connection is asked. So the stream is given up when the server was to end it,
// and is ended when not even a bookmark has come for watchSilence: a reflector resumes it then, or lists (see
// streamHistory). A server that sends no bookmarks is asked a little more often than it would be.
func beginWatch(req *http.Request, of *Breaker, base http.RoundTripper) (*http.Response, error) {
	ctx, query := req.Context(), req.URL.Query()
	longest := time.Duration(math.MaxInt64)
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		longest = time.Duration(min(seconds, 24*3600))*time.Second + watchGrace
	}
	bounded, cancel := context.WithTimeout(ctx, longest)
	w := &watchBody{cancel: cancel}
	w.history, w.goesOn = historyOf(ctx)
	giveUp := func() {
		w.givenUp.Store(true)
		cancel()
	}
	if query.Get("allowWatchBookmarks") == "true" {
		w.quiet = time.AfterFunc(watchSilence, giveUp)
	}
	res, err := base.RoundTrip(req.WithContext(bounded))
	if err == nil && query.Get("watch") != "" && !streams(req.URL.Path) {
		boundRefusal(res)
	}
	if ctx.Err() == nil {
		noteAttempt(ctx, res, err)
	}
	if err != nil {
		w.end()
		return nil, err
	}
	tellRetryAfter(ctx, of, res)
	w.hears()
	// Not before the answer: an attempt to see whether anybody is there must not be given up.
	if in, owed := w.history.due(); owed && res.StatusCode == http.StatusOK {
		w.owed = time.AfterFunc(in, giveUp)
	}
	w.ReadCloser, res.Body = res.Body, w
	return res, nil
}

// boundRefusal bounds an answer to a watch that isn't a stream of events: client-go reads all of it. Of a stream in a
// form that it can't decode, client-go would never close the body, so that becomes a 503 without one.
func boundRefusal(res *http.Response) {
	if res.StatusCode != http.StatusOK {
		res.Body = &countedBody{ReadCloser: res.Body, page: &page{most: largestObject}}
		return
	}
	switch form, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); form {
	case "", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeCBORSequence:
	default:
		_ = res.Body.Close()
		res.Body = http.NoBody
		unavailable(res)
	}
}

// watchBody is the stream of a watch.
type watchBody struct {
	io.ReadCloser
	cancel context.CancelFunc
	quiet  *time.Timer // fires when the stream was silent for too long; nil if it may be
	owed   *time.Timer // fires when a list is due; nil if none is owed
	// givenUp says that a timer has fired.
	givenUp atomic.Bool
	closed  atomic.Bool // by the reader
	history *streamHistory
	goesOn  bool // by another watch, once the stream has ended
}

func (w *watchBody) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.history.hears()
		w.hears()
	}
	if final := w.givenUp.Load(); err != nil && (final || w.isCut(err)) {
		w.history.ended(final)
		if final || w.goesOn {
			err = io.EOF // a reflector begins the next watch without a pause then
		}
	}
	return n, err
}

// isCut reports whether the stream ended neither in order nor because of the reader.
func (w *watchBody) isCut(err error) bool {
	return !errors.Is(err, io.EOF) && !w.closed.Load() && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded)
}

func (w *watchBody) Close() error {
	w.closed.Store(true)
	defer w.end()
	return w.ReadCloser.Close()
}

func (w *watchBody) hears() {
	if w.quiet != nil {
		w.quiet.Reset(watchSilence)
	}
}

func (w *watchBody) end() {
	for _, timer := range []*time.Timer{w.quiet, w.owed} {
		if timer != nil {
			timer.Stop()
		}
	}
	w.cancel()
}
