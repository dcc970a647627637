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

// warnEvery is how often one cause is reported again: events are kept for an hour.
const warnEvery = 20 * time.Minute

// warner reports what is wrong with records, as events and in the log, about once per cause and warnEvery. It is not
// safe for concurrent use.
type warner struct {
	client    client.Client // of the home cluster
	namespace string
	replica   string
	log       logr.Logger
	spawn     func(func())
	warned    map[string]time.Time
}

func newWarner(c client.Client, cfg Config, log logr.Logger, spawn func(func())) *warner {
	return &warner{client: c, namespace: cfg.Namespace, replica: cfg.Replica, log: log, spawn: spawn,
		warned: map[string]time.Time{}}
}

// warnAtOnce is how many records are reported for one reason in one survey. All records may be gone, for example in a
// new home cluster in which the coordinator hasn't made them yet.
const warnAtOnce = 20

// warnAll makes events about records. If there are too many with one reason, the last event says how many more there
// are.
func (w *warner) warnAll(ctx context.Context, all []inspect.Odd, now time.Time) {
	slices.SortFunc(all, func(a, b inspect.Odd) int { // so that the same records are reported each time
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Record, b.Record), cmp.Compare(a.Cause, b.Cause))
	})
	for len(all) > 0 {
		alike := slices.IndexFunc(all, func(o inspect.Odd) bool { return o.Reason != all[0].Reason })
		if alike < 0 {
			alike = len(all)
		}
		for i, o := range all[:min(alike, warnAtOnce)] {
			if more := alike - warnAtOnce; i == warnAtOnce-1 && more > 0 {
				o.Note = fmt.Sprintf("%s; %d more records are like it", text.Line(o.Note, 900), more)
			}
			w.warn(ctx, o, now)
		}
		all = all[alike:]
	}
}

// warn makes an event about a record, unless it was made lately.
func (w *warner) warn(ctx context.Context, o inspect.Odd, now time.Time) {
	w.warnAbout(ctx, corev1.ObjectReference{
		APIVersion: tenurev1alpha1.GroupVersion.String(), Kind: "Shard", Name: o.Record, UID: o.UID,
	}, o.Reason, o.Note, o.Cause, now)
}

// warnAbout makes an event about an object in the namespace of the records, unless it was made lately. cause
// distinguishes events about the object that have the same reason.
func (w *warner) warnAbout(ctx context.Context, about corev1.ObjectReference, reason, note, cause string,
	now time.Time) {
	about.Namespace = w.namespace
	e := event.Named(&eventsv1.Event{
		ReportingController: "tenure", ReportingInstance: w.replica, Action: "Survey", Reason: reason,
		Type: corev1.EventTypeWarning, Regarding: about, Note: note,
	}, cause, warnEvery, now)
	if now.Sub(w.warned[e.Name]) < 2*warnEvery {
		return
	}
	for old, at := range w.warned {
		if now.Sub(at) > 2*warnEvery {
			delete(w.warned, old)
		}
	}
	w.warned[e.Name] = now
	w.log.Info("something is wrong with a record", "record", about.Name, "reason", reason, "note", note)
	w.spawn(func() {
		if err := client.IgnoreAlreadyExists(w.client.Create(ctx, e)); err != nil {
			w.log.Info("event not written", "reason", reason, "error", err.Error())
		}
	})
}
