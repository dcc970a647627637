package audit

import (
	"strconv"
	"strings"
	"time"
)

// API groups of the resources whose bodies are parsed.
const (
	AtGroup    = "cnat.programming-kubernetes.info"
	ShardGroup = "tenure.dev"
	LeaseGroup = "coordination.k8s.io"
	AppsGroup  = "apps"
)

// Event is one line of an audit log, with the fields that are needed here.
type Event struct {
	// File and Line are its place in the log. Lines count from one.
	File string
	Line int
	// Cluster is the cluster whose log has the event.
	Cluster string

	// Stage is ResponseComplete or Panic if the request has ended, ResponseStarted for a running watch.
	Stage       string
	Verb        string
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	// Name is empty for lists, collections and creates with a generated name, unless the log has the answer's body.
	Name string
	// UID is set only if the request itself carried it.
	UID string
	// Base is the resourceVersion that the request replaces; zero if it names none.
	Base uint64
	URI  string

	UserAgent string
	User      string
	// Decision is "allow" or "forbid", and Reason names the role that allowed it.
	Decision, Reason string

	// Received and Completed are microseconds since 1970 on the API server's clock: when the request arrived, and when
	// this stage was reached. A commit happened in between.
	Received, Completed int64

	// Code is the HTTP status; zero if the log has none (a panic, a client that disconnected).
	Code int
	// Message is the server's reason; for refused requests only.
	Message string
	DryRun  bool

	// Request and Response are the raw logged objects. They are valid until the next event is read.
	Request, Response []byte
	// Body is the parsed part of the object, for writes to Ats, Pods, Deployments, Shard records and Leases that may
	// have been committed. It is nil at level Metadata.
	Body *Body
}

// Body is the parsed part of a logged object.
type Body struct {
	// Requested says that this is the requested object (level Request, or no answer), not the stored one.
	Requested       bool
	Name            string
	UID             string
	ResourceVersion uint64
	// OwnerAt and OwnerUID name the At that owns a Pod.
	OwnerAt, OwnerUID string
	// CopyOf is the UID of the source that a Deployment is a copy of, and Slot its slot label.
	CopyOf, Slot string
	// Replicated says that a Deployment asks for copies.
	Replicated bool
	// Schedule and Phase are an At's.
	Schedule string
	Phase    string
	// Pod is the Pod name in an At's status.
	Pod string
	// Missed says that an At is done without a Pod, since its deadline for starting had passed. Deadline is how many
	// seconds after its due time that is.
	Missed   bool
	Deadline int64
	// Holder is a Lease's. Leaving is its mark of a clean exit. Unfit says which clusters it can't serve, in the form of
	// the annotation. SealedBy is the incarnation that sealed it.
	Holder   string
	Leaving  bool
	Unfit    string
	SealedBy string
	// Shard is set for Shard records.
	Shard *ShardState
}

// ShardState is a Shard record's state after a write.
type ShardState struct {
	Cluster, Prefix, Assignee string
	Holder, Phase, Warm       string
	Epoch                     uint64
	// Objects and LoadMilli are the holder's last report.
	Objects, LoadMilli int64
	// Move is the kind of the last change of holder, as its writer named it.
	Move string
}

// Outcome is a mutating request's outcome, as far as the log shows it.
type Outcome int

// Unknown is a write that may or may not have been committed: a server error, a timeout, a panic.
const (
	Committed Outcome = iota
	Rejected
	Unknown
)

// Outcome derives the outcome from the status code.
func (e *Event) Outcome() Outcome {
	switch {
	case e.Code >= 200 && e.Code < 300:
		return Committed
	case e.Code >= 300 && e.Code < 500 && e.Code != 408 && e.Code != 499:
		return Rejected
	default:
		return Unknown
	}
}

// Ended reports whether the request has ended, so that no later event of it follows.
func (e *Event) Ended() bool { return e.Stage == "ResponseComplete" || e.Stage == "Panic" }

