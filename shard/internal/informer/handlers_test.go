package informer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/must"
)

func named(name string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{}
	o.Name = name
	return o
}

// shownBy collects what a handler of a Store is shown.
func shownBy(t *testing.T, s *Store) *[]string {
	t.Helper()
	seen := &[]string{}
	_, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { *seen = append(*seen, "add "+describe(obj)) },
		UpdateFunc: func(_, obj any) { *seen = append(*seen, "update "+describe(obj)) },
		DeleteFunc: func(obj any) { *seen = append(*seen, "delete "+describe(obj)) },
	})
	must.Succeed(t, err)
	return seen
}

func TestWhatIsNotTakenIsNeitherKeptNorShown(t *testing.T) {
	cfg := configMaps
	cfg.Take = func(o client.Object) (client.Object, bool, error) {
		if o.GetName() == "broken" {
			return nil, false, errors.New("it can't be judged")
		}
		return o, o.GetName() == "ours", nil
	}
	s := New(cfg)
	seen := shownBy(t, s)
	for _, name := range []string{"another's", "ours"} {
		o := named(name)
		if err := errors.Join((filler{s}).Add(o), (filler{s}).Update(o), (filler{s}).Delete(o)); err != nil {
			t.Error(err)
		}
		if n := s.Len(); n != 0 {
			t.Errorf("%d objects are left of %q", n, name)
		}
		if err := (filler{s}).Add(o); err != nil {
			t.Error(err)
		}
	}
	want := []string{"add /ours@", "update /ours@", "delete /ours@", "add /ours@"}
	if !slices.Equal(*seen, want) || s.Len() != 1 {
		t.Errorf("shown: %q, want %q; %d objects, want 1", *seen, want, s.Len())
	}
	if (filler{s}).Add(named("broken")) == nil || (filler{s}).Delete(named("broken")) == nil {
		t.Error("what can't be judged is no error")
	}
}

// What changes while a handler is shown what there is comes after that, and isn't lost.
func TestAHandlerThatIsAddedMissesNoChange(t *testing.T) {
	s := New(configMaps)
	must.Succeed(t, (filler{s}).Replace([]any{named("there")}, "1"))
	var seen []string
	called, changed := false, make(chan error, 1)
	_, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if seen = append(seen, describe(obj)); len(seen) > 1 {
			return
		}
		called = true
		go func() { changed <- (filler{s}).Add(named("new")) }()
		select {
		case err := <-changed:
			t.Errorf("a change was made while a handler was being added (%v)", err)
			changed <- err
		case <-time.After(100 * time.Millisecond): // it waits for the handler
		}
	}})
	if err != nil || !called {
		t.Fatalf("the handler was shown what there is: %t (%v)", called, err)
	}
	must.Succeed(t, <-changed)
	if want := []string{"/there@", "/new@"}; !slices.Equal(seen, want) {
		t.Errorf("shown: %q, want %q", seen, want)
	}
}

func TestAHandlerThatAnotherRemovesIsNotShownWhatThatOneWas(t *testing.T) {
	s := New(configMaps)
	seen := 0
	var second toolscache.ResourceEventHandlerRegistration
	_, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if err := s.RemoveEventHandler(second); err != nil {
			t.Error(err)
		}
	}})
	must.Succeed(t, err)
	second, err = s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen++ }})
	must.Succeed(t, err)
	if err := (filler{s}).Add(named("o")); err != nil || seen != 0 {
		t.Errorf("it was shown %d changes (%v), want none", seen, err)
	}
}

func TestAnInformerThatHasStoppedTakesNoHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, from := New(configMaps), &server{objects: map[string]*corev1.ConfigMap{}}
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx, from.listWatch(), &corev1.ConfigMap{})
		synctest.Wait()
		if _, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
		if _, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); !errors.Is(err, errStopped) {
			t.Errorf("the error is %v, want that it has stopped", err)
		}
	})
}

func TestWhatBelongsNoLongerIsGone(t *testing.T) {
	cfg := configMaps
	cfg.Take = func(o client.Object) (client.Object, bool, error) { return o, o.GetLabels()["slot"] == "0a", nil }
	for name, change := range map[string]func(filler, any) error{"changed": filler.Update, "deleted": filler.Delete} {
		s := New(cfg)
		seen := shownBy(t, s)
		was, now, other := named("o"), named("o"), named("o")
		was.UID, now.UID, other.UID = "u", "u", "another"
		was.Labels, now.Labels = map[string]string{"slot": "0a"}, map[string]string{"slot": "A0"}
		if err := errors.Join((filler{s}).Add(was), change(filler{s}, other)); err != nil || s.Len() != 1 {
			t.Errorf("%s: one of its name: %d objects, want 1 (%v)", name, s.Len(), err)
		}
		if err := change(filler{s}, now); err != nil {
			t.Error(err)
		}
		if want := []string{"add /o@", "delete /o@"}; !slices.Equal(*seen, want) || s.Len() != 0 {
			t.Errorf("%s: shown %q, want %q; %d objects are left", name, *seen, want, s.Len())
		}
	}
}
