package engage

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// recorders makes event recorders that write through the shard's own fence, and has the gate wait for what they are to
// write. Each broadcaster starts when the first recorder is requested, so that a shard that reports nothing costs
// nothing, and stops with the shard.
type recorders struct {
	scheme *runtime.Scheme
	gate   *Gate
	core   typedcorev1.CoreV1Interface
	events typedeventsv1.EventsV1Interface

	mu      sync.Mutex // guards all below
	stopped bool
	cancel  context.CancelFunc
	legacy  record.EventBroadcaster
	current events.EventBroadcaster
}

func (r *recorders) GetEventRecorderFor(name string) record.EventRecorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.legacy == nil {
		r.legacy = record.NewBroadcaster()
		if r.stopped {
			r.legacy.Shutdown()
		} else {
			r.legacy.StartRecordingToSink(legacySink{&typedcorev1.EventSinkImpl{Interface: r.core.Events("")}, r.gate})
		}
	}
	return legacyRecorder{r.legacy.NewRecorder(r.scheme, corev1.EventSource{Component: name}), r.gate}
}

func (r *recorders) GetEventRecorder(name string) recorder.EventRecorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		r.current = events.NewBroadcaster(currentSink{&events.EventSinkImpl{Interface: r.events}, r.gate})
		if r.stopped {
			r.current.Shutdown()
		} else {
			var ctx context.Context
			ctx, r.cancel = context.WithCancel(context.Background())
			_ = r.current.StartRecordingToSinkWithContext(ctx) // fails only on a broadcaster that was shut down
		}
	}
	// client-go declares the recorder without AnnotatedEventf, but always makes one that has it; so controller-runtime
	// does this too.
	return currentRecorder{r.current.NewRecorder(r.scheme, name).(recorder.EventRecorder), r.gate}
}

func (r *recorders) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.legacy != nil {
		r.legacy.Shutdown()
	}
	if r.current != nil {
		r.cancel()
		r.current.Shutdown()
	}
}

// legacyRecorder and currentRecorder count the events that they are given.
type (
	legacyRecorder struct {
		record.EventRecorder
		gate *Gate
	}
	currentRecorder struct {
		recorder.EventRecorder
		gate *Gate
	}
)

func (r legacyRecorder) Event(object runtime.Object, kind, reason, message string) {
	r.gate.eventGiven()
	r.EventRecorder.Event(object, kind, reason, message)
}

func (r legacyRecorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.gate.eventGiven()
	r.EventRecorder.Eventf(object, kind, reason, format, args...)
}

func (r legacyRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason,
	format string, args ...any) {
	r.gate.eventGiven()
	r.EventRecorder.AnnotatedEventf(object, annotations, kind, reason, format, args...)
}

func (r currentRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.gate.eventGiven()
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
}

func (r currentRecorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason,
	action, note string, args ...any) {
	r.gate.eventGiven()
	r.EventRecorder.AnnotatedEventf(regarding, related, annotations, kind, reason, action, note, args...)
}

// legacySink and currentSink make a refusal by the fence look like one by the server, for which the broadcasters give
// an event up. They would repeat any other failure for two minutes, and the legacy one would keep later events waiting.
type (
	legacySink struct {
		record.EventSink
		gate *Gate
	}
	currentSink struct {
		events.EventSink
		gate *Gate
	}
)

func (s legacySink) Create(e *corev1.Event) (*corev1.Event, error) {
	defer s.gate.eventWritten()
	return refusing(s.EventSink.Create(e))
}

func (s legacySink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	defer s.gate.eventWritten()
	return refusing(s.EventSink.Patch(e, data))
}

func (s currentSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	defer s.gate.eventWritten()
	return refusing(s.EventSink.Create(ctx, e))
}

func (s currentSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	defer s.gate.eventWritten()
	return refusing(s.EventSink.Patch(ctx, e, data))
}

// refusing returns an error of the fence as a server's.
func refusing[E any](event E, err error) (E, error) {
	if errors.Is(err, ErrFenced) {
		err = &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonForbidden, Message: err.Error(),
		}}
	}
	return event, err
}
