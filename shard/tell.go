package shard

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/inspect"
)

// tellEvery is how often one cause is reported again: events are kept for an hour.
const tellEvery = 20 * time.Minute

// teller reports what is wrong with records, as events and in the log, about once per cause and tellEvery. It is not
// safe for concurrent use.
type teller struct {
	client    client.Client // of the home cluster
	namespace string
	replica   string
	log       logr.Logger
	spawn     func(func())
	told      map[string]time.Time
}

func newTeller(c client.Client, cfg Config, log logr.Logger, spawn func(func())) *teller {
	return &teller{client: c, namespace: cfg.Namespace, replica: cfg.Replica, log: log, spawn: spawn,
		told: map[string]time.Time{}}
}

// tellAtOnce is how many records are reported for one reason in one survey. All records may be gone, for example in a
// new home cluster in which the coordinator hasn't made them yet.
const tellAtOnce = 20

// tellAll makes events about records. If there are too many with one reason, the last event says how many more there
// are.
func (t *teller) tellAll(ctx context.Context, all []inspect.Odd, now time.Time) {
	slices.SortFunc(all, func(a, b inspect.Odd) int { // so that the same records are reported each time
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Record, b.Record))
	})
	for len(all) > 0 {
		alike := slices.IndexFunc(all, func(o inspect.Odd) bool { return o.Reason != all[0].Reason })
		if alike < 0 {
			alike = len(all)
		}
		for i, o := range all[:min(alike, tellAtOnce)] {
			if more := alike - tellAtOnce; i == tellAtOnce-1 && more > 0 {
				o.Note = fmt.Sprintf("%s; %d more records are like it", text.Line(o.Note, 900), more)
			}
			t.tell(ctx, o, now)
		}
		all = all[alike:]
	}
}

// tell makes an event about a record, unless it was made lately.
func (t *teller) tell(ctx context.Context, o inspect.Odd, now time.Time) {
	t.tellOf(ctx, corev1.ObjectReference{
		APIVersion: tenurev1alpha1.GroupVersion.String(), Kind: "Shard", Name: o.Record, UID: o.UID,
	}, o.Reason, o.Note, now)
}

// tellOf makes an event about an object in the namespace of the records, unless it was made lately. All replicas find
// the same problems, so the event's name is made of its cause: the second replica finds the event there.
func (t *teller) tellOf(ctx context.Context, about corev1.ObjectReference, reason, note string, now time.Time) {
	cause := fnv.New64a()
	fmt.Fprintf(cause, "%s %s %s %d", about.Name, about.UID, reason, now.Unix()/int64(tellEvery.Seconds()))
	name := text.EventName(about.Name, cause.Sum64())
	if now.Sub(t.told[name]) < 2*tellEvery {
		return
	}
	for old, at := range t.told {
		if now.Sub(at) > 2*tellEvery {
			delete(t.told, old)
		}
	}
	t.told[name] = now
	t.log.Info("something is wrong with a record", "record", about.Name, "reason", reason, "note", note)
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: "tenure",
		ReportingInstance:   t.replica,
		Action:              "Survey",
		Reason:              reason,
		Type:                corev1.EventTypeWarning,
		Regarding:           about,
		Note:                text.Line(note, text.Note),
	}
	event.Regarding.Namespace = t.namespace
	t.spawn(func() {
		if err := t.client.Create(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
			t.log.Info("event not written", "reason", reason, "error", err.Error())
		}
	})
}