// Mutating reports whether the request changes objects, and is no dry run.
func (e *Event) Mutating() bool {
	if e.DryRun {
		return false
	}
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Wrote reports whether the request was committed.
func (e *Event) Wrote() bool { return e.Ended() && e.Mutating() && e.Outcome() == Committed }

// What returns verb and resource, such as "update ats/status".
func (e *Event) What() string {
	if e.Subresource == "" {
		return e.Verb + " " + e.Resource
	}
	return e.Verb + " " + e.Resource + "/" + e.Subresource
}

// Arrived returns Received as a time.
func (e *Event) Arrived() time.Time { return time.UnixMicro(e.Received).UTC() }

// Answered returns Completed as a time.
func (e *Event) Answered() time.Time { return time.UnixMicro(e.Completed).UTC() }

// Ours reports whether the sender's User-Agent names our program.
func (e *Event) Ours() bool { return strings.HasPrefix(e.UserAgent, agentPrefix) }

// IsAt reports whether the request is about an At.
func (e *Event) IsAt() bool { return e.Resource == "ats" && e.Group == AtGroup }

// IsPod reports whether the request is about a Pod.
func (e *Event) IsPod() bool { return e.Resource == "pods" && e.Group == "" }

// IsDeployment reports whether the request is about a Deployment.
func (e *Event) IsDeployment() bool { return e.Resource == "deployments" && e.Group == AppsGroup }

// IsShardRecord reports whether the request is about a Shard record.
func (e *Event) IsShardRecord() bool { return e.Resource == "shards" && e.Group == ShardGroup }

// IsLease reports whether the request is about a Lease.
func (e *Event) IsLease() bool { return e.Resource == "leases" && e.Group == LeaseGroup }

// Agent is the content of a User-Agent.
type Agent struct {
	// Tenure says that the program is ours.
	Tenure bool
	// Fenced says that the agent names a shard, an epoch and an incarnation, all well formed.
	Fenced bool
	Shard  Shard
	Epoch  uint64
	// Incarnation is the sending process: the name of a replica with a random suffix.
	Incarnation string
}

// Shard is a cluster plus a binary prefix of the hash space.
type Shard struct {
	Cluster, Prefix string
}

func (s Shard) String() string { return s.Cluster + "/" + s.Prefix }

// Overlaps reports whether two shards share a slot.
func (s Shard) Overlaps(o Shard) bool {
	return s.Cluster == o.Cluster && (strings.HasPrefix(s.Prefix, o.Prefix) || strings.HasPrefix(o.Prefix, s.Prefix))
}

// Slots returns the shard's slots as a range [from, to) of the 256.
func (s Shard) Slots() (from, to int) {
	width := 256 >> len(s.Prefix)
	for i := range len(s.Prefix) {
		from = from<<1 | int(s.Prefix[i]-'0')
	}
	return from * width, (from + 1) * width
}

// Holds reports whether the object with this UID belongs to the shard.
func (s Shard) Holds(uid string) bool {
	from, to := s.Slots()
	slot := SlotOf(uid)
	return from <= slot && slot < to
}

// SlotOf returns the slot of an object: the top byte of FNV-1a-64 of its UID. The hash is implemented here, not
// imported: a witness that shared the subject's code wouldn't see its faults.
func SlotOf(uid string) int {
	h := uint64(14695981039346656037)
	for i := range len(uid) {
		h = (h ^ uint64(uid[i])) * 1099511628211
	}
	return int(h >> 56)
}

const agentPrefix = "tenure/"

// ParseAgent parses "tenure/VERSION (shard=CLUSTER/PREFIX; epoch=N; incarnation=INCARNATION)". It ignores further
// fields and whatever follows the closing parenthesis.
func ParseAgent(ua string) Agent {
	if !strings.HasPrefix(ua, agentPrefix) {
		return Agent{}
	}
	a := Agent{Tenure: true}
	_, rest, found := strings.Cut(ua, "(")
	if !found {
		return a
	}
	rest, _, _ = strings.Cut(rest, ")")
	var hasShard, hasEpoch bool
	for field := range strings.SplitSeq(rest, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "shard":
			a.Shard, hasShard = ParseShard(value)
		case "epoch":
			n, err := strconv.ParseUint(value, 10, 64)
			a.Epoch, hasEpoch = n, err == nil
		case "incarnation":
			a.Incarnation = value
		}
	}
	a.Fenced = hasShard && hasEpoch && a.Incarnation != ""
	return a
}

// ParseShard parses CLUSTER/PREFIX or CLUSTER/PREFIX@GENERATION. The generation is dropped, since it makes no
// difference to which objects are in the shard. The prefix has no slash; a cluster's name may.
func ParseShard(s string) (Shard, bool) {
	cut := strings.LastIndexByte(s, '/')
	if cut <= 0 {
		return Shard{}, false
	}
	prefix, _, _ := strings.Cut(s[cut+1:], "@")
	shard := Shard{Cluster: s[:cut], Prefix: prefix}
	return shard, len(shard.Prefix) <= 8 && strings.Trim(shard.Prefix, "01") == ""
}
