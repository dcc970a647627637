package shardtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Regression is a schedule that failed once, shrunk. It is kept as data, not as a seed, so that it stays the same
// when [NewSchedule] changes. The delay of each message is still drawn from its seed during the run. So if the
// protocol later sends other messages, the schedule may no longer lead to the old failure. Each bug therefore has a
// test of its own, too.
type Regression struct {
	Kind     string // of the failure
	Schedule Schedule
}

//go:embed testdata/regressions.jsonl
var recorded string

// Regressions returns the recorded schedules, in the order of regressions.jsonl.
func Regressions() ([]Regression, error) {
	var all []Regression
	for line := range strings.Lines(recorded) {
		var r Regression
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("reading line %d of regressions.jsonl: %w", len(all)+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Line returns the regression as a line of regressions.jsonl.
func (r Regression) Line() ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing the schedule of seed %d: %w", r.Schedule.Seed, err)
	}
	return append(line, '\n'), nil
}
