package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// After is when, after its start, a replica commits a fault that happens once: the fleet is at rest by then.
	After = 10 * time.Second
	// How late things are made: an At, the repair of a Deployment's copy, a shard's next holder.
	atsDelay    = 25 * time.Second
	repairDelay = 8 * time.Second
	handoffGap  = 900 * time.Millisecond
	// hiddenGap is longer, because the gap by the audit logs, which it must exceed, includes the next holder's
	// first write and has a wider bound.
	hiddenGap = 2500 * time.Millisecond
	// early is by how much a planted clock is fast.
	early = 3 * time.Second
	// marked ends the names of the Ats that are lost or late.
	marked = "3"
)

// send is what a faulty replica does with a request, instead of sending it on.
type send func(p *plant, next http.RoundTripper, req *http.Request) (*http.Response, error)

// sends are the faults in what a replica sends.
var sends = map[string]send{
	"agent-without-epoch": agent(func(a string) string { return agentEpoch.ReplaceAllString(a, "") }),
	"agent-garbled":       agent(func(a string) string { return strings.Replace(a, "shard=", "shrad=", 1) }),
	"agent-foreign":       agent(func(string) string { return "curl/8.0" }),
	"agent-other-shard":   agent(otherShard),
	"agent-future-epoch":  agent(func(a string) string { return strings.Replace(a, "epoch=", "epoch=7", 1) }),
	"write-after-handoff": writeAfterHandoff,
	"epoch-repeated":      repeatEpoch,
	"claim-before-seal":   sealLate,
	"seven-writes":        writeMore,
	"double-pod":          doublePod,
	"lost-at":             refuse(http.StatusConflict, time.Hour, markedAt),
	"late-at":             refuse(http.StatusConflict, atsDelay, markedAt),
	"late-repairs":        lateRepairs,
	"slow-handoff":        refuse(http.StatusConflict, handoffGap, handsOff),
	"false-gap":           refuse(http.StatusConflict, hiddenGap, handsOff),
	"lapse":               stopRenewing,
}

// others are the faults elsewhere: in the clock, the log or the process.
var others = []string{"early-at", "excused-error", "exit"}

func names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(sends)), others...)))
}

// plant is the faults of one replica.
type plant struct {
	name string // several are divided by commas
	log  slog.Handler
	more sync.Mutex // held while more is written than a handoff takes

	mu     sync.Mutex // guards all below
	began  time.Time
	ghosts map[string]func()    // repeat the last write to an At's status, by the shard's record
	tried  map[string]time.Time // when a late write was first tried, by its path
	made   map[string]bool      // the paths that were written once
}

func (p *plant) validate() error {
	for _, name := range p.names() {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--plant %q: want some of %s", name, strings.Join(names(), ","))
		}
	}
	p.began, p.ghosts, p.tried, p.made = time.Now(), map[string]func(){}, map[string]time.Time{}, map[string]bool{}
	return nil
}

func (p *plant) names() []string {
	return slices.DeleteFunc(strings.Split(p.name, ","), func(name string) bool { return name == "" })
}

func (p *plant) has(name string) bool { return slices.Contains(p.names(), name) }

func (p *plant) clock() clock.PassiveClock {
	if p.has("early-at") {
		return fastClock{}
	}
	return clock.RealClock{}
}

// due implements [Hooks.Due]. With a fast clock alone nothing would be early: an At that waits isn't reconciled before
// it is due.
func (p *plant) due(due time.Time) time.Time {
	if p.has("early-at") && !due.IsZero() {
		return due.Add(-early)
	}
	return due
}

type fastClock struct{ clock.RealClock }

func (fastClock) Now() time.Time                   { return time.Now().Add(early) }
func (fastClock) Since(ts time.Time) time.Duration { return time.Since(ts) + early }

func (p *plant) handler(inner slog.Handler) slog.Handler {
	p.log = inner
	if p.has("false-gap") {
		return falseGap{inner}
	}
	return inner
}

// falseGap is a log that reports short gaps only.
type falseGap struct{ slog.Handler }

func (f falseGap) Handle(ctx context.Context, r slog.Record) error {
	changed := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		changed.AddAttrs(shortGap(a))
		return true
	})
	return f.Handler.Handle(ctx, changed)
}

func (f falseGap) WithAttrs(attrs []slog.Attr) slog.Handler {
	changed := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		changed[i] = shortGap(a)
	}
	return falseGap{f.Handler.WithAttrs(changed)}
}

func shortGap(a slog.Attr) slog.Attr {
	if strings.HasPrefix(a.Key, "gap") {
		a.Value = slog.Float64Value(1)
	}
	return a
}

