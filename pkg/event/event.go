// Package event makes the Kubernetes events about what all replicas find. An event is named by its cause, so the second
// replica to create it finds that it exists. A recorder would create one event per replica.
package event

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/text"
)

// Named completes an event whose Regarding and Reason are set: by name, namespace and time. It shortens what API
// servers would refuse. cause distinguishes events that have the same reason and are about the same version of an
// object. Events of one cause have the same name within a [Period].
func Named(e *eventsv1.Event, cause string, every time.Duration, now time.Time) *eventsv1.Event {
	about, sum := e.Regarding, fnv.New64a()
	fmt.Fprintf(sum, "%s %s %s %s %s %d", about.Name, about.UID, about.ResourceVersion, e.Reason, cause,
		Period(about.Name, every, now).Unix())
	// API servers refuse a name that is longer than 253 bytes, or in which a dot follows a dot or a hyphen.
	e.Name = fmt.Sprintf("%s.%016x", strings.TrimRight(about.Name[:min(len(about.Name), 230)], "-."), sum.Sum64())
	e.Namespace, e.EventTime = about.Namespace, metav1.NewMicroTime(now)
	e.ReportingInstance, e.Note = text.Line(e.ReportingInstance, 128), text.Line(e.Note, text.Note)
	return e
}

// Period returns when the period began in which now is. Periods have the length every. Those of objects with different
// names begin at different times: where trouble in many clusters is reported once in each period, home isn't asked for
// all events at once.
func Period(name string, every time.Duration, now time.Time) time.Time {
	sum := fnv.New64a()
	sum.Write([]byte(name))
	shift := time.Duration(sum.Sum64() % uint64(every))
	return now.Add(shift).Truncate(every).Add(-shift)
}
