package clusterhealth

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/text"
)

const (
	// eventEvery is how often one cause is told: a cluster that comes and goes all the time makes no flood. Trouble that
	// stays is told again after it, since events are kept for an hour.
	eventEvery = 20 * time.Minute
	// EventReporter is the reporting controller of the events.
	EventReporter = "tenure"
)

// event is what is told of a Secret's cluster. All replicas find the same trouble, so its name is made of what it is
// about: who comes second finds it there. A recorder would make one event per replica.
func event(secret *corev1.Secret, reporter string, f finding, now time.Time) *eventsv1.Event {
	kind := corev1.EventTypeWarning
	if f.reason == ReasonUsable {
		kind = corev1.EventTypeNormal
	}
	cause := fnv.New64a()
	fmt.Fprintf(cause, "%s %s %s %t %d", secret.UID, secret.ResourceVersion, f.reason, f.usable, now.Unix()/int64(eventEvery.Seconds()))
	name := secret.Name
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: secret.Namespace, Name: fmt.Sprintf("%.230s.%016x", name, cause.Sum64())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: EventReporter,
		ReportingInstance:   text.Line(reporter, 128), // what the API server takes
		Action:              "Probe",
		Reason:              f.reason,
		Type:                kind,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
		},
		Note: text.Line(fmt.Sprintf("cluster %s: %s", name, f.note), text.Note),
	}
}

// report makes the event, unless it is there. One that can't be made is only logged: the metric and the log have it too.
func (h *Health) report(ctx context.Context, secret *corev1.Secret, f finding) {
	err := h.client.Create(ctx, event(secret, h.cfg.Replica, f, time.Now()))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		h.log.Info("event about a cluster not written", "cluster", secret.Name, "reason", f.reason, "error", err.Error())
	}
}
