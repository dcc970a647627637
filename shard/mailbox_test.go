package shard

import (
	"testing"

	"github.com/tenure-dev/tenure/test/expect"
)

func TestUrgentMailIsTakenFirst(t *testing.T) {
	m := newMailbox[int]()
	m.put(1)
	m.putUrgent(2)
	m.put(3)
	<-m.ready
	expect.Equal(t, "all mail", []int{2, 1, 3}, m.take())
	m.put(4)
	m.putUrgent(5)
	<-m.ready
	expect.Equal(t, "urgent mail", []int{5}, m.takeUrgent())
	expect.Equal(t, "what urgent mail left", []int{4}, m.take())
}
