package statuspage

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/inspect"
)

// Path is where the page is on the metrics server.
const Path = "/status"

const (
	// streamFor bounds one stream, in case its reader went away unnoticed. A browser reconnects by itself.
	streamFor = 10 * time.Minute
	// writeFor bounds one write of a stream: a reader that doesn't read must not hold up the end of the process.
	writeFor = 10 * time.Second
)

//go:embed assets
var assets embed.FS

// Config says what a page shows.
type Config struct {
	// Replica is the name of this replica. Namespace is that of the records.
	Replica, Namespace string
	// Records of the fleet, from a cache. They are only read.
	Records func(context.Context) (inspect.Records, error)
	// Metrics of this process: its queues, and which clusters it can use.
	Metrics prometheus.Gatherer
	// Every is the time between two views. Default 1 s. Pages take half a minute without one for an outage.
	Every time.Duration
}

// Page is the handler. It is safe for concurrent use.
type Page struct {
	cfg     Config
	now     func() time.Time
	stopped chan struct{} // closed to end all streams

	mu    sync.Mutex // guards all below; held while a view is made, so that all requests that wait share it
	watch watch
	made  time.Time
	took  time.Duration
	view  []byte
}

// New returns a page; see SetupWithManager.
func New(cfg Config) *Page {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	return &Page{cfg: cfg, now: time.Now, stopped: make(chan struct{}), watch: newWatch()}
}

// SetupWithManager puts the page on the manager's metrics server, and ends its streams when the manager stops.
func (p *Page) SetupWithManager(mgr manager.Manager) error {
	for _, pattern := range []string{Path, Path + "/", "/{$}"} {
		if err := mgr.AddMetricsServerExtraHandler(pattern, p); err != nil {
			return fmt.Errorf("adding the status page to the metrics server: %w", err)
		}
	}
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("adding the status page to the manager: %w", err)
	}
	return nil
}

// Start ends the streams when the context ends.
func (p *Page) Start(ctx context.Context) error {
	<-ctx.Done()
	close(p.stopped)
	return nil
}

// NeedLeaderElection returns false, since every replica serves the page.
func (p *Page) NeedLeaderElection() bool { return false }

// ServeHTTP serves the page, its parts, the view as JSON and the stream of views.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
		return
	}
	if up, ok := map[string]string{"/": ".", Path + "/": ".."}[r.URL.Path]; ok {
		// The page's links are relative, so that it works behind a proxy that adds a prefix; so is this one.
		h.Set("Location", up+Path)
		w.WriteHeader(http.StatusFound)
		return
	}
	switch name := strings.Trim(strings.TrimPrefix(r.URL.Path, Path), "/"); name {
	case "":
		p.serveAsset(w, "index.html")
	case "events":
		p.stream(w, r)
	case "data":
		p.serveView(w, r)
	default:
		p.serveAsset(w, name)
	}
}

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

func (p *Page) serveAsset(w http.ResponseWriter, name string) {
	content, err := fs.ReadFile(assets, "assets/"+name)
	if err != nil || types[path.Ext(name)] == "" {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	_, _ = w.Write(content) // an error means that the client went away
}

func (p *Page) serveView(w http.ResponseWriter, r *http.Request) {
	view, err := p.current(r.Context())
	if err != nil {
		http.Error(w, text.Line(err.Error(), text.Note), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(view)
}

// stream sends a view each time there is a new one.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return // nothing of the stream would be sent, so nobody would notice that the reader went away
	}
	out := http.NewResponseController(w)
	bound := func() { _ = out.SetWriteDeadline(time.Now().Add(writeFor)) } // not every writer of a test has one
	defer bound()                                                          // what is left to write is written behind this
	end := time.NewTimer(streamFor)
	defer end.Stop()
	for {
		view, err := p.current(r.Context())
		bound()
		if err != nil {
			_, err = fmt.Fprintf(w, "event: trouble\ndata: %s\n\n", text.Line(err.Error(), text.Note))
		} else {
			_, err = fmt.Fprintf(w, "event: view\ndata: %s\n\n", view)
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return // the reader went away
		}
		_ = out.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline even if nothing is being written
		pause := time.NewTimer(p.pause())
		select {
		case <-pause.C:
			continue
		case <-r.Context().Done():
		case <-end.C: // told, so that the page doesn't take it for a loss
			_, _ = fmt.Fprint(w, "event: over\ndata: follow again\n\n")
		case <-p.stopped:
		}
		pause.Stop()
		return
	}
}

// pause returns for how long a view is used.
func (p *Page) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.every()
}

// every is the time between two views: making them takes at most a tenth of it, unless a view takes longer than a
// second. The caller holds mu.
func (p *Page) every() time.Duration { return max(p.cfg.Every, 10*min(p.took, time.Second)) }

// current returns the newest view as JSON, at most a pause old.
func (p *Page) current(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	// Streams tick on their own: one that comes a little early must not get the last view twice.
	if p.view != nil && now.Sub(p.made) < p.every()*9/10 {
		return p.view, nil
	}
	began := time.Now()
	records, err := p.cfg.Records(ctx)
	if err != nil {
		return nil, err
	}
	families, err := p.cfg.Metrics.Gather()
	if err != nil && len(families) == 0 { // the error may be about one metric of many
		return nil, fmt.Errorf("reading this replica's metrics: %w", err)
	}
	cfg := p.cfg
	cfg.Every = p.every()
	view, err := json.Marshal(p.watch.see(cfg, records, readMetrics(families), now))
	if err != nil {
		return nil, fmt.Errorf("writing the view: %w", err)
	}
	p.view, p.made, p.took = view, now, time.Since(began)
	return view, nil
}

// View is what the page gets.
type View struct {
	// By is the replica that serves the page.
	By    string        `json:"by"`
	Fleet console.Fleet `json:"fleet"`
	// Queues are those of this replica alone.
	Queues []Queue `json:"queues"`
	// Left is how many shards aren't in the view because there are too many.
	Left int `json:"left,omitempty"`
	// LeftClusters is how many clusters aren't, with their shards.
	LeftClusters int `json:"leftClusters,omitempty"`
	// LeftFindings is how many findings aren't.
	LeftFindings int `json:"leftFindings,omitempty"`
	// LeftReplicas and LeftMoves are how many replicas and moves under way aren't.
	LeftReplicas int `json:"leftReplicas,omitempty"`
	LeftMoves    int `json:"leftMoves,omitempty"`
}
