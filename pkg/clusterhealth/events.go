package clusterhealth

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

const (
	// eventEvery is the time between two events of one cause. Trouble that lasts is reported again after it, since API
	// servers keep events for an hour only.
	eventEvery = 20 * time.Minute
	// TroubleEventMaxAge is the maximum age of the latest event about trouble that still lasts.
	TroubleEventMaxAge = eventEvery + time.Minute
	// changeEvery is the same for changes of a cluster's state: a reader takes the latest event for the state. A replica
	// needs two looks to see a change and the change back, so a cluster that comes and goes gets six events a minute.
	changeEvery = lookEvery
	// EventReporter is the reporting controller of the events.
	EventReporter = "tenure"
)

// Event is an event about the cluster of a Secret. It regards the Secret even if that stands for a file, so that
// one query finds the events of any cluster. The note then names the file.
type Event struct {
	// Reporter is the reporting controller, and Replica its instance. Action is what was being done.
	Reporter, Replica, Action string
	Reason, Note              string
	// Cause distinguishes events that have the same reason.
	Cause  string
	Normal bool
	// Changed says that the state has changed, so that an event of before may say otherwise.
	Changed bool
}

// object returns the event. All replicas find the same trouble, so the name is derived from what the event is
// about: the second replica to create it finds that it exists. A recorder would create one event per replica.
func (e Event) object(secret *corev1.Secret, now time.Time) *eventsv1.Event {
	kind := corev1.EventTypeWarning
	if e.Normal {
		kind = corev1.EventTypeNormal
	}
	every := eventEvery
	if e.Changed {
		every = changeEvery
	}
	cause := fnv.New64a()
	fmt.Fprintf(cause, "%s %s %s %s %d", secret.UID, secret.ResourceVersion, e.Reason, e.Cause,
		now.Truncate(every).Unix())
	name := secret.Name
	about := "cluster " + name
	if path, isFile := kubeconfig.FileOf(secret.UID); isFile && !strings.Contains(e.Note, path) {
		about += " (file " + path + ")"
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace,
			Name: text.EventName(name, cause.Sum64())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: e.Reporter,
		ReportingInstance:   text.Line(e.Replica, 128), // the API server's limit
		Action:              e.Action,
		Reason:              e.Reason,
		Type:                kind,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: name, UID: secret.UID,
			ResourceVersion: secret.ResourceVersion,
		},
		Note: text.Line(about+": "+e.Note, text.Note),
	}
}

// Tell creates the event, unless any replica has created one for the same cause in the present period of eventEvery, or
// of changeEvery. A failure is only logged, since metrics and the log report the trouble, too.
func (e Event) Tell(ctx context.Context, home client.Client, log logr.Logger, secret *corev1.Secret, now time.Time) {
	err := home.Create(ctx, e.object(secret, now))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		log.Info("event about a cluster not written", "cluster", secret.Name, "reason", e.Reason, "error", err.Error())
	}
}

func (h *Health) report(ctx context.Context, secret *corev1.Secret, f finding, changed bool) {
	Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: "Probe", Reason: f.reason, Note: f.note,
		Cause: fmt.Sprint(f.usable), Normal: f.reason == ReasonUsable, Changed: changed,
	}.Tell(ctx, h.client, h.log, secret, time.Now())
}
