package replication

import (
	"testing"
	"time"
)

func TestOneCallerFindsOutForAllWhetherAClusterAnswersAgain(t *testing.T) {
	const timeout = 5 * time.Second
	var b breaker
	now := epoch
	ask := func() (time.Duration, bool) { return b.open("west", now, timeout) }
	want := func(when string, wait time.Duration, probe bool) {
		t.Helper()
		if w, p := ask(); w != wait || p != probe {
			t.Fatalf("%s: wait %s, probe %v, want %s, %v", when, w, p, wait, probe)
		}
	}
	want("at first", 0, false)
	b.failed("west", now)
	want("after a failure", firstDelay, false)
	now = now.Add(firstDelay)
	want("the first to ask once that is over", 0, true)
	want("the second", timeout, false)
	if wait := b.failed("west", now); wait != 2*firstDelay {
		t.Fatalf("the probe failed: wait %s, want %s", wait, 2*firstDelay)
	}
	b.settled("west")
	want("after a failed probe", 2*firstDelay, false)
	now = now.Add(2 * firstDelay)
	want("the next probe", 0, true)
	b.settled("west")
	want("after a probe that found out nothing", 0, true)
	b.succeeded("west")
	b.settled("west")
	want("after a probe that was answered", 0, false)
	want("and for all others", 0, false)
}

func TestACopyThatIsDeletedSoonAfterItWasMadeIsMadeAgainAtOnce(t *testing.T) {
	b := newBench(t, aSource())
	b.live()
	for range 3 {
		b.delete("west")
		for range 2 { // of its deletion, and of its creation
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		if b.get("west") == nil {
			t.Fatal("it waits for a cache that has shown all there is")
		}
	}
}
