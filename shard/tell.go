package shard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/event"
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

// tellOf makes an event about an object in the namespace of the records, unless it was made lately.
func (t *teller) tellOf(ctx context.Context, about corev1.ObjectReference, reason, note string, now time.Time) {
	about.Namespace = t.namespace
	e := event.Named(&eventsv1.Event{
		ReportingController: "tenure", ReportingInstance: t.replica, Action: "Survey", Reason: reason,
		Type: corev1.EventTypeWarning, Regarding: about, Note: note,
	}, "", tellEvery, now)
	if now.Sub(t.told[e.Name]) < 2*tellEvery {
		return
	}
	for old, at := range t.told {
		if now.Sub(at) > 2*tellEvery {
			delete(t.told, old)
		}
	}
	t.told[e.Name] = now
	t.log.Info("something is wrong with a record", "record", about.Name, "reason", reason, "note", note)
	t.spawn(func() {
		if err := client.IgnoreAlreadyExists(t.client.Create(ctx, e)); err != nil {
			t.log.Info("event not written", "reason", reason, "error", err.Error())
		}
	})
}
