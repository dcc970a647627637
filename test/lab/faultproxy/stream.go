package faultproxy

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// pieceSize is how much of an answer is read at once. An event that is longer arrives in several pieces, in order.
const pieceSize = 32 << 10

// piece is what came of an answer at one moment.
type piece struct {
	data []byte
	came time.Time
}

// queue holds pieces between the API server and a client that isn't given them yet.
type queue struct {
	ready chan struct{} // holds a token while there may be news

	mu     sync.Mutex // guards all below
	pieces []piece
	ended  bool
}

func (q *queue) put(data []byte, ended bool) {
	q.mu.Lock()
	if len(data) > 0 {
		q.pieces = append(q.pieces, piece{data, time.Now()})
	}
	q.ended = q.ended || ended
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// first returns the oldest piece; over says that there will never be one.
func (q *queue) first() (p piece, ok, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pieces) == 0 {
		return piece{}, false, q.ended
	}
	return q.pieces[0], true, false
}

// take removes the oldest pieces, those that came until a moment, and returns what they hold.
func (q *queue) take(until time.Time) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	var data []byte
	n := 0
	for ; n < len(q.pieces) && !q.pieces[n].came.After(until); n++ {
		data = append(data, q.pieces[n].data...)
	}
	q.pieces = q.pieces[n:]
	return data
}

// reply passes an answer on, piece by piece, as the rules allow.
func (p *Proxy) reply(w http.ResponseWriter, r *http.Request, about request, response *http.Response) {
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	if about.verb != "watch" {
		var to io.Writer = w
		if _, drips := response.Body.(*dripping); drips {
			to = flushing{w}
		}
		if _, err := io.Copy(to, response.Body); err != nil {
			cut()
		}
		return
	}
	flush(w)
	q := &queue{ready: make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() { fill(q, response.Body) })
	defer reader.Wait()
	defer response.Body.Close() // ends the reader
	p.deliver(w, r, about, q)
}

// flushing hands on at once what is written.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		flush(f.ResponseWriter)
	}
	return n, err
}

// dripping gives an answer byte by byte while a rule is in force.
type dripping struct {
	io.ReadCloser
	ctx  context.Context
	rule *Injection
}

func (d *dripping) Read(p []byte) (int, error) {
	select {
	case <-d.rule.ended:
		return d.ReadCloser.Read(p)
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(d.rule.Rule.Delay):
		return d.ReadCloser.Read(p[:min(1, len(p))])
	}
}

// fill reads an answer to its end.
func fill(q *queue, body io.Reader) {
	buffer := make([]byte, pieceSize)
	for {
		n, err := body.Read(buffer)
		q.put(bytes.Clone(buffer[:n]), err != nil)
		if err != nil {
			return
		}
	}
}

// deliver gives the client the pieces that it may have by now, until the answer ends or the client goes.
func (p *Proxy) deliver(w http.ResponseWriter, r *http.Request, about request, q *queue) {
	seen := map[*Injection]bool{}
	cutAfter := false // a partition befell this answer: it ends with it
	for {
		rule, changed := p.rules.held(about)
		next, ok, over := q.first()
		if rule != nil && (ok || over || !rule.Rule.onlyWatches()) { // all others cut it in the end
			p.rules.suffers(rule, seen)
		}
		var due <-chan time.Time
		switch {
		case rule == nil && cutAfter, rule != nil && rule.Rule.Fault == CutWatch && ok,
			rule != nil && rule.Rule.Fault == Reset:
			cut()
		case rule == nil && ok, rule != nil && rule.Rule.Fault == DelayWatch && ok &&
			time.Since(next.came) >= rule.Rule.Delay:
			until := time.Now()
			if rule != nil {
				until = until.Add(-rule.Rule.Delay)
			}
			if _, err := w.Write(q.take(until)); err != nil {
				return
			}
			flush(w)
			continue
		case over && (rule == nil || rule.Rule.Fault == DelayWatch):
			return
		case rule != nil && rule.Rule.Fault == DelayWatch && ok:
			due = time.After(time.Until(next.came.Add(rule.Rule.Delay)))
		case rule != nil && (rule.Rule.Fault == DropReplies || rule.Rule.Fault == Blackhole):
			cutAfter = true
		}
		select {
		case <-q.ready:
		case <-changed:
		case <-due:
		case <-r.Context().Done():
			return
		}
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
