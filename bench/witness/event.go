package witness

import (
	"strconv"
	"strings"
	"time"
)

// Groups of the resources that the witness knows by name.
const (
	atGroup    = "cnat.programming-kubernetes.info"
	shardGroup = "tenure.dev"
	leaseGroup = "coordination.k8s.io"
)

// Event is one finished API request as an API server's audit log tells it, cut down to what a judgement needs.
type Event struct {
	// File and Line say where the log has it. Line counts from one.
	File string
	Line int
	// Cluster is the control plane whose log holds the event.
	Cluster string

	Verb        string
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	// Name is empty for lists, collections and creates with a generated name, unless the log holds the answer's body.
	Name string
	// UID is set only where the request itself carried it.
	UID string

	UserAgent string
	User      string

	// Received and Completed are microseconds since 1970 on the API server's clock.
	// The commit, if there was one, happened between them.
	Received, Completed int64

	// Code is the HTTP status, zero when the log has none (a panic, a client that went away).
	Code int
	// Message is the server's reason, for refused requests only.
	Message string
	DryRun  bool

	// Body is what the log holds of the object, nil at level Metadata.
	Body *Body
}

// Body is the part of a logged object that the witness reads.
type Body struct {
	// Requested says that this is the object as asked for (level Request), not as stored.
	Requested       bool
	Name            string
	UID             string
	ResourceVersion uint64
	// OwnerAt and OwnerUID name the At that owns a Pod.
	OwnerAt, OwnerUID string
	// Schedule and Phase are an At's.
	Schedule string
	Phase    string
	// Pod is the name of the Pod that an At's status tells.
	Pod string
	// Leaving is a Lease's mark of a clean exit.
	Leaving bool
	// Shard is set for shard records.
	Shard *ShardState
}

// ShardState is a shard record after a write.
type ShardState struct {
	Cluster, Prefix, Assignee string
	Holder, Phase, Warm       string
	Epoch                     uint64
	// Move is the cause of the last change of holder, as its writer named it.
	Move string
}

// outcome is what the log says about a mutating request's effect.
type outcome int

const (
	committed outcome = iota
	rejected
	// unknown may or may not have been committed: a server error, a timeout, a panic.
	unknown
)

func (e *Event) outcome() outcome {
	switch {
	case e.Code >= 200 && e.Code < 300:
		return committed
	case e.Code >= 300 && e.Code < 500 && e.Code != 408 && e.Code != 499:
		return rejected
	default:
		return unknown
	}
}

func (e *Event) mutating() bool {
	if e.DryRun {
		return false
	}
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func (e *Event) isAt() bool {
	return e.Resource == "ats" && e.Group == atGroup
}

func (e *Event) isPod() bool {
	return e.Resource == "pods" && e.Group == ""
}

func (e *Event) isShardRecord() bool {
	return e.Resource == "shards" && e.Group == shardGroup
}

func (e *Event) isLease() bool {
	return e.Resource == "leases" && e.Group == leaseGroup
}

// Agent is what a User-Agent says about its sender.
type Agent struct {
	// Tenure says that the program is ours.
	Tenure bool
	// Fenced says that the agent names a shard, an epoch and a replica, all well formed.
	Fenced  bool
	Shard   Shard
	Epoch   uint64
	Replica string
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

// Holds says whether the object with this UID belongs to the shard.
// The hash is written out here, not imported: a witness that shares its subject's arithmetic sees no fault in it.
func (s Shard) Holds(uid string) bool {
	h := uint64(14695981039346656037)
	for i := range len(uid) {
		h = (h ^ uint64(uid[i])) * 1099511628211
	}
	for i := range len(s.Prefix) {
		if bit := byte('0' + h>>63); bit != s.Prefix[i] {
			return false
		}
		h <<= 1
	}
	return true
}

// ParseAgent reads "tenure/VERSION (shard=CLUSTER/PREFIX; epoch=N; replica=INCARNATION)". What follows the closing
// parenthesis, and further fields inside, are ignored.
func ParseAgent(ua string) Agent {
	if !strings.HasPrefix(ua, "tenure/") {
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
			a.Shard, hasShard = parseShard(value)
		case "epoch":
			n, err := strconv.ParseUint(value, 10, 64)
			a.Epoch, hasEpoch = n, err == nil
		case "replica":
			a.Replica = value
		}
	}
	a.Fenced = hasShard && hasEpoch && a.Replica != ""
	return a
}

func parseShard(s string) (Shard, bool) {
	// The prefix holds no slash, a cluster's name may.
	cut := strings.LastIndexByte(s, '/')
	if cut <= 0 {
		return Shard{}, false
	}
	shard := Shard{Cluster: s[:cut], Prefix: s[cut+1:]}
	return shard, len(shard.Prefix) <= 8 && strings.Trim(shard.Prefix, "01") == ""
}

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }
