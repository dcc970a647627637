package faultproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/pkg/apipath"
)

// Fault is what happens to a request.
type Fault uint8

const (
	// Answer answers the request in the API server's place, with Rule.Status. The API server never sees it.
	Answer Fault = iota
	// LoseReply lets the API server serve the request, and throws its answer away.
	LoseReply
	// DropReplies lets requests through and holds all that comes back, open watches included, until the rule ends.
	// Then the exchanges are cut.
	DropReplies
	// Blackhole holds requests themselves until the rule ends, and cuts them then: the API server never sees them. Open
	// watches stall as with DropReplies.
	Blackhole
	// Delay holds a request for Rule.Delay, then lets it through.
	Delay
	// DelayWatch delivers everything on a watch Rule.Delay later.
	DelayWatch
	// FreezeWatch holds back everything on a watch until the rule ends, and delivers it then.
	FreezeWatch
	// CutWatch ends watches: new ones at once, open ones with their next piece.
	CutWatch
	// Reset cuts all exchanges at once, open watches included: the API server never sees the requests.
	Reset
	// Drip delivers an answer that isn't a watch byte by byte, Rule.Delay apart, and what is left when the rule ends.
	Drip
)

func (f Fault) String() string {
	return [...]string{"answer", "lose-reply", "drop-replies", "blackhole", "delay", "delay-watch", "freeze-watch",
		"cut-watch", "reset", "drip"}[f]
}

// holds reports whether the fault stalls the open answers of requests that it picks.
func (f Fault) holds() bool { return f >= DropReplies && f != Delay && f != Drip }

// Match picks requests. Empty fields pick all.
type Match struct {
	// Verbs as in RBAC: get, list, watch, create, update, patch, delete, deletecollection.
	Verbs []string
	// Resources as in RBAC: "pods", "ats", "ats/status". "ats" doesn't pick the status.
	Resources []string
	// Agents pick a request whose User-Agent contains one of them, such as "incarnation=r1-".
	Agents []string
	// Processes pick what these processes of the same machine send, whatever their User-Agent.
	Processes []int
}

// Rule is one fault and what it befalls.
type Rule struct {
	Match Match
	Fault Fault
	// Probability that a request that is picked suffers the fault; 0 means always.
	Probability float64
	// For ends the rule by itself; 0 means that [Injection.End] does.
	For time.Duration
	// Limit ends the rule after so many requests; 0 means never.
	Limit int
	// Status is what Answer answers: 409, 410, 429, 500, ..., or 200 with a page to log in at.
	Status int
	// RetryAfter is in seconds, for a 429 or 5xx. 0 sends no such header.
	RetryAfter int
	// Delay of Delay, DelayWatch and Drip.
	Delay time.Duration
}

// request is what rules are matched against.
type request struct {
	verb, resource, name, agent string

	peer *peer // nil: not known
}

// picks says whether a request is one of those meant.
func (m Match) picks(r request) bool {
	return among(m.Verbs, r.verb) && among(m.Resources, r.resource) &&
		(len(m.Agents) == 0 || slices.ContainsFunc(m.Agents, func(a string) bool { return strings.Contains(r.agent, a) })) &&
		(len(m.Processes) == 0 || slices.ContainsFunc(m.Processes, r.peer.is))
}

func among(list []string, what string) bool { return len(list) == 0 || slices.Contains(list, what) }

// parse reads a request as an API server would.
func parse(method string, u *url.URL, agent string) request {
	r := request{agent: agent}
	r.verb, r.resource, r.name = apipath.Request(method, u.Path)
	if watch := u.Query().Get("watch"); r.resource != "" && method == http.MethodGet && (watch == "true" || watch == "1") {
		r.verb = "watch"
	}
	return r
}
