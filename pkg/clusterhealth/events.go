package clusterhealth

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/event"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
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
	// eventsPerSecond and eventsAtOnce bound what one replica writes about all clusters, and so what it asks of home when
	// many clusters come and go.
	eventsPerSecond, eventsAtOnce = 5, 50
	// EventReporter is the reporting controller of the events.
	EventReporter = "tenure"
	// ActionKeep is the action of an event about a kubeconfig that doesn't work while the connection from before does. The
	// action of the others about a cluster's state is "Probe".
	ActionKeep = "KeepConnection"
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

// object returns the event.
func (e Event) object(secret *corev1.Secret, now time.Time) *eventsv1.Event {
	kind := corev1.EventTypeWarning
	if e.Normal {
		kind = corev1.EventTypeNormal
	}
	every := eventEvery
	if e.Changed {
		every = changeEvery
	}
	about := "cluster " + secret.Name
	if path, isFile := kubeconfig.FileOf(secret.UID); isFile && !strings.Contains(e.Note, path) {
		about += " (file " + path + ")"
	}
	return event.Named(&eventsv1.Event{
		ReportingController: e.Reporter, ReportingInstance: e.Replica, Action: e.Action, Reason: e.Reason, Type: kind,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID,
			ResourceVersion: secret.ResourceVersion,
		},
		Note: about + ": " + e.Note,
	}, e.Cause, every, now)
}

// Tell creates the event, unless any replica has created one for the same cause in the present period of eventEvery, or
// of changeEvery. A failure is only logged, since metrics and the log report the trouble, too.
func (e Event) Tell(ctx context.Context, home client.Client, log logr.Logger, secret *corev1.Secret, now time.Time) {
	if err := client.IgnoreAlreadyExists(home.Create(ctx, e.object(secret, now))); err != nil {
		log.Info("event about a cluster not written", "cluster", secret.Name, "reason", e.Reason, "error", err.Error())
	}
}

func (h *Health) report(ctx context.Context, secret *corev1.Secret, f finding, changed bool) {
	action := "Probe"
	if f.usable && f.reason != ReasonUsable {
		action = ActionKeep
	}
	Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: action, Reason: f.reason, Note: f.note,
		Cause: fmt.Sprint(f.usable), Normal: f.reason == ReasonUsable, Changed: changed,
	}.Tell(ctx, h.client, h.log, secret, time.Now())
}

// end reports that a cluster was removed whose trouble was reported. Each replica does so, since each may have reported
// the trouble after another had ended it: hence the cause.
func (h *Health) end(ctx context.Context, name string, s state) {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name, secret.UID = h.cfg.Namespace, name, s.uid
	Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: "Forget", Reason: ReasonRemoved,
		Note: "it was removed, and what was reported of it counts no more", Cause: fmt.Sprint(h.cfg.Replica, s.told),
		Normal: true, Changed: true,
	}.Tell(ctx, h.client, h.log, secret, time.Now())
}
