// Package feed follows the objects of one kind in one cluster with as little as possible: one watch, no cache, and only
// the fields that a measurement needs. It is for load generators and recorders, which must not be what is measured.
package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// Kind is the path of a kind in the API.
type Kind string

// The kinds of the measurements.
const (
	Ats    Kind = "/apis/cnat.programming-kubernetes.info/v1alpha1"
	Pods   Kind = "/api/v1"
	Shards Kind = "/apis/tenure.dev/v1alpha1"

	Deployments Kind = "/apis/apps/v1"
)

// resource is the kind's name in a path.
func (k Kind) resource() string {
	return map[Kind]string{Ats: "ats", Pods: "pods", Shards: "shards", Deployments: "deployments"}[k]
}

// Path returns the path of the objects of a namespace, or of all objects if it is empty.
func (k Kind) Path(namespace string) string {
	if namespace == "" {
		return string(k) + "/" + k.resource()
	}
	return string(k) + "/namespaces/" + namespace + "/" + k.resource()
}

// Object is what is decoded.
type Object struct {
	Metadata struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
		OwnerReferences []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"ownerReferences,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Schedule string `json:"schedule,omitempty"`
		Cluster  string `json:"cluster,omitempty"`
		Prefix   string `json:"prefix,omitempty"`
		Assignee string `json:"assignee,omitempty"`
		// Layout is set only in the record that lists a cluster's shards. That record has the same kind, but it is
		// no shard.
		Layout   *struct{} `json:"layout,omitempty"`
		Replicas int       `json:"replicas,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase,omitempty"`
		Epoch  int64  `json:"epoch,omitempty"`
		Holder string `json:"holder,omitempty"`
	} `json:"status"`
}

// Owner is the name of the object's owner, "" if it has none.
func (o *Object) Owner() string {
	if len(o.Metadata.OwnerReferences) == 0 {
		return ""
	}
	return o.Metadata.OwnerReferences[0].Name
}

// OwnedBy reports whether the object's owner is of a kind.
func (o *Object) OwnedBy(kind string) bool {
	return len(o.Metadata.OwnerReferences) > 0 && o.Metadata.OwnerReferences[0].Kind == kind
}

// Event is one change as it arrives.
type Event struct {
	Type   string // ADDED, MODIFIED, DELETED
	Object Object
	// At is when the event arrived, before it was decoded.
	At time.Time
}

// Client reads feeds of one cluster, and makes other requests to it.
type Client struct {
	// Only narrows what is followed of a kind: labelSelector or shardSelector, and its value.
	Only map[Kind][2]string
	http *http.Client
	host string
}

// NewClient makes a client.
func NewClient(config *rest.Config) (*Client, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client: %w", err)
	}
	return &Client{http: c, host: config.Host}, nil
}

// errGone says that the API server no longer has the changes since a resourceVersion.
var errGone = errors.New("the watch fell too far behind")

// Now returns the resourceVersion from which to follow a kind.
func (c *Client) Now(ctx context.Context, kind Kind) (string, error) {
	list, err := c.list(ctx, kind, url.Values{"limit": {"1"}})
	return list.Metadata.ResourceVersion, err
}

type objectList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []Object `json:"items"`
}

func (c *Client) list(ctx context.Context, kind Kind, query url.Values) (objectList, error) {
	var list objectList
	body, err := c.get(ctx, kind, query)
	if err != nil {
		return list, fmt.Errorf("listing %s: %w", kind.resource(), err)
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return list, fmt.Errorf("listing %s: %w", kind.resource(), err)
	}
	return list, nil
}

func (c *Client) get(ctx context.Context, kind Kind, query url.Values) (io.ReadCloser, error) {
	body, err := c.Do(ctx, http.MethodGet, kind.Path("")+"?"+query.Encode(), "", nil)
	if IsStatus(err, http.StatusGone) {
		return nil, errGone
	}
	return body, err
}

// Do makes a request with a body in JSON, or without one if it is nil, and returns the answer's body.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body any) (io.ReadCloser, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return nil, &statusError{response.StatusCode, string(text)}
	}
	return response.Body, nil
}

// statusError is an answer that is no success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.text) }

// IsStatus reports whether an error is an answer with this status.
func IsStatus(err error, code int) bool {
	status, ok := errors.AsType[*statusError](err)
	return ok && status.code == code
}

// Follow calls on for every change since a resourceVersion, until the context ends, which is no error. A watch that
// breaks off is resumed where it stopped. If that isn't possible, changes have been missed, and it returns an
// error.
func (c *Client) Follow(ctx context.Context, kind Kind, since string, on func(Event)) error {
	for {
		err := c.follow(ctx, kind, &since, on)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errGone):
			return fmt.Errorf("watching %s since %s: %w", kind.resource(), since, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Client) follow(ctx context.Context, kind Kind, since *string, on func(Event)) error {
	query := url.Values{
		"watch": {"1"}, "resourceVersion": {*since}, "allowWatchBookmarks": {"1"}, "timeoutSeconds": {strconv.Itoa(3600)},
	}
	if only, ok := c.Only[kind]; ok {
		query.Set(only[0], only[1])
	}
	body, err := c.get(ctx, kind, query)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := json.NewDecoder(body)
	for {
		var raw struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		event := Event{Type: raw.Type, At: time.Now()}
		if raw.Type == "ERROR" {
			return refusal(raw.Object)
		}
		if err := json.Unmarshal(raw.Object, &event.Object); err != nil {
			return err
		}
		*since = event.Object.Metadata.ResourceVersion
		if raw.Type != "BOOKMARK" {
			on(event)
		}
	}
}

// refusal is the error with which an API server ends a watch: errGone, or one after which the watch can be resumed.
func refusal(object []byte) error {
	var status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(object, &status); err != nil {
		return err
	}
	if status.Code == http.StatusGone {
		return errGone
	}
	return &statusError{status.Code, status.Message}
}
