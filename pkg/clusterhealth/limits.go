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
	told time.Time
}

// limit applies the limits of a Secret to its cluster. It reports invalid limits once, and again every eventEvery,
// since API servers keep events for an hour only.
func (h *Health) limit(ctx context.Context, secret *corev1.Secret) {
	if h.cfg.Limit == nil {
		return
	}
	err, now := h.cfg.Limit(secret.Name, secret), time.Now()
	h.mu.Lock()
	was := h.complaints[secret.Name]
	switch {
	case err == nil:
		delete(h.complaints, secret.Name)
		h.mu.Unlock()
		return
	case was.text == err.Error() && now.Sub(was.told) < eventEvery:
		h.mu.Unlock()
		return
	case !h.events.Allow():
		h.complaints[secret.Name] = complaint{text: err.Error()} // the next look reports it
		h.mu.Unlock()
		return
	}
	h.complaints[secret.Name] = complaint{err.Error(), now}
	h.mu.Unlock()
	h.log.Info("limits of a cluster can't be used", "cluster", secret.Name, "error", err.Error())
	Event{
		Reporter: EventReporter, Replica: h.cfg.Replica, Action: "Limit", Reason: ReasonBadLimits, Note: err.Error(),
		Cause: err.Error(),
	}.Tell(ctx, h.client, h.log, secret, now)
}
