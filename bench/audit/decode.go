package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// line is an event as an API server writes it. The bodies aren't parsed until the rest shows that they are needed.
type line struct {
	Stage, Verb, RequestURI, UserAgent string
	User                               struct{ Username string }
	ObjectRef                          struct {
		Resource, APIGroup, Subresource, Namespace, Name, UID, ResourceVersion string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
	Annotations struct {
		Decision string `json:"authorization.k8s.io/decision"`
		Reason   string `json:"authorization.k8s.io/reason"`
	}
	RequestObject, ResponseObject            json.RawMessage
	RequestReceivedTimestamp, StageTimestamp time.Time
}

// decode reads one line.
func decode(text []byte) (Event, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Event{}, err
	}
	if l.Stage == "" || l.Verb == "" || l.RequestReceivedTimestamp.IsZero() || l.StageTimestamp.IsZero() {
		return Event{}, errors.New("not an audit event: stage, verb or a timestamp is missing")
	}
	o := l.ObjectRef
	e := Event{
		Stage: l.Stage, Verb: l.Verb, Group: o.APIGroup, Resource: o.Resource, Subresource: o.Subresource,
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, Base: number(o.ResourceVersion), URI: l.RequestURI,
		UserAgent: l.UserAgent, User: l.User.Username, Code: l.ResponseStatus.Code, Message: l.ResponseStatus.Message,
		Decision: l.Annotations.Decision, Reason: l.Annotations.Reason,
		Received: l.RequestReceivedTimestamp.UnixMicro(), Completed: l.StageTimestamp.UnixMicro(),
		DryRun: dryRun(l.RequestURI), Request: l.RequestObject, Response: l.ResponseObject,
	}
	return e, e.bodies()
}

// dryRun reports whether a request's URI asks for a dry run.
func dryRun(uri string) bool {
	if !strings.Contains(uri, "dryRun=") { // nearly always
		return false
	}
	u, err := url.Parse(uri)
	return err == nil && u.Query().Has("dryRun")
}

// number parses a resourceVersion; 0 if it isn't a number.
func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// object has the fields of all kinds of logged objects. Each kind fills its own part.
type object struct {
	Kind     string
	Metadata struct {
		Name, UID, ResourceVersion string
		Labels, Annotations        map[string]string
		OwnerReferences            []struct{ Kind, Name, UID string }
	}
	Spec struct {
		// Schedule may be any JSON value that a user sent.
		Schedule                                  any
		StartingDeadlineSeconds                   *int64
		Cluster, Prefix, Assignee, HolderIdentity string
		Layout                                    json.RawMessage
	}
	Status json.RawMessage
}

// objectStatus is parsed separately, since the status of a Status object is a string.
type objectStatus struct {
	Phase, Result, Holder, Warm, PodName string
	Epoch                                uint64
	Objects, LoadMilli                   int64
	LastMove                             struct{ Kind string }
}

// bodies parses the logged object, if its kind is judged by its content. For a write with an unknown outcome that is
// the requested object.
func (e *Event) bodies() error {
	coordination := e.IsShardRecord() || e.IsLease()
	if !e.Ended() || !e.Mutating() || e.Outcome() == Rejected || e.Outcome() == Unknown && !coordination {
		return nil
	}
	if e.Subresource != "" && e.Subresource != "status" || e.Subresource == "status" && e.IsPod() {
		return nil
	}
	if !coordination && !e.IsAt() && !e.IsPod() && !e.IsDeployment() {
		return nil
	}
	if e.Base == 0 && e.Verb == "patch" { // an update's is in the objectRef; a JSON patch has none
		var patch object
		_ = json.Unmarshal(e.Request, &patch)
		e.Base = number(patch.Metadata.ResourceVersion)
	}
	text, requested := e.Response, false
	// Only a create or an update requests a whole object.
	if len(text) == 0 && (e.Verb == "create" || e.Verb == "update") || e.Outcome() == Unknown {
		text, requested = e.Request, true
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("reading the logged object: %w", err)
	}
	if o.Kind == "Status" {
		return nil
	}
	var status objectStatus
	if len(o.Status) > 0 && (e.IsAt() || e.IsShardRecord()) {
		if err := json.Unmarshal(o.Status, &status); err != nil {
			return fmt.Errorf("reading the logged object's status: %w", err)
		}
	}
	e.Body = newBody(e, o, status, requested)
	if e.Name == "" {
		e.Name = e.Body.Name
	}
	return nil
}

func newBody(e *Event, o object, status objectStatus, requested bool) *Body {
	m := o.Metadata
	b := &Body{
		Requested: requested, Name: m.Name, UID: m.UID, Phase: status.Phase, Pod: status.PodName,
		Missed: status.Result == "Missed" && o.Spec.StartingDeadlineSeconds != nil,
		CopyOf: m.Annotations["tenure.dev/owner-uid"], Slot: m.Labels["tenure.dev/slot"],
		Replicated: m.Labels["tenure.dev/replicate"] == "true", Deadline: *cmp.Or(o.Spec.StartingDeadlineSeconds, new(int64)),
	}
	if !requested { // in a request it is the version that the client read, not the one that it makes
		b.ResourceVersion = number(m.ResourceVersion)
	}
	b.Schedule, _ = o.Spec.Schedule.(string)
	for _, owner := range m.OwnerReferences {
		if owner.Kind == "At" {
			b.OwnerAt, b.OwnerUID = owner.Name, owner.UID
		}
	}
	if e.IsLease() {
		leaving := m.Annotations["tenure.dev/leaving"]
		b.Holder, b.Leaving = o.Spec.HolderIdentity, leaving != "" && leaving != "false"
		b.Unfit, b.SealedBy = m.Annotations["tenure.dev/unfit"], m.Annotations["tenure.dev/sealed-by"]
	}
	if e.IsShardRecord() && o.Spec.Layout == nil { // a layout has no holder
		b.Shard = &ShardState{
			Cluster: o.Spec.Cluster, Prefix: o.Spec.Prefix, Assignee: o.Spec.Assignee,
			Holder: status.Holder, Phase: status.Phase, Warm: status.Warm, Epoch: status.Epoch,
			Objects: status.Objects, LoadMilli: status.LoadMilli, Move: status.LastMove.Kind,
		}
	}
	return b
}
