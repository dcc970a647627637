package informer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/must"
)

// finishes is a Store whose objects are finished if their data says so.
func finishes() *Store {
	cfg := configMaps
	cfg.Finished = func(o client.Object) bool { return o.(*corev1.ConfigMap).Data["over"] == "yes" }
	return New(cfg)
}

func over(name string) *corev1.ConfigMap {
	o := named(name)
	o.Data = map[string]string{"over": "yes"}
	return o
}

func madeAgain(name string, uid types.UID) *corev1.ConfigMap {
	o := over(name)
	o.UID = uid
	return o
}

func TestWhatIsFinishedIsDroppedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := finishes()
		fill, seen := filler{s}, shownBy(t, s)
		holds := func(after time.Duration, names ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			var held []string
			for o := range s.All() {
				held = append(held, o.GetName())
			}
			if slices.Sort(held); !slices.Equal(held, names) {
				t.Errorf("it holds %q, want %q", held, names)
			}
		}
		listed := []any{over("first"), named("runs"), over("again")}
		must.Succeed(t, fill.Replace(listed, "1"))
		holds(keepFinished-time.Second, "again", "first", "runs")
		// One is replaced by another of the same name, and one ends only now.
		must.Succeed(t, errors.Join(fill.Update(named("again")), fill.Add(over("second"))))
		holds(2*time.Second, "again", "runs", "second")
		holds(2*keepFinished-2*time.Second, "again", "runs")
		*seen = nil
		must.Succeed(t, errors.Join(fill.Update(over("second")), fill.Delete(over("first"))))
		if want := []string{"add /second@", "delete /first@"}; !slices.Equal(*seen, want) {
			t.Errorf("of what was dropped it shows %q, want %q", *seen, want)
		}
		holds(keepFinished, "again", "runs")
		// One that has the name of another which has gone is as new as any.
		must.Succeed(t, fill.Add(madeAgain("name", "first")))
		must.Succeed(t, fill.Delete(madeAgain("name", "first")))
		time.Sleep(keepFinished - time.Second)
		must.Succeed(t, fill.Add(madeAgain("name", "second")))
		holds(2*time.Second, "again", "name", "runs")
		holds(keepFinished, "again", "runs")
		if s.finished != nil {
			t.Errorf("it still waits for %v", s.finished)
		}
		if s.Peek(types.NamespacedName{Name: "second"}) != nil {
			t.Error("what was dropped is found")
		}
	})
}

func TestAnInformerThatHasStoppedDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := finishes()
		must.Succeed(t, (filler{s}).Add(over("one")))
		s.keepAll()
		time.Sleep(3 * keepFinished)
		if s.Len() != 1 {
			t.Error("a timer held the Store in memory")
		}
	})
}
