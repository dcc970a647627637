package shard

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUrgentMailIsTakenFirst(t *testing.T) {
	m := newMailbox[int]()
	m.put(1)
	m.putUrgent(2)
	m.put(3)
	<-m.ready
	if diff := cmp.Diff([]int{2, 1, 3}, m.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.put(4)
	m.putUrgent(5)
	<-m.ready
	if diff := cmp.Diff([]int{5}, m.takeUrgent()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{4}, m.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
