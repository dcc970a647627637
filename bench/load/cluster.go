package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/bench/load/feed"
)

// Cluster sends requests to one API server.
type Cluster struct {
	Name string
	// Nodes says that it has some, which run Pods.
	Nodes bool
	http  *http.Client
	host  string
}

// NewCluster makes a client of a cluster. Its requests share connections.
func NewCluster(name string, config *rest.Config) (*Cluster, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of cluster %s: %w", name, err)
	}
	return &Cluster{Name: name, http: client, host: config.Host}, nil
}

// statusError is an answer that is no success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.text) }

// send makes one request. into may be nil.
func (c *Cluster) send(ctx context.Context, method, path, contentType string, body, into any) error {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, in)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return &statusError{response.StatusCode, string(text)}
	}
	if into != nil {
		return json.NewDecoder(response.Body).Decode(into)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

const (
	plainJSON  = "application/json"
	mergePatch = "application/merge-patch+json"
)

// object is a JSON object.
type object = map[string]any

func (c *Cluster) createAt(ctx context.Context, namespace, name, schedule string) error {
	return c.send(ctx, http.MethodPost, feed.Ats.Path(namespace), plainJSON, object{
		"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
		"metadata": object{"name": name},
		"spec":     object{"schedule": schedule, "command": "echo " + name},
	}, nil)
}

// patchAt changes an At, or its status where the name ends in /status.
func (c *Cluster) patchAt(ctx context.Context, namespace, name string, patch object) error {
	return c.send(ctx, http.MethodPatch, feed.Ats.Path(namespace)+"/"+name, mergePatch, patch, nil)
}

func (c *Cluster) deleteAt(ctx context.Context, namespace, name string) error {
	return c.send(ctx, http.MethodDelete, feed.Ats.Path(namespace)+"/"+name, plainJSON, nil, nil)
}

func (c *Cluster) endPod(ctx context.Context, namespace, name string) error {
	return c.send(ctx, http.MethodPatch, feed.Pods.Path(namespace)+"/"+name+"/status", mergePatch,
		object{"status": object{"phase": "Succeeded"}}, nil)
}