func (f falseGap) WithGroup(name string) slog.Handler { return falseGap{f.Handler.WithGroup(name)} }

func (p *plant) run(ctx context.Context) {
	if p.name == "" || wait(ctx, After) != nil {
		return
	}
	if p.has("exit") {
		os.Exit(1)
	}
	if p.has("excused-error") {
		r := slog.NewRecord(time.Now(), slog.LevelError, "Reconciler error", 0)
		r.AddAttrs(slog.String("err", "context deadline exceeded"))
		_ = p.log.Handle(ctx, r) // a log that can't be written is another fault
	}
}

func (p *plant) wrap(config *rest.Config) {
	for _, name := range p.names() {
		if s := sends[name]; s != nil {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) { return s(p, next, req) })
			})
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func mutates(req *http.Request) bool {
	return req.Method != http.MethodGet && req.Method != http.MethodHead && req.Method != http.MethodOptions
}

// statusOf says whether a request writes the status of an At whose name ends so.
func statusOf(req *http.Request, end string) bool {
	return mutates(req) && strings.Contains(req.URL.Path, "/ats/") && strings.HasSuffix(req.URL.Path, end+"/status")
}

func markedAt(req *http.Request) bool { return statusOf(req, marked) }

// writesDeployment says whether a request writes a Deployment itself, not its status.
func writesDeployment(req *http.Request) bool {
	return mutates(req) && strings.Contains(req.URL.Path, "/deployments/") && !strings.HasSuffix(req.URL.Path, "/status")
}

func makesPod(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/pods")
}

// handsOff says whether a request names a shard's next holder in an orderly move.
func handsOff(req *http.Request) bool {
	if !strings.Contains(req.URL.Path, "/shards/") || !strings.HasSuffix(req.URL.Path, "/status") {
		return false
	}
	kind := moveOf(body(req))
	return kind == "planned" || kind == "exit"
}

// moveOf is the kind of move in a write of a shard's record, in small letters; "" if it moves nothing.
func moveOf(written []byte) string {
	var record struct {
		Status struct {
			LastMove struct{ Kind string }
		}
	}
	_ = json.Unmarshal(written, &record) // what isn't JSON is no record
	return strings.ToLower(record.Status.LastMove.Kind)
}

// body returns what a request carries. The request can still be sent.
func body(req *http.Request) []byte {
	if req.Body == nil {
		return nil
	}
	content, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		content = nil
	}
	carry(req, content)
	return content
}

// carry replaces what a request carries.
func carry(req *http.Request, content []byte) {
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
}

// again returns a copy of a request, with other contents.
func again(req *http.Request, content []byte) *http.Request {
	clone := req.Clone(context.WithoutCancel(req.Context()))
	carry(clone, content)
	return clone
}

