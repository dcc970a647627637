package audit

import (
	"strconv"
	"strings"
	"time"
)

// Groups of the resources whose bodies are read.
const (
	AtGroup    = "cnat.programming-kubernetes.info"
	ShardGroup = "tenure.dev"
	LeaseGroup = "coordination.k8s.io"
	AppsGroup  = "apps"
)

// Event is one line of an audit log, cut down to what a reader here needs.
type Event struct {
	// File and Line say where the log has it. Line counts from one.
	File string
	Line int
	// Cluster is the control plane whose log holds the event.
	Cluster string

	// Stage is ResponseComplete or Panic once the request has ended, ResponseStarted for a watch that runs.
	Stage       string
	Verb        string
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	// Name is empty for lists, collections and creates with a generated name, unless the log holds the answer's body.
	Name string
	// UID is set only where the request itself carried it.
	UID string
	// Base is the resourceVersion that the request wants to replace, zero if it names none.
	Base uint64
	URI  string

	UserAgent string
	User      string

	// Received and Completed are microseconds since 1970 on the API server's clock: when the request arrived, and when
	// this stage was reached. The commit, if there was one, happened between the arrival and the end.
	Received, Completed int64

	// Code is the HTTP status, zero when the log has none (a panic, a client that went away).
	Code int
	// Message is the server's reason, for refused requests only.
	Message string
	DryRun  bool

	// Request and Response are the logged objects as written. They are valid until the next event is read.
	Request, Response []byte
	// Body is what was read of the object: of writes to Ats, Pods, Deployments, Shard records and Leases that may have
	// been committed. It is nil at level Metadata.
	Body *Body
}

// Body is the part of a logged object that is read.
type Body struct {
	// Requested says that this is the object as asked for (level Request, or no answer), not as stored.
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
	// Pod is the name of the Pod that an At's status tells.
	Pod string
	// Holder is a Lease's. Leaving is its mark of a clean exit, SealedBy names who declared its holder dead.
	Holder   string
	Leaving  bool
	SealedBy string
	// Shard is set for Shard records.
	Shard *ShardState
}

// ShardState is a Shard record after a write.
type ShardState struct {
	Cluster, Prefix, Assignee string
	Holder, Phase, Warm       string
	Epoch                     uint64
	// Objects and LoadMilli are what the holder last reported.
	Objects, LoadMilli int64
	// Move is the cause of the last change of holder, as its writer named it.
	Move string
}

// Outcome is what the log says about a mutating request's effect.
type Outcome int

// The outcomes. Unknown may or may not have been committed: a server error, a timeout, a panic.
const (
	Committed Outcome = iota
	Rejected
	Unknown
)

// Outcome reads the status code.
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

// Ended says that the request has come to its end, so that there is no later event of it.
func (e *Event) Ended() bool { return e.Stage == "ResponseComplete" || e.Stage == "Panic" }

// Mutating says that the request was one that changes objects, and meant it.
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

// Wrote says that the request was committed.
func (e *Event) Wrote() bool { return e.Ended() && e.Mutating() && e.Outcome() == Committed }

// What is the verb and the resource, such as "update ats/status".
func (e *Event) What() string {
	if e.Subresource == "" {
		return e.Verb + " " + e.Resource
	}
	return e.Verb + " " + e.Resource + "/" + e.Subresource
}

// Arrived is Received as a time.
func (e *Event) Arrived() time.Time { return time.UnixMicro(e.Received).UTC() }

// Answered is Completed as a time.
func (e *Event) Answered() time.Time { return time.UnixMicro(e.Completed).UTC() }

// Ours says that the sender named itself as our program.
func (e *Event) Ours() bool { return strings.HasPrefix(e.UserAgent, agentPrefix) }

// IsAt says that the request is about an At.
func (e *Event) IsAt() bool { return e.Resource == "ats" && e.Group == AtGroup }

// IsPod says that the request is about a Pod.
func (e *Event) IsPod() bool { return e.Resource == "pods" && e.Group == "" }

// IsDeployment says that the request is about a Deployment.
func (e *Event) IsDeployment() bool { return e.Resource == "deployments" && e.Group == AppsGroup }

// IsShardRecord says that the request is about a Shard record.
func (e *Event) IsShardRecord() bool { return e.Resource == "shards" && e.Group == ShardGroup }

// IsLease says that the request is about a Lease.
func (e *Event) IsLease() bool { return e.Resource == "leases" && e.Group == LeaseGroup }

// Agent is what a User-Agent says about its sender.
type Agent struct {
	// Tenure says that the program is ours.
	Tenure bool
	// Fenced says that the agent names a shard, an epoch and an incarnation, all well formed.
	Fenced bool
	Shard  Shard
	Epoch  uint64
	// Replica is the incarnation.
	Incarnation string
}

// Shard is a cluster plus a binary prefix of the hash space.
type Shard struct {
	Cluster, Prefix string
}

func (s Shard) String() string { return s.Cluster + "/" + s.Prefix }

// Overlaps says whether two shards share a slot.
func (s Shard) Overlaps(o Shard) bool {
	return s.Cluster == o.Cluster && (strings.HasPrefix(s.Prefix, o.Prefix) || strings.HasPrefix(o.Prefix, s.Prefix))
}

// Slots is the range [from, to) of the 256 slots that the shard has.
func (s Shard) Slots() (from, to int) {
	width := 256 >> len(s.Prefix)
	for i := range len(s.Prefix) {
		from = from<<1 | int(s.Prefix[i]-'0')
	}
	return from * width, (from + 1) * width
}

// Holds says whether the object with this UID belongs to the shard.
func (s Shard) Holds(uid string) bool {
	from, to := s.Slots()
	slot := SlotOf(uid)
	return from <= slot && slot < to
}

// SlotOf is the slot of an object: the top byte of FNV-1a-64 of its UID.
// The hash is written out here, not imported: a witness that shares its subject's arithmetic sees no fault in it.
func SlotOf(uid string) int {
	h := uint64(14695981039346656037)
	for i := range len(uid) {
		h = (h ^ uint64(uid[i])) * 1099511628211
	}
	return int(h >> 56)
}

const agentPrefix = "tenure/"

// ParseAgent reads "tenure/VERSION (shard=CLUSTER/PREFIX; epoch=N; incarnation=INCARNATION)". What follows the closing
// parenthesis, and further fields inside, are ignored.
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

// ParseShard reads CLUSTER/PREFIX, or CLUSTER/PREFIX@GENERATION, in which the generation makes no difference: an object
// is in both. The prefix holds no slash, a cluster's name may.
func ParseShard(s string) (Shard, bool) {
	cut := strings.LastIndexByte(s, '/')
	if cut <= 0 {
		return Shard{}, false
	}
	prefix, _, _ := strings.Cut(s[cut+1:], "@")
	shard := Shard{Cluster: s[:cut], Prefix: prefix}
	return shard, len(shard.Prefix) <= 8 && strings.Trim(shard.Prefix, "01") == ""
}
