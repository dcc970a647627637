package witness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// rawEvent is an event while its line is read; the bodies are looked at only when the rest says that they matter.
type rawEvent struct {
	event             Event
	stage             string
	request, response []byte
}

var errNotAudit = errors.New("not an audit event: no stage or no verb")

// decode reads one line. keep is false for stages that precede the answer.
func (d *decoder) decode(line []byte) (e Event, keep bool, err error) {
	c := &cursor{b: line}
	var raw rawEvent
	if c.peek() != '{' {
		return Event{}, false, c.fail("an object")
	}
	if err := c.fields(func(name []byte) error { return d.field(c, name, &raw) }); err != nil {
		return Event{}, false, err
	}
	if c.peek() != 0 {
		return Event{}, false, c.fail("the end of the line")
	}
	if raw.stage == "" || raw.event.Verb == "" {
		return Event{}, false, errNotAudit
	}
	if raw.stage != "ResponseComplete" && raw.stage != "Panic" {
		return Event{}, false, nil
	}
	if raw.event.Received == 0 || raw.event.Completed == 0 {
		return Event{}, false, errors.New("not an audit event: a timestamp is missing")
	}
	return raw.event, true, raw.bodies()
}

func (d *decoder) field(c *cursor, name []byte, raw *rawEvent) (err error) {
	e := &raw.event
	switch string(name) {
	case "stage":
		raw.stage, err = d.shared(c)
	case "verb":
		e.Verb, err = d.shared(c)
	case "userAgent":
		e.UserAgent, err = d.shared(c)
	case "requestURI":
		var uri []byte
		uri, err = c.text()
		e.DryRun = bytes.Contains(uri, []byte("dryRun="))
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
		raw.request, err = c.value()
	case "responseObject":
		raw.response, err = c.value()
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
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// objectStatus is read apart from the object, since a Status answer has a plain word in its place.
type objectStatus struct {
	Phase  string `json:"phase"`
	Holder string `json:"holder"`
	Warm   string `json:"warm"`
	Epoch  uint64 `json:"epoch"`
	// PodName is an At's, LastMove a shard record's.
	PodName  string `json:"podName"`
	LastMove struct {
		Kind string `json:"kind"`
	} `json:"lastMove"`
}

// bodies reads the object that the log holds, if it is of a kind that the witness judges by its content.
func (raw *rawEvent) bodies() error {
	e := &raw.event
	if !e.mutating() || e.outcome() != committed || !(e.isAt() || e.isPod() || e.isShardRecord() || e.isLease()) {
		return nil
	}
	text, requested := raw.response, false
	// Only a create or an update asks with the whole object; a patch or delete does not.
	if len(text) == 0 && (e.Verb == "create" || e.Verb == "update") {
		text, requested = raw.request, true
	}
	if len(text) == 0 || text[0] != '{' || (e.isPod() && e.Subresource != "") {
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
	if len(o.Status) > 0 && !e.isPod() {
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
	b := &Body{Requested: requested, Name: o.Metadata.Name, UID: o.Metadata.UID, Phase: status.Phase, Pod: status.PodName}
	b.ResourceVersion, _ = strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if requested {
		// What the client sent there is the version it had read, not the one it made.
		b.ResourceVersion = 0
	}
	_ = json.Unmarshal(o.Spec.Schedule, &b.Schedule)
	for _, owner := range o.Metadata.Owners {
		if owner.Kind == "At" {
			b.OwnerAt, b.OwnerUID = owner.Name, owner.UID
		}
	}
	if e.isLease() {
		b.Leaving = marksLeaving(o.Metadata.Labels) || marksLeaving(o.Metadata.Annotations)
	}
	if e.isShardRecord() {
		b.Shard = &ShardState{
			Cluster: o.Spec.Cluster, Prefix: o.Spec.Prefix, Assignee: o.Spec.Assignee,
			Holder: status.Holder, Phase: status.Phase, Warm: status.Warm, Epoch: status.Epoch,
			Move: status.LastMove.Kind,
		}
	}
	return b
}

func marksLeaving(m map[string]string) bool {
	for k, v := range m {
		if strings.HasSuffix(k, "/leaving") && v != "false" && v != "" {
			return true
		}
	}
	return false
}