// post sends a request and discards the answer.
func post(next http.RoundTripper, req *http.Request) {
	if res, err := next.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

func succeeded(res *http.Response, err error) bool { return err == nil && res.StatusCode < 300 }

// agent rewrites the User-Agent of every request that makes a Pod: what the fence wrote is lost on the way.
func agent(rewrite func(string) string) send {
	return func(_ *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if makesPod(req) {
			req.Header.Set("User-Agent", rewrite(req.UserAgent()))
		}
		return next.RoundTrip(req)
	}
}

var agentEpoch = regexp.MustCompile(`epoch=\d+; `)

// otherShard replaces the shard in a User-Agent by a neighbour: it flips the last bit of the prefix.
func otherShard(agent string) string {
	at := strings.IndexByte(agent, ';') - 1
	if at < 0 || (agent[at] != '0' && agent[at] != '1') {
		return agent
	}
	return agent[:at] + string('0'+'1'-agent[at]) + agent[at+1:]
}

// refuse makes writes late: their API server seems to refuse them for a time. Nothing waits meanwhile, because clients
// give up on servers that don't answer.
func refuse(status int, d time.Duration, picks func(*http.Request) bool) send {
	return func(p *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if !picks(req) || p.lateEnough(req.URL.Path, d) {
			return next.RoundTrip(req)
		}
		return refused(req, status), nil
	}
}

func refused(req *http.Request, status int) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"planted"}`,
			strings.ReplaceAll(http.StatusText(status), " ", ""), status))),
	}
}

// lateEnough says whether a write was first tried so long ago that it may pass. The next one is made late again.
func (p *plant) lateEnough(path string, d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, tried := p.tried[path]
	switch {
	case !tried:
		p.tried[path] = time.Now()
		return false
	case time.Since(first) < d:
		return false
	}
	delete(p.tried, path)
	return true
}

// lateRepairs delays each write of a Deployment except the first, which makes the copy.
func lateRepairs(p *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if !writesDeployment(req) || p.first(req.URL.Path) || p.lateEnough(req.URL.Path, repairDelay) {
		return next.RoundTrip(req)
	}
	return refused(req, http.StatusInternalServerError), nil
}

// first says whether a write is the first of its path.
func (p *plant) first(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.made[path]
	p.made[path] = true
	return !known
}

var shardOf = regexp.MustCompile(`shard=([^;)]*)/([01]*);`)

// writeAfterHandoff is a fence that stays open: once a shard was handed off, its old holder writes to it again.
func writeAfterHandoff(p *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	off := handsOff(req)
	res, err := next.RoundTrip(req)
	if !succeeded(res, err) {
		return res, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := shardOf.FindStringSubmatch(req.UserAgent()); found != nil && statusOf(req, "") {
		like := again(req, nil)
		p.ghosts[found[1]+".p"+found[2]] = func() { writeAnew(next, like) }
	}
	for record, write := range p.ghosts {
		if off && strings.Contains(req.URL.Path, "/"+record+"/") {
			time.AfterFunc(300*time.Millisecond, write)
		}
	}
	return res, err
}

// writeAnew writes the status of an At as it is: that changes nothing, and is a write. It takes no other right than
// that of the request that it is like.
func writeAnew(next http.RoundTripper, like *http.Request) {
	read := again(like, nil)
	read.Method, read.URL.Path = http.MethodGet, strings.TrimSuffix(like.URL.Path, "/status")
	read.Body, read.GetBody = nil, nil
	read.Header.Set("Accept", "application/json")
	res, err := next.RoundTrip(read)
	if err != nil {
		return
	}
	content, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK {
		return
	}
	like.Header.Set("Content-Type", "application/json")
	carry(like, content)
	post(next, like)
}

var epochOf = regexp.MustCompile(`"epoch":(\d+)`)

// repeatEpoch hands shards off without counting the epoch up.
func repeatEpoch(_ *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if handsOff(req) {
		carry(req, epochOf.ReplaceAllFunc(body(req), func(found []byte) []byte {
			n, _ := strconv.Atoi(string(found[len(`"epoch":`):])) // digits, by the expression
			return fmt.Appendf(nil, `"epoch":%d`, n-1)
		}))
	}
	return next.RoundTrip(req)
}

// sealLate answers that a dead peer's Lease is sealed, and seals it a second later.
func sealLate(_ *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if !mutates(req) || !strings.Contains(req.URL.Path, "/leases/") || !bytes.Contains(body(req), []byte("sealed-by")) {
		return next.RoundTrip(req)
	}
	real := again(req, body(req))
	time.AfterFunc(time.Second, func() { post(next, real) })
	req = again(req, nil)
	req.Method, req.Body, req.GetBody, req.ContentLength = http.MethodGet, nil, nil, 0
	return next.RoundTrip(req)
}

// writeMore adds four writes to a handoff, each with another size of the shard. The first of them makes the replica
// try the handoff again. The new attempt waits until all four are sent, so that they count as the handoff's own.
func writeMore(p *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if handsOff(req) {
		p.sendMore(next, req)
	}
	return next.RoundTrip(req)
}

func (p *plant) sendMore(next http.RoundTripper, req *http.Request) {
	p.more.Lock()
	defer p.more.Unlock()
	if !p.first(req.URL.Path) { // once for each record
		return
	}
	for i := range 4 {
		post(next, again(req, fmt.Appendf(nil, `{"status":{"objects":%d}}`, 1000+i)))
	}
}

// doublePod makes every Pod twice, the second under another name.
func doublePod(_ *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if !makesPod(req) {
		return next.RoundTrip(req)
	}
	content := body(req)
	res, err := next.RoundTrip(req)
	if succeeded(res, err) {
		post(next, again(req, podName.ReplaceAllFunc(content, func(name []byte) []byte {
			return append(slices.Clone(name[:len(name)-1]), 'z') // as long as before: the encoding counts bytes
		})))
	}
	return res, err
}

// podName is the name of an At's Pod, which ends in a part of a hash.
var podName = regexp.MustCompile(`[a-z]+-[0-9]+-[0-9a-f]{10}`)

// stopRenewing lets the incarnation's Lease run out once.
func stopRenewing(p *plant, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	since := time.Since(p.began)
	renews := req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/leases/") &&
		bytes.Contains(body(req), []byte("renewTime"))
	if renews && since > After && since < 2*After {
		return nil, errors.New("planted: the request is lost")
	}
	return next.RoundTrip(req)
}
