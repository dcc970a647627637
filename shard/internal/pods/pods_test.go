package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// left returns what a kubelet finds in the termination log of an incarnation.
func left(t *testing.T, id protocol.Incarnation) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	must.Succeed(t, os.WriteFile(path, nil, 0o600))
	must.Succeed(t, Log(path, id))
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(text)
}

func TestATerminationLogNamesTheLastIncarnationAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := Log(path, "a-1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that isn't there is written: %v", err)
	}
	if err := Log("/dev/full", "a-1"); err == nil || !strings.HasPrefix(err.Error(), "termination log: ") {
		t.Errorf("a log that can't be written: %v; want an error that says what it is about", err)
	}
	must.Succeed(t, os.WriteFile(path, []byte(strings.Repeat("x", 200)), 0o600))
	for _, id := range []protocol.Incarnation{"a-longer-one", "a-1", "a-2"} {
		must.Succeed(t, Log(path, id))
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		if got := named(&corev1.ContainerStateTerminated{ContainerID: "cri://1", Message: string(text)}); got != id {
			t.Errorf("%q names %q, want %q", text, got, id)
		}
	}
	// A kubelet cuts messages to its share of 12 KiB: Pods of up to a hundred containers are fine.
	if longest := left(t, protocol.Incarnation(strings.Repeat("x", 70))); len(longest) > 12*1024/100 {
		t.Errorf("the longest message has %d bytes", len(longest))
	}
}

func TestOnlyAContainerThatRanAndEndedNamesAnIncarnation(t *testing.T) {
	full := left(t, "a-1")
	end := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "cri://1", Message: message}}
	}
	lost := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: full,
		Reason: "ContainerStatusUnknown"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, c := range map[string]struct {
		now, last corev1.ContainerState
		want      []protocol.Incarnation
	}{
		"ended":     {now: end(full), want: []protocol.Incarnation{"a-1"}},
		"restarted": {now: running, last: end(full), want: []protocol.Incarnation{"a-1"}},
		"ended again": {now: end(left(t, "a-2")), last: end(full),
			want: []protocol.Incarnation{"a-2", "a-1"}},
		"runs": {now: running},
		"waits": {now: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Message: full},
		}},
		"a container that the kubelet has lost":     {now: lost},
		"no message":                                {now: end("")},
		"part of a message":                         {now: end(full[:len(full)-1])},
		"the kubelet can't read it":                 {now: end("Error on reading termination log /x: permission denied")},
		"more than a message":                       {now: end(full + full)},
		"the last lines of a log, which has a name": {now: end("panic: a-1\n" + full)},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "8d1f"}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "sidecar", State: end("done")}, {Name: "manager", State: c.now, LastTerminationState: c.last},
			}
			var want []ownership.ContainerSeen
			if c.want != nil {
				want = []ownership.ContainerSeen{{Container: "n/a/8d1f/manager", Ended: c.want}}
			}
			expect.Equal(t, "ended", want, Ended(pod))
		})
	}
}

func TestWhoMayNotReadPodsSaysSoOnceAndAsksAgain(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "8d1f",
		Labels: map[string]string{"of": "us"}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ContainerID: "cri://1", Message: left(t, "a-1")},
	}}}
	c := fake.NewSimpleClientset(pod)
	var refused, lines atomic.Int32
	c.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if got := action.(clienttesting.ListAction).GetListRestrictions().Labels.String(); got != "of=us" {
			t.Errorf("Pods %q are listed", got)
		}
		if refused.Add(1) <= 3 {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		}
		return false, nil, nil
	})
	log := funcr.New(func(_, _ string) { lines.Add(1) }, funcr.Options{})
	w, err := newWatch(c, "n", "of=us", live, 10*time.Millisecond, log)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	seen := make(chan ownership.ContainerSeen, 9)
	must.Succeed(t, w.Follow(ctx, func(c ownership.ContainerSeen) { seen <- c }))
	want := ownership.ContainerSeen{Container: "n/a/8d1f/manager", Ended: []protocol.Incarnation{"a-1"}}
	expect.Equal(t, "seen", want, <-seen)
	if refused.Load() != 4 || lines.Load() != 1 {
		t.Errorf("%d lists, %d lines in the log: want 4 and 1", refused.Load(), lines.Load())
	}
	// One that follows later is shown what there is; a Pod that is deleted proves nothing any more.
	late := make(chan ownership.ContainerSeen, 9)
	must.Succeed(t, w.Follow(ctx, func(c ownership.ContainerSeen) { late <- c }))
	expect.Equal(t, "seen by one that follows later", want, <-late)
	for range 2000 { // until the watch is there, what is deleted isn't told
		if len(c.Actions()) > 4 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must.Succeed(t, c.CoreV1().Pods("n").Delete(ctx, "a", metav1.DeleteOptions{}))
	want.Ended = nil
	expect.Equal(t, "seen", want, <-seen)
	cancel()
	<-done
}

// A list is given up after a while and tried again, which asks the server no sooner.
func TestWhoMayNotReadPodsAsksRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewSimpleClientset()
		lists := 0
		c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			lists++
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		})
		w, err := newWatch(c, "n", "of=us", live, lookAgain, logr.Discard())
		must.Succeed(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*lookAgain/2)
		defer cancel()
		w.Run(ctx)
		if lists != 3 {
			t.Errorf("asked %d times within %v, want 3", lists, 5*lookAgain/2)
		}
	})
}

func live(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	return engage.Live(lw, 10*time.Millisecond, func(error) {})
}

// A watch that goes on where it ended is silent until a restored home cluster has passed that version.
func TestPodsAreListedAnewAfterHomeWasAway(t *testing.T) {
	c := fake.NewSimpleClientset()
	events := make(chan string, 9)
	c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		events <- "list"
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, nil
	})
	first, watches := watch.NewFake(), 0
	c.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		events <- "watch"
		switch watches++; watches {
		case 1:
			return true, first, nil
		case 2:
			return true, nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
		}
		return true, watch.NewFake(), nil
	})
	w, err := newWatch(c, "n", "of=us", live, time.Second, logr.Discard())
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for i, want := range []string{"list", "watch", "watch", "watch", "list", "watch"} {
		select {
		case got := <-events:
			if got != want {
				t.Fatalf("request %d is a %s, want a %s", i, got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("request %d doesn't come, want a %s", i, want)
		}
		if i == 1 {
			time.Sleep(1100 * time.Millisecond) // client-go takes a shorter watch for a failed one
			first.Stop()
		}
	}
}
