package console

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Question is one object and the fleet it lives in.
type Question struct {
	Snapshot Snapshot
	Object   Object
	// One of At and Deployment is what was asked about. Both are nil if there is no such object, or if Unreadable says
	// why it couldn't be read.
	At         *cnatv1alpha1.At
	Deployment *appsv1.Deployment
	Unreadable string
	// Pod of the At, if there is one. PodMissing: the cluster says that there is none; otherwise it may be unreadable.
	Pod        *corev1.Pod
	PodMissing bool
	// Read is when these were read, which may be seconds after the Leases in Snapshot; zero means at the same time.
	Read time.Time
	// Barred: the replicas may not write the status of Ats, or to Deployments, in the object's namespace.
	Barred bool
}

// Object is what is asked about.
type Object struct {
	Kind, Namespace, Name string
	// Cluster is where it is. "" means the only cluster there is for an At, and the home cluster for a Deployment.
	Cluster keyspace.ClusterName
}

const (
	kindAt         = "at"
	kindDeployment = "deployment"
)

// String returns the object as it is written on the command line.
func (o Object) String() string { return o.Kind + "/" + o.Name }

// ParseObject reads KIND/NAME.
func ParseObject(text string) (Object, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return Object{}, fmt.Errorf("%q: want at/NAME or deployment/NAME", text)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return Object{}, fmt.Errorf("%q: NAME %q: %s", text, name, strings.Join(problems, "; "))
	}
	kind, group, qualified := strings.Cut(strings.ToLower(kind), ".") // kubectl get -o name prints the group
	object, of := Object{Name: name}, ""
	switch kind {
	case "at", "ats", "cnat":
		object.Kind, of = kindAt, cnatv1alpha1.GroupVersion.Group
	case "deployment", "deployments", "deploy":
		object.Kind, of = kindDeployment, appsv1.GroupName
	}
	if object.Kind != "" && (!qualified || group == of) {
		return object, nil
	}
	return Object{}, fmt.Errorf("%q: want at/NAME or deployment/NAME; other kinds aren't known here", text)
}

// UsageError is the error of a question that makes no sense, as opposed to one that couldn't be answered.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }
