package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// server has ConfigMaps, their history, and watches of them, as an API server does.
type server struct {
	mu      sync.Mutex // guards all below
	version int
	objects map[string]*corev1.ConfigMap
	history []watch.Event
	oldest  int // no watch begins before
	watches []*watch.RaceFreeFakeWatcher
	failing int // so many lists more
	lists   atomic.Int64
}

func (s *server) listWatch() toolscache.ListerWatcher {
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lists.Add(1)
			if s.failing > 0 {
				s.failing--
				return nil, errors.New("no list now")
			}
			list := &corev1.ConfigMapList{}
			list.ResourceVersion = strconv.Itoa(s.version)
			for _, name := range slices.Sorted(maps.Keys(s.objects)) {
				list.Items = append(list.Items, *s.objects[name].DeepCopy())
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			from, err := strconv.Atoi(opts.ResourceVersion)
			if err != nil {
				return nil, err
			}
			if from < s.oldest {
				return nil, apierrors.NewResourceExpired("too old")
			}
			w := watch.NewRaceFreeFake()
			for _, e := range s.history {
				if versionOf(e.Object) > from {
					w.Action(e.Type, e.Object.DeepCopyObject())
				}
			}
			s.watches = append(s.watches, w)
			return w, nil
		},
	}}
}

// listed has its lists taken for what they are.
type listed struct{ *toolscache.ListWatch }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func versionOf(o runtime.Object) int {
	version, _ := strconv.Atoi(o.(*corev1.ConfigMap).ResourceVersion)
	return version
}

// do carries out one step of a script, on one of a few objects.
func (s *server) do(step string, which int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("n%d/o%d", which%2, which)
	switch step {
	case "set", "set unseen":
		_, there := s.objects[name]
		s.version++
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: name[:2], Name: name[3:], ResourceVersion: strconv.Itoa(s.version),
			Labels: map[string]string{"l": strconv.Itoa(s.version % 3)},
		}}
		s.objects[name] = o
		s.tell(map[bool]watch.EventType{true: watch.Modified, false: watch.Added}[there], o, step == "set")
	case "delete", "delete unseen":
		o, there := s.objects[name]
		if !there {
			return
		}
		s.version++
		delete(s.objects, name)
		o = o.DeepCopy()
		o.ResourceVersion = strconv.Itoa(s.version)
		s.tell(watch.Deleted, o, step == "delete")
	case "delete what isn't there":
		s.version++
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n9", Name: "unknown",
			ResourceVersion: strconv.Itoa(s.version)}}
		s.tell(watch.Deleted, o, true)
	case "stale":
		for _, w := range s.open() {
			if o := s.objects[name]; o != nil {
				o = o.DeepCopy()
				o.ResourceVersion = "1"
				w.Action(watch.Modified, o)
			}
		}
	case "bookmark":
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version)}}
		for _, w := range s.open() {
			w.Action(watch.Bookmark, o)
		}
	case "close":
		s.end()
	case "expire":
		expired := apierrors.NewResourceExpired("too old").Status()
		for _, w := range s.open() {
			w.Error(&expired)
		}
		s.end()
		s.history, s.oldest = nil, s.version
	case "fail":
		s.failing = 1 + which%2
	}
}

// tell records an event, and sends it unless the watches have missed it.
func (s *server) tell(kind watch.EventType, o *corev1.ConfigMap, seen bool) {
	s.history = append(s.history, watch.Event{Type: kind, Object: o})
	for _, w := range s.open() {
		if seen {
			w.Action(kind, o.DeepCopy())
		}
	}
	if !seen { // a watch doesn't leave out an event and go on
		s.end()
		s.history, s.oldest = nil, s.version
	}
}

func (s *server) open() []*watch.RaceFreeFakeWatcher {
	return slices.DeleteFunc(slices.Clone(s.watches), func(w *watch.RaceFreeFakeWatcher) bool { return w.IsStopped() })
}

func (s *server) end() {
	for _, w := range s.open() {
		w.Stop()
	}
	s.watches = nil
}
