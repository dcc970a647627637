package budget

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestACauseIsToldOfABurstAtATimeAndThenRegularly(t *testing.T) {
	b := New(Config{Burst: 3, Every: time.Minute, PerSecond: 100})
	told, left := 0, 0
	for second := range 600 { // ten times a second, for ten minutes
		for tenth := range 10 {
			now := start.Add(time.Duration(second)*time.Second + time.Duration(tenth)*100*time.Millisecond)
			if n, ok := b.Take("quota", now); ok {
				told++
				left += n
			}
		}
	}
	if told < 12 || told > 13 {
		t.Errorf("told %d times in ten minutes, want 3 and one a minute", told)
	}
	if left < 5000 || left > 6000-told {
		t.Errorf("%d are said to have been left out, of %d", left, 6000-told)
	}
}

func TestWhatIsSpentComesBack(t *testing.T) {
	b := New(Config{Burst: 3, Every: time.Minute, PerSecond: 100})
	for range 3 {
		if b.Spent("quota", start) || b.Spent("quota", start) {
			t.Fatal("asking uses the budget up")
		}
		b.Take("quota", start)
	}
	if !b.Spent("quota", start) || b.Spent("another", start) {
		t.Error("after the burst the cause isn't spent, or another one is")
	}
	if b.Spent("quota", start.Add(time.Minute)) {
		t.Error("it doesn't come back")
	}
}

func TestAFloodHidesNothingButItself(t *testing.T) {
	b := New(Config{Burst: 3, Every: time.Minute, PerSecond: 10})
	for range 100_000 {
		b.Take("flood", start)
	}
	if _, ok := b.Take("another", start); !ok {
		t.Error("another cause isn't told of")
	}
}

func TestACauseThatAFloodOfOthersHidesKeepsItsOwnBudget(t *testing.T) {
	b := New(Config{Burst: 3, Every: time.Hour, PerSecond: 1})
	for i := range 100 {
		b.Take(fmt.Sprint("flood-", i), start)
	}
	for range 10 {
		if _, ok := b.Take("rare", start); ok {
			t.Fatal("the flood left something")
		}
	}
	if left, ok := b.Take("rare", start.Add(time.Minute)); !ok || left != 10 {
		t.Errorf("after the flood: %v, %d left out; want it told of, with 10", ok, left)
	}
}

func TestWhateverOthersUseACauseIsAllowedNowAndThen(t *testing.T) {
	b := New(Config{Burst: 3, Every: time.Second, PerSecond: 1, Least: 10 * time.Second})
	told := 0
	for second := range 60 {
		now := start.Add(time.Duration(second) * time.Second)
		for i := range 30 {
			b.Take(fmt.Sprint("flood ", i), now)
		}
		spent := b.Spent("quiet", now)
		if _, ok := b.Take("quiet", now); ok == spent {
			t.Fatalf("after %d s Spent says %t, and Take allows it: %t", second, spent, ok)
		} else if ok {
			told++
		}
	}
	if told != 6 {
		t.Errorf("allowed %d times in a minute, want once in ten seconds", told)
	}
}

func TestInventedCausesShareOneBudgetAndAreForgotten(t *testing.T) {
	b := New(Config{Burst: 3, Every: time.Minute, PerSecond: 10})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	told := 0
	for i := range 100_000 { // within ten seconds
		if _, ok := b.Take(fmt.Sprint("invented-", i), start.Add(time.Duration(i)*100*time.Microsecond)); ok {
			told++
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if told > 210 {
		t.Errorf("told %d times in ten seconds, want at most 200 and a few", told)
	}
	if b.causes.Len() > causes {
		t.Errorf("%d causes are remembered", b.causes.Len())
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("100,000 causes cost %d KiB", grown>>10)
	}
	runtime.KeepAlive(b)
}
