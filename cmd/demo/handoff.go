package main

import (
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// tenureID names a tenure: no two have the same shard and epoch.
type tenureID struct {
	shard string
	epoch int64
}

// handoff is one change of a shard's holder, as its record showed it.
type handoff struct {
	Shard string `json:"shard"`
	// Kind is Crash where the old holder had no part in it.
	Kind  protocol.MoveKind `json:"kind"`
	From  string            `json:"from"`
	To    string            `json:"to"`
	Epoch int64             `json:"epoch"`
	GapMS *float64          `json:"gapMs"`

	time    time.Time // when the record changed hands, on its writer's clock
	waiting int       // Ats of the shard that were due soon, and whose run wasn't claimed yet when we saw this
}

// gap returns how long no replica served the shard, in milliseconds; nil while that isn't known. began is the first
// tenure from this handoff on that was served: usually the one that the handoff made, a later one if that holder
// lapsed before it served. If the old holder said when it stopped, the new holder's log has the gap since then. A
// dead holder couldn't say it, so the gap of a crash counts from end, when the old holder lapsed or was killed; zero
// if it did neither.
func gap(h handoff, began *lab.Line, end time.Time) *float64 {
	if began == nil {
		return nil
	}
	ms := began.GapMS
	switch {
	case h.Kind == protocol.Crash && end.IsZero():
		return nil
	case h.Kind == protocol.Crash:
		ms = milli(began.Time.Sub(end))
	case began.Epoch != h.Epoch:
		ms = milli(began.Time.Sub(h.time))
	}
	return &ms
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
