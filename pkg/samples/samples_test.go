package samples

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func newFile(t *testing.T) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "samples")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	f, path := newFile(t)
	at := func(ns int64) time.Time { return time.Unix(0, ns) }
	want := []Sample{
		{Key: KeyOf("west", "a", "b"), Ready: at(1), Start: at(2), End: at(1 << 60)},
		{Key: KeyOf("west", "a", "c"), Ready: at(3), Start: at(4), End: at(5), Backfill: true},
		{Key: 7, Ready: at(3), Start: at(4), End: at(5), ReadyUnknown: true},
	}
	for _, s := range want {
		f.Add(s)
	}
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestARecordCutShortByAKillIsLeftOut(t *testing.T) {
	f, path := newFile(t)
	f.Add(Sample{Key: 1, Ready: time.Unix(0, 1), Start: time.Unix(0, 1), End: time.Unix(0, 1)})
	f.Add(Sample{Key: 2, Ready: time.Unix(0, 1), Start: time.Unix(0, 1), End: time.Unix(0, 1)})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(content[:len(content)-1]))
	if err != nil || len(got) != 1 || got[0].Key != 1 {
		t.Errorf("got %v, %v; want the first sample", got, err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	if _, err := Read(bytes.NewReader([]byte("tenure-samples/0\nxxxxxxxxxxxx"))); err == nil {
		t.Error("another version was read")
	}
	_, path := newFile(t)
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("creating over a file that exists: %v, want ErrExist", err)
	}
}

func TestNamesThatRunIntoOneAnotherHaveDifferentKeys(t *testing.T) {
	if KeyOf("a", "bc", "d") == KeyOf("ab", "c", "d") {
		t.Error("the parts of a name aren't told apart")
	}
}

// newQueue has a backoff of 40 ms.
func newQueue(t *testing.T) (*Queue[string], func() []Sample) {
	t.Helper()
	f, path := newFile(t)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](40*time.Millisecond, time.Second)
	q := NewQueue(f, func(s string) uint64 { return uint64(len(s)) }, limiter,
		func(l workqueue.TypedRateLimiter[string]) priorityqueue.PriorityQueue[string] {
			return priorityqueue.New("q", func(o *priorityqueue.Opts[string]) { o.RateLimiter = l })
		})
	t.Cleanup(q.ShutDown)
	return q, func() []Sample {
		list, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
}

func TestAKeyIsReadyWhenItsEarliestAdditionIsDue(t *testing.T) {
	low := -100
	cases := map[string]struct {
		add      func(q *Queue[string])
		delay    time.Duration // from add to ready
		backfill bool
	}{
		"at once":                       {add: func(q *Queue[string]) { q.Add("k") }},
		"after a delay":                 {add: func(q *Queue[string]) { q.AddAfter("k", 50*time.Millisecond) }, delay: 50 * time.Millisecond},
		"a delay cut short":             {add: func(q *Queue[string]) { q.AddAfter("k", time.Hour); q.Add("k") }},
		"a delay after an addition":     {add: func(q *Queue[string]) { q.Add("k"); q.AddAfter("k", time.Hour) }},
		"after a failure":               {add: func(q *Queue[string]) { q.AddRateLimited("k") }, delay: 40 * time.Millisecond},
		"after a failure, with options": {add: func(q *Queue[string]) { q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, "k") }, delay: 40 * time.Millisecond},
		"as backfill":                   {add: func(q *Queue[string]) { q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "k") }, backfill: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q, read := newQueue(t)
			before := time.Now()
			c.add(q)
			item, _ := q.Get()
			after := time.Now()
			q.Done(item)
			list := read()
			if len(list) != 1 {
				t.Fatalf("%d samples, want 1", len(list))
			}
			s := list[0]
			if s.ReadyUnknown || s.Backfill != c.backfill || s.Key != 1 {
				t.Errorf("sample %+v; want backfill %v", s, c.backfill)
			}
			if s.Ready.Before(before.Add(c.delay).Round(0)) || s.Ready.After(after) || s.Ready.After(s.Start) {
				t.Errorf("ready %v after it was added and %v before it was taken; want %v after", s.Ready.Sub(before), s.Start.Sub(s.Ready), c.delay)
			}
		})
	}
}

func TestAKeyAddedWhileItIsInWorkIsASampleOfItsOwn(t *testing.T) {
	q, read := newQueue(t)
	q.Add("k")
	item, _ := q.Get()
	q.Add("k")
	time.Sleep(40 * time.Millisecond)
	q.Done(item)
	item, _ = q.Get()
	q.Done(item)
	list := read()
	if len(list) != 2 {
		t.Fatalf("%d samples, want 2", len(list))
	}
	if wait := list[1].Start.Sub(list[1].Ready); wait < 39*time.Millisecond {
		t.Errorf("the second waited %v: it was ready while the first was in work", wait)
	}
}
