package main

import (
	"encoding/json"
	"strings"
	"time"
)

// tenureID names a tenure: no two have the same shard and epoch.
type tenureID struct {
	shard string
	epoch int64
}

// kindCrash is a handoff that the old holder had no part in.
const kindCrash = "crash"

// handoff is one change of a shard's holder, as its record told.
type handoff struct {
	Shard string   `json:"shard"`
	Kind  string   `json:"kind"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Epoch int64    `json:"epoch"`
	GapMS *float64 `json:"gap_ms"`

	time time.Time // when the record changed hands, on its writer's clock
}

// activation is a replica's log line about a tenure that it began.
type activation struct {
	tenure tenureID
	time   time.Time
	gapMS  float64
}

// parseActivation reads one line of a replica's log; ok is false if it is about something else.
func parseActivation(line []byte) (a activation, ok bool) {
	var entry struct {
		Time  time.Time `json:"time"`
		Msg   string    `json:"msg"`
		Shard string    `json:"shard"`
		Epoch int64     `json:"epoch"`
		GapMS float64   `json:"gap_ms"`
	}
	if err := json.Unmarshal(line, &entry); err != nil || entry.Msg != "shard active" {
		return activation{}, false
	}
	return activation{tenureID{entry.Shard, entry.Epoch}, entry.Time, entry.GapMS}, true
}

// parseLapse reads the line in which a replica tells that it gave everything up because its Lease had run out.
func parseLapse(line []byte) (incarnation string, at time.Time, ok bool) {
	var entry struct {
		Time        time.Time `json:"time"`
		Msg         string    `json:"msg"`
		Incarnation string    `json:"incarnation"`
	}
	if err := json.Unmarshal(line, &entry); err != nil || !strings.HasPrefix(entry.Msg, "incarnation lapsed") {
		return "", time.Time{}, false
	}
	return entry.Incarnation, entry.Time, true
}

// gap is how long the shard was served by nobody, in milliseconds; nil while that isn't known. began is the first tenure
// from this handoff on that was served: usually the one it made, a later one if that holder lapsed before it got so far.
// Where the old holder told when it stopped, the new one reckons from that. A dead one couldn't: end is when it lapsed or
// was killed, nil if it did neither.
func gap(h handoff, began *activation, end *time.Time) *float64 {
	if began == nil {
		return nil
	}
	ms := began.gapMS
	switch {
	case h.Kind == kindCrash && end == nil:
		return nil
	case h.Kind == kindCrash:
		ms = milli(began.time.Sub(*end))
	case began.tenure.epoch != h.Epoch:
		ms = milli(began.time.Sub(h.time))
	}
	return &ms
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// servedFrom is the first tenure of the shard, from this epoch on, that was served.
func servedFrom(activations map[tenureID]activation, shard string, epoch int64) *activation {
	var first *activation
	for id, a := range activations {
		if id.shard == shard && id.epoch >= epoch && (first == nil || id.epoch < first.tenure.epoch) {
			first = &a
		}
	}
	return first
}

// replicaOf is the name in front of an incarnation's random suffix.
func replicaOf(incarnation string) string {
	if i := strings.LastIndexByte(incarnation, '-'); i > 0 {
		return incarnation[:i]
	}
	return incarnation
}
