package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
)

// Line is one line of a replica's log, with the fields that are used.
type Line struct {
	Time        time.Time         `json:"time"`
	Level       string            `json:"level"`
	Msg         string            `json:"msg"`
	Err         string            `json:"err"`
	Shard       string            `json:"shard"`
	Epoch       int64             `json:"epoch"`
	Kind        protocol.MoveKind `json:"kind"`
	From        string            `json:"from"`
	GapMS       float64           `json:"gapMs"`
	Incarnation string            `json:"incarnation"`
	Cluster     string            `json:"cluster"`
	Reason      string            `json:"reason"`

	// Text is the line itself.
	Text string `json:"-"`
}

// ParseLine reads a line. One that isn't JSON, such as a panic's trace, has only a Text.
func ParseLine(text string) Line {
	line := Line{Text: text}
	if json.Unmarshal([]byte(text), &line) != nil {
		return Line{Text: text}
	}
	return line
}

// Activation reports whether the line is the beginning of a tenure.
func (l Line) Activation() bool { return l.Msg == "shard active" }

// Lapse reports whether the line says that an incarnation gave everything up because its Lease had run out. If
// replicas worded the message differently, the checks that no replica lapses would pass without looking. The
// sharding suite's test of a long outage and chaos' gate "lapse" would then fail.
func (l Line) Lapse() bool { return strings.HasPrefix(l.Msg, "incarnation lapsed") }

// Gap is how long the shard had no holder before the tenure that began, as the new holder logged it.
func (l Line) Gap() time.Duration { return Millis(l.GapMS) }

// Millis is the duration of so many milliseconds.
func Millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Crashed reports whether the line shows a panic, a fatal error or a data race.
func (l Line) Crashed() bool {
	return strings.HasPrefix(l.Text, "panic:") || strings.HasPrefix(l.Text, "fatal error:") ||
		strings.Contains(l.Text, "http: panic serving") || strings.Contains(l.Text, "DATA RACE") ||
		strings.Contains(l.Msg, "panic")
}

// Log reads a replica's log as it grows. It is safe for concurrent use.
type Log struct {
	path string

	mu     sync.Mutex // guards all below
	offset int64
	lines  []Line
}

// Lines are all whole lines so far, in order. The slice only ever grows.
func (l *Log) Lines() ([]Line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("reading a replica's log: %w", err)
	}
	defer file.Close()
	_, err = file.Seek(l.offset, io.SeekStart)
	fresh, readErr := io.ReadAll(file)
	if err := errors.Join(err, readErr); err != nil {
		return nil, fmt.Errorf("reading a replica's log: %w", err)
	}
	for {
		text, rest, whole := bytes.Cut(fresh, []byte("\n"))
		if !whole {
			return l.lines, nil
		}
		l.offset += int64(len(text)) + 1
		fresh = rest
		l.lines = append(l.lines, ParseLine(string(text)))
	}
}

// Count is how many lines so far are of a kind.
func (l *Log) Count(is func(Line) bool) (n int, err error) {
	lines, err := l.Lines()
	for _, line := range lines {
		if is(line) {
			n++
		}
	}
	return n, err
}

// Activations are the tenures that began at replicas, those of one after those of another.
func Activations(replicas []*Replica) ([]Line, error) {
	var all []Line
	for _, r := range replicas {
		lines, err := r.Log.Lines()
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			if line.Activation() {
				all = append(all, line)
			}
		}
	}
	return all, nil
}

// FirstActive returns the first of some tenures of a shard that began after a time, in an epoch or a later one; nil
// if none did.
func FirstActive(activations []Line, shard string, epoch int64, after time.Time) *Line {
	var first *Line
	for i, l := range activations {
		if l.Shard == shard && l.Epoch >= epoch && l.Time.After(after) && (first == nil || l.Time.Before(first.Time)) {
			first = &activations[i]
		}
	}
	return first
}
