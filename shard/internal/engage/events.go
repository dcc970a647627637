package engage

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	corev1 "k8s.io/api/core/v1"
)

// recorders makes event recorders that write through the shard's own fence. Each broadcaster starts when the first
// recorder is requested, so that a shard that reports nothing costs nothing, and stops with the shard.
type recorders struct {
	scheme *runtime.Scheme
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
			r.legacy.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.core.Events("")})
		}
	}
	return r.legacy.NewRecorder(r.scheme, corev1.EventSource{Component: name})
}

func (r *recorders) GetEventRecorder(name string) recorder.EventRecorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		r.current = events.NewBroadcaster(&events.EventSinkImpl{Interface: r.events})
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
	return r.current.NewRecorder(r.scheme, name).(recorder.EventRecorder)
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
