package clusterhealth

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ReasonBadLimits is the reason of the event about annotations that can't be used.
const ReasonBadLimits = "BadLimits"

// complaint is what was last reported about a Secret's limits.
type complaint struct {
	text string
	told time.Time // zero if its event was put off
}

// limit applies the limits of a Secret to its cluster. It reports invalid limits by a log line and an event. The event
// is repeated every eventEvery, since API servers keep events for an hour only. If there are too many events, a new one
// is put off to the next look, as record does it.
func (h *Health) limit(ctx context.Context, secret *corev1.Secret) {
	if h.cfg.Limit == nil {
		return
	}
	err, now := h.cfg.Limit(secret.Name, secret), time.Now()
	h.mu.Lock()
	was := h.complaints[secret.Name]
	if err == nil {
		delete(h.complaints, secret.Name)
		h.mu.Unlock()
		return
	}
	changed, tells := was.text != err.Error(), false
	if changed || now.Sub(was.told) >= eventEvery {
		is := complaint{text: err.Error()}
		edited := h.states[secret.Name].version != "" && h.states[secret.Name].version != secret.ResourceVersion
		repeats := !changed && !was.told.IsZero()
		if tells = repeats || edited || h.events.Allow(); tells {
			is.told = now
		}
		h.complaints[secret.Name] = is
	}
	h.mu.Unlock()
	if changed {
		h.log.Info("limits of a cluster can't be used", "cluster", secret.Name, "error", err.Error())
	}
	if !tells {
		return
	}
	_ = Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: "Limit", Reason: ReasonBadLimits, Note: err.Error(),
		Cause: err.Error(),
	}.Tell(ctx, h.client, h.log, secret, now)
}
