package engage

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/must"
)

// client-go repeats what may succeed later, for two minutes, and the events behind it wait.
func TestAnEventThatTheFenceRefusesIsGivenUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFence(t, &answering{status: http.StatusCreated})
		f.gate.Shut()
		r, err := newRecorders(&rest.Config{Host: "https://west", QPS: -1}, &http.Client{Transport: f}, f.gate,
			clientgoscheme.Scheme)
		must.Succeed(t, err)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
		for i := range 2 { // the second one updates the first
			r.GetEventRecorderFor("test").Event(pod, corev1.EventTypeNormal, "Reason", "text")
			r.GetEventRecorder("test").Eventf(pod, nil, corev1.EventTypeNormal, "Reason", "Act", "text")
			time.Sleep(time.Minute)
			if n := f.traffic.FencedWrites.Load(); n != uint64(2*i+2) {
				t.Errorf("%d writes were tried for %d events", n, 2*i+2)
			}
		}
		r.stop()
	})
}

// Recorders write from goroutines of their own, and the next holder doesn't tell what this one found.
func TestWhatTheLastReconcileOfATenureToldIsWritten(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	told := map[string]func(*recorders){
		"legacy": func(r *recorders) {
			r.GetEventRecorderFor("test").Event(pod, corev1.EventTypeNormal, "Reason", "text")
		},
		"legacy, with a format": func(r *recorders) {
			r.GetEventRecorderFor("test").Eventf(pod, corev1.EventTypeNormal, "Reason", "%s", "text")
		},
		"legacy, annotated": func(r *recorders) {
			r.GetEventRecorderFor("test").AnnotatedEventf(pod, nil, corev1.EventTypeNormal, "Reason", "text")
		},
		"current": func(r *recorders) {
			r.GetEventRecorder("test").Eventf(pod, nil, corev1.EventTypeNormal, "Reason", "Act", "text")
		},
		"current, annotated": func(r *recorders) {
			r.GetEventRecorder("test").AnnotatedEventf(pod, nil, nil, corev1.EventTypeNormal, "Reason", "Act", "text")
		},
	}
	for name, tell := range told {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					f := openFence(t, servers(func(req *http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: http.StatusCreated, Body: req.Body, Header: req.Header}, nil
					}))
					r, err := newRecorders(&rest.Config{Host: "https://west", QPS: -1}, &http.Client{Transport: f}, f.gate,
						clientgoscheme.Scheme)
					must.Succeed(t, err)
					defer r.stop()
					_, end, _ := f.gate.Begin(t.Context())
					tell(r)
					end()
					began := time.Now()
					must.Succeed(t, f.gate.Drain(t.Context(), time.Minute, time.Second))
					if n := f.traffic.FencedWrites.Load(); n != 0 || time.Since(began) > eventPatience/2 {
						t.Errorf("%d events of 1 were refused; drained after %v", n, time.Since(began))
					}
				})
			}
		})
	}
}

// client-go doesn't write every event: it counts those that say the same, and drops what is too much.
func TestAnEventThatIsNeverWrittenHoldsUpNoMoveForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := openFence(t, &answering{status: http.StatusCreated}).gate
		drained := func() time.Duration {
			began := time.Now()
			must.Succeed(t, gate.Drain(t.Context(), time.Minute, time.Second))
			gate.Open(2)
			return time.Since(began)
		}
		gate.eventGiven()
		time.Sleep(eventPatience / 2)
		if took := drained(); took != eventPatience/2 {
			t.Errorf("drained after %v", took)
		}
		gate.eventGiven()
		gate.eventWritten()
		if took := drained(); took != 0 {
			t.Errorf("all events are written, and it drained after %v", took)
		}
	})
}
