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
		r, err := newRecorders(&rest.Config{Host: "https://west", QPS: -1}, &http.Client{Transport: f},
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
