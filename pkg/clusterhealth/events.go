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
	// eventEvery is the length of the periods in which trouble that lasts is reported again, since API servers keep events
	// for an hour only. The first replica that looks at a cluster in a new period does so for all.
	eventEvery = 20 * time.Minute
	// TroubleEventMaxAge is the maximum age of the latest event about trouble that still lasts.
	TroubleEventMaxAge = eventEvery + time.Minute
	// changeEvery is the same for what is news to a replica: a reader takes the latest event for the state, and ignores
	// those from before the replicas began. A replica needs two looks to see a change and the change back, so a cluster
	// that comes and goes gets six events a minute.
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
	// News says that the replica hasn't reported this state yet, so that an event of before may say otherwise.
	News bool
}

// object returns the event.
func (e Event) object(secret *corev1.Secret, now time.Time) *eventsv1.Event {
	kind := corev1.EventTypeWarning
	if e.Normal {
		kind = corev1.EventTypeNormal
	}
	every := eventEvery
	if e.News {
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
// of changeEvery. It logs a failure, which is enough for many callers: metrics and the log report the trouble, too.
func (e Event) Tell(ctx context.Context, home client.Client, log logr.Logger, secret *corev1.Secret,
	now time.Time) error {
	err := client.IgnoreAlreadyExists(home.Create(ctx, e.object(secret, now)))
	if err != nil {
		log.Info("event about a cluster not written", "cluster", secret.Name, "reason", e.Reason, "error", err.Error())
	}
	return err
}

// report reports a finding. A cluster that was removed and came back is known: its event is another one than the first,
// which the removal has ended, perhaps a moment ago. first is the incarnation if this is its first event about the
// cluster; it makes the event's name its own. It is "" for changes, so that replicas that see the same change write one
// event.
func (h *Health) report(ctx context.Context, secret *corev1.Secret, f finding, known, news bool, first string) error {
	action := "Probe"
	if f.usable && f.reason != ReasonUsable {
		action = ActionKeep
	}
	return Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: action, Reason: f.reason, Note: f.note,
		Cause: fmt.Sprint(f.usable, known, first), Normal: f.reason == ReasonUsable, News: news,
	}.Tell(ctx, h.client, h.log, secret, time.Now())
}

// end reports that a cluster was removed whose trouble was reported. Each replica does so, since each may have reported
// the trouble after another had ended it: hence the cause.
func (h *Health) end(ctx context.Context, name string, s state) {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name, secret.UID = h.cfg.Namespace, name, s.uid
	_ = Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: "Forget", Reason: ReasonRemoved,
		Note: "it was removed, and what was reported of it counts no more", Cause: fmt.Sprint(h.cfg.Replica, s.told),
		Normal: true, News: true,
	}.Tell(ctx, h.client, h.log, secret, time.Now())
}
