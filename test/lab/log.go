package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Line is one line of a replica's log, with the fields that tests read.
type Line struct {
	Time        time.Time `json:"time"`
	Level       string    `json:"level"`
	Msg         string    `json:"msg"`
	Err         string    `json:"err"`
	Shard       string    `json:"shard"`
	Epoch       int64     `json:"epoch"`
	Kind        string    `json:"kind"`
	From        string    `json:"from"`
	GapMS       float64   `json:"gap_ms"`
	Objects     int64     `json:"objects"`
	Incarnation string    `json:"incarnation"`
	Cluster     string    `json:"cluster"`
	Reason      string    `json:"reason"`

	// Text is the line itself.
	Text string `json:"-"`
}

// Activation says that the line is the beginning of a tenure.
func (l Line) Activation() bool { return l.Msg == "shard active" }

// Log reads a replica's log as it grows.
type Log struct {
	path string

	mu     sync.Mutex // guards all below
	offset int64
	lines  []Line
}

// Lines are all whole lines so far. Those that aren't JSON have only a Text.
func (l *Log) Lines() ([]Line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("reading a replica's log: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading a replica's log: %w", err)
	}
	fresh := make([]byte, info.Size()-l.offset)
	if len(fresh) == 0 {
		return l.lines, nil
	}
	n, err := file.ReadAt(fresh, l.offset)
	if err != nil && n == 0 {
		return nil, fmt.Errorf("reading a replica's log: %w", err)
	}
	fresh = fresh[:n]
	for {
		text, rest, whole := bytes.Cut(fresh, []byte("\n"))
		if !whole {
			return l.lines, nil
		}
		l.offset += int64(len(text)) + 1
		fresh = rest
		line := Line{Text: string(text)}
		_ = json.Unmarshal(text, &line) // a panic's trace isn't JSON
		l.lines = append(l.lines, line)
	}
}

// Activations are the tenures that began at all replicas, in no order.
func (f *Fleet) Activations() ([]Line, error) {
	var all []Line
	for _, r := range f.Replicas() {
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
