package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// line is an event as an API server writes it. The bodies stay as they are until the rest says that they matter.
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
		Received: l.RequestReceivedTimestamp.UnixMicro(), Completed: l.StageTimestamp.UnixMicro(),
		DryRun: strings.Contains(l.RequestURI, "dryRun="), Request: l.RequestObject, Response: l.ResponseObject,
	}
	return e, e.bodies()
}

// number reads a resourceVersion; what isn't a number is none.
func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// object is the shape of all logged objects at once; each kind fills its part.
type object struct {
	Kind     string
	Metadata struct {
		Name, UID, ResourceVersion string
		Labels, Annotations        map[string]string
		OwnerReferences            []struct{ Kind, Name, UID string }
	}
	Spec struct {
		// Schedule may be anything that a user thought of.
		Schedule                                  any
		Cluster, Prefix, Assignee, HolderIdentity string
		Layout                                    json.RawMessage
	}
	Status json.RawMessage
}

// objectStatus is read apart from the object, since a Status answer has a plain word in its place.
type objectStatus struct {
	Phase, Holder, Warm, PodName string
	Epoch                        uint64
	Objects, LoadMilli           int64
	LastMove                     struct{ Kind string }
}

// bodies reads the object that the log holds, if it is of a kind that is judged by its content. Of a write whose outcome
// isn't known that is what was asked for.
func (e *Event) bodies() error {
	coordination := e.IsShardRecord() || e.IsLease()
	if !e.Ended() || !e.Mutating() || e.Outcome() == Rejected || e.Outcome() == Unknown && !coordination {
		return nil
	}
	if e.Subresource != "" && e.Subresource != "status" || e.Subresource == "status" && (e.IsPod() || e.IsDeployment()) {
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
	// Only a create or an update asks with the whole object.
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
		CopyOf: m.Annotations["tenure.dev/owner-uid"], Slot: m.Labels["tenure.dev/slot"],
		Replicated: m.Labels["tenure.dev/replicate"] == "true",
	}
	if !requested { // what a client sends there is the version it has read, not the one it makes
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
		b.SealedBy = m.Annotations["tenure.dev/sealed-by"]
	}
	if e.IsShardRecord() && o.Spec.Layout == nil { // else it says which shards there are, and who holds none
		b.Shard = &ShardState{
			Cluster: o.Spec.Cluster, Prefix: o.Spec.Prefix, Assignee: o.Spec.Assignee,
			Holder: status.Holder, Phase: status.Phase, Warm: status.Warm, Epoch: status.Epoch,
			Objects: status.Objects, LoadMilli: status.LoadMilli, Move: status.LastMove.Kind,
		}
	}
	return b
}
