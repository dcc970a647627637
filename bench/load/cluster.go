package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/bench/load/feed"
)

// Cluster sends requests to one API server.
type Cluster struct {
	Name string
	// Nodes says that the cluster has nodes, which run its Pods.
	Nodes bool
	Feed  *feed.Client
	only  string // of a virtual cluster, the namespace that has all of its objects; else empty
}

// NewCluster makes a client of a cluster. Its requests share connections.
func NewCluster(name string, config *rest.Config) (*Cluster, error) {
	client, err := feed.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of cluster %s: %w", name, err)
	}
	return &Cluster{Name: name, Feed: client}, nil
}

// Virtual returns a client of a virtual cluster (package virtual) on this one. Its only namespace is "default". It
// takes the Ats of all namespaces of the load; their names begin with the namespace that they are for.
func (c *Cluster) Virtual(name string) *Cluster {
	v := *c
	v.Name, v.only = name, name+virtualSuffix
	return &v
}

// IsVirtual reports whether this is a virtual cluster. Its only namespace exists from the start.
func (c *Cluster) IsVirtual() bool { return c.only != "" }

// virtualSuffix ends what the API server calls the namespace "default" of a virtual cluster.
const virtualSuffix = "-default"

// ClusterOf is the cluster that a namespace of an API server belongs to: a virtual one, or that of the API server
// itself.
func ClusterOf(server, namespace string) string {
	if name, ok := strings.CutSuffix(namespace, virtualSuffix); ok {
		return name
	}
	return server
}

// RefOf returns the reference of an At, from the namespace and name that it has on an API server.
func RefOf(server, namespace, name string) Ref {
	ref := Ref{ClusterOf(server, namespace), namespace, name}
	if ref.Cluster != server {
		ref.Namespace, ref.Name, _ = strings.Cut(name, ".")
	}
	return ref
}

// path returns the path of the Ats of a namespace, and the name that the API server has for one of them.
func (c *Cluster) path(namespace, name string) (path, called string) {
	if c.only == "" {
		return feed.Ats.Path(namespace), name
	}
	return feed.Ats.Path(c.only), namespace + "." + name
}

// send makes one request. into may be nil.
func (c *Cluster) send(ctx context.Context, method, path, contentType string, body, into any) error {
	answer, err := c.Feed.Do(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if into != nil {
		return json.NewDecoder(answer).Decode(into)
	}
	_, err = io.Copy(io.Discard, answer)
	return err
}

const (
	plainJSON  = "application/json"
	mergePatch = "application/merge-patch+json"
)

// object is a JSON object.
type object = map[string]any

func (c *Cluster) createAt(ctx context.Context, namespace, name, schedule string) error {
	path, name := c.path(namespace, name)
	return c.send(ctx, http.MethodPost, path, plainJSON, object{
		"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
		"metadata": object{"name": name},
		"spec":     object{"schedule": schedule, "command": "echo " + name},
	}, nil)
}

// patchAt changes an At, or its status where the name ends in /status.
func (c *Cluster) patchAt(ctx context.Context, namespace, name string, patch object) error {
	path, name := c.path(namespace, name)
	return c.send(ctx, http.MethodPatch, path+"/"+name, mergePatch, patch, nil)
}

func (c *Cluster) deleteAt(ctx context.Context, namespace, name string) error {
	path, name := c.path(namespace, name)
	return c.send(ctx, http.MethodDelete, path+"/"+name, "", nil, nil)
}

func (c *Cluster) endPod(ctx context.Context, namespace, name string) error {
	return c.send(ctx, http.MethodPatch, feed.Pods.Path(namespace)+"/"+name+"/status", mergePatch,
		object{"status": object{"phase": "Succeeded"}}, nil)
}
