package samples

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func newFile(t *testing.T) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "samples")
	f, err := Create(path)
	must.Succeed(t, err)
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
	must.Succeed(t, f.Err())
	got, err := ReadFile(path)
	must.Succeed(t, err)
	expect.Equal(t, "samples", want, got)
}

func TestARecordCutShortByAKillIsLeftOut(t *testing.T) {
	f, path := newFile(t)
	f.Add(Sample{Key: 1, Ready: time.Unix(0, 1), Start: time.Unix(0, 1), End: time.Unix(0, 1)})
	f.Add(Sample{Key: 2, Ready: time.Unix(0, 1), Start: time.Unix(0, 1), End: time.Unix(0, 1)})
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
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
