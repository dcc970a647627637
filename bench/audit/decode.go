package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// decoder turns lines into events. It keeps one copy of each string that repeats (verbs, agents, namespaces).
type decoder struct {
	seen map[string]string
}

// maxSeen bounds the table of repeated strings, so that a log full of distinct ones costs time, not memory.
const maxSeen = 1 << 16

func (d *decoder) intern(b []byte) string {
	if s, ok := d.seen[string(b)]; ok {
		return s
	}
	if d.seen == nil || len(d.seen) >= maxSeen {
		d.seen = make(map[string]string)
	}
	s := string(b)
	d.seen[s] = s
	return s
}

var errNotAudit = errors.New("not an audit event: no stage or no verb")

// decode reads one line.
func (d *decoder) decode(line []byte) (e Event, err error) {
	c := &cursor{b: line}
	if c.peek() != '{' {
		return Event{}, c.fail("an object")
	}
	if err := c.fields(func(name []byte) error { return d.field(c, name, &e) }); err != nil {
		return Event{}, err
	}
	if c.peek() != 0 {
		return Event{}, c.fail("the end of the line")
	}
	if e.Stage == "" || e.Verb == "" {
		return Event{}, errNotAudit
	}
	if e.Received == 0 || e.Completed == 0 {
		return Event{}, errors.New("not an audit event: a timestamp is missing")
	}
	return e, e.bodies()
}

func (d *decoder) field(c *cursor, name []byte, e *Event) (err error) {
	switch string(name) {
	case "stage":
		e.Stage, err = d.shared(c)
	case "verb":
		e.Verb, err = d.shared(c)
	case "userAgent":
		e.UserAgent, err = d.shared(c)
	case "requestURI":
		var uri []byte
		uri, err = c.text()
		e.DryRun = bytes.Contains(uri, []byte("dryRun="))
		e.URI = string(uri)
	case "user":
		err = c.fields(func(name []byte) (err error) {
			if string(name) == "username" {
				e.User, err = d.shared(c)
				return err
			}
			return c.skip()
		})
	case "objectRef":
		err = c.fields(func(name []byte) error { return d.objectRef(c, name, e) })
	case "responseStatus":
		err = c.fields(func(name []byte) (err error) {
			switch string(name) {
			case "code":
				e.Code, err = c.number()
			case "message":
				e.Message, err = copied(c)
			default:
				err = c.skip()
			}
			return err
		})
	case "requestObject":
		e.Request, err = c.value()
	case "responseObject":
		e.Response, err = c.value()
	case "requestReceivedTimestamp":
		e.Received, err = micros(c)
	case "stageTimestamp":
		e.Completed, err = micros(c)
	default:
		err = c.skip()
	}
	return err
}

func (d *decoder) objectRef(c *cursor, name []byte, e *Event) (err error) {
	switch string(name) {
	case "resource":
		e.Resource, err = d.shared(c)
	case "apiGroup":
		e.Group, err = d.shared(c)
	case "subresource":
		e.Subresource, err = d.shared(c)
	case "namespace":
		e.Namespace, err = d.shared(c)
	case "name":
		e.Name, err = copied(c)
	case "uid":
		e.UID, err = copied(c)
	case "resourceVersion":
		e.Base, err = version(c)
	default:
		err = c.skip()
	}
	return err
}

func (d *decoder) shared(c *cursor) (string, error) {
	b, err := c.text()
	if err != nil || len(b) == 0 {
		return "", err
	}
	return d.intern(b), nil
}

func copied(c *cursor) (string, error) {
	b, err := c.text()
	return string(b), err
}

func micros(c *cursor) (int64, error) {
	b, err := c.text()
	if err != nil {
		return 0, err
	}
	t, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return 0, fmt.Errorf("reading a timestamp: %w", err)
	}
	return t.UnixMicro(), nil
}

// version reads a resourceVersion; what isn't a number is none.
func version(c *cursor) (uint64, error) {
	b, err := c.text()
	v, _ := strconv.ParseUint(string(b), 10, 64)
	return v, err
}

// object is the shape of all logged objects at once; each kind fills its part.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string            `json:"name"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
		Owners          []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Schedule json.RawMessage `json:"schedule"`
		Cluster  string          `json:"cluster"`
		Prefix   string          `json:"prefix"`
		Assignee string          `json:"assignee"`
		Holder   string          `json:"holderIdentity"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// objectStatus is read apart from the object, since a Status answer has a plain word in its place.
type objectStatus struct {
	Phase     string `json:"phase"`
	Holder    string `json:"holder"`
	Warm      string `json:"warm"`
	Epoch     uint64 `json:"epoch"`
	Objects   int64  `json:"objects"`
	LoadMilli int64  `json:"loadMilli"`
	// PodName is an At's, LastMove a Shard record's.
	PodName  string `json:"podName"`
	LastMove struct {
		Kind string `json:"kind"`
	} `json:"lastMove"`
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
	if e.Base == 0 && e.Verb == "patch" { // an update's is in the objectRef
		e.Base = baseOf(e.Request)
	}
	text, requested := e.Response, false
	// Only a create or an update asks with the whole object.
	if len(text) == 0 && (e.Verb == "create" || e.Verb == "update") || e.Outcome() == Unknown {
		text, requested = e.Request, true
	}
	if len(text) == 0 || text[0] != '{' {
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

// baseOf finds metadata.resourceVersion in a patch.
func baseOf(patch []byte) (base uint64) {
	if len(patch) == 0 || patch[0] != '{' {
		return 0
	}
	c := &cursor{b: patch}
	_ = c.fields(func(name []byte) error {
		if string(name) != "metadata" || c.peek() != '{' {
			return c.skip()
		}
		return c.fields(func(name []byte) (err error) {
			if string(name) != "resourceVersion" || c.peek() != '"' {
				return c.skip()
			}
			base, err = version(c)
			return err
		})
	})
	return base
}

func newBody(e *Event, o object, status objectStatus, requested bool) *Body {
	m := o.Metadata
	b := &Body{
		Requested: requested, Name: m.Name, UID: m.UID, Phase: status.Phase, Pod: status.PodName,
		CopyOf: m.Annotations["tenure.dev/owner-uid"], Slot: m.Labels["tenure.dev/slot"],
		Replicated: m.Labels["tenure.dev/replicate"] == "true",
	}
	if !requested { // what a client sends there is the version it has read, not the one it makes
		b.ResourceVersion, _ = strconv.ParseUint(m.ResourceVersion, 10, 64)
	}
	_ = json.Unmarshal(o.Spec.Schedule, &b.Schedule)
	for _, owner := range m.Owners {
		if owner.Kind == "At" {
			b.OwnerAt, b.OwnerUID = owner.Name, owner.UID
		}
	}
	if e.IsLease() {
		leaving := m.Annotations["tenure.dev/leaving"]
		b.Holder, b.Leaving, b.SealedBy = o.Spec.Holder, leaving != "" && leaving != "false", m.Annotations["tenure.dev/sealed-by"]
	}
	if e.IsShardRecord() {
		b.Shard = &ShardState{
			Cluster: o.Spec.Cluster, Prefix: o.Spec.Prefix, Assignee: o.Spec.Assignee,
			Holder: status.Holder, Phase: status.Phase, Warm: status.Warm, Epoch: status.Epoch,
			Objects: status.Objects, LoadMilli: status.LoadMilli, Move: status.LastMove.Kind,
		}
	}
	return b
}
