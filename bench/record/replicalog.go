package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Activation is the beginning of a tenure, as its holder logs it.
type Activation struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"`
	Replica string    `json:"replica"`
	Shard   string    `json:"shard"`
	Epoch   int64     `json:"epoch"`
	// Kind is join, planned, exit or crash.
	Kind  string  `json:"kind"`
	From  string  `json:"from"`
	GapMs float64 `json:"gap_ms"`
}

// Activations reads a replica's log.
func Activations(in io.Reader) ([]Activation, error) {
	var list []Activation
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var a Activation
		if json.Unmarshal(lines.Bytes(), &a) != nil || a.Message != "shard active" {
			continue // a panic's stack, or another message
		}
		list = append(list, a)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading a replica's log: %w", err)
	}
	return list, nil
}

// ActivationsIn reads a replica's log file.
func ActivationsIn(path string) ([]Activation, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a replica's log: %w", err)
	}
	defer in.Close()
	return Activations(in)
}
