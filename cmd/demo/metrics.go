package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// figures are what the demo shows of a replica's metrics.
type figures struct {
	queue      int
	reconciled int
	// discarded counts, by cluster, objects that arrived from outside the replica's shards; nil if the replica
	// doesn't tell.
	discarded map[string]int
}

// ours are the controllers of a replica, of Ats and of Deployments.
var ours = map[string]bool{"at": true, "replication": true}

// readFigures reads a page in Prometheus' text format.
func readFigures(page io.Reader) (figures, error) {
	var f figures
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, labels, value, ok := parseSample(lines.Text())
		if !ok {
			continue
		}
		switch {
		case name == "workqueue_depth" && ours[labels["name"]]:
			f.queue += int(value) // one series per priority
		case name == "controller_runtime_reconcile_total" && ours[labels["controller"]]:
			f.reconciled += int(value)
		case name == "tenure_watch_discarded_total":
			if f.discarded == nil {
				f.discarded = map[string]int{}
			}
			f.discarded[labels["cluster"]] += int(value)
		}
	}
	if err := lines.Err(); err != nil {
		return figures{}, fmt.Errorf("reading metrics: %w", err)
	}
	return f, nil
}

// parseSample reads one line, as in `name{label="value",...} 12`.
func parseSample(line string) (name string, labels map[string]string, value float64, ok bool) {
	if strings.HasPrefix(line, "#") {
		return "", nil, 0, false
	}
	end := strings.LastIndexByte(line, '}') + 1
	if end == 0 {
		end = strings.IndexByte(line, ' ')
	}
	if end <= 0 {
		return "", nil, 0, false
	}
	fields := strings.Fields(line[end:]) // the value, and perhaps a time
	if len(fields) == 0 {
		return "", nil, 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return "", nil, 0, false
	}
	name, inside, _ := strings.Cut(strings.TrimSuffix(line[:end], "}"), "{")
	return name, parseLabels(inside), value, true
}

func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for text != "" {
		name, rest, found := strings.Cut(text, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if !found || err != nil {
			break
		}
		labels[name], _ = strconv.Unquote(quoted)
		text = strings.TrimPrefix(rest[len(quoted):], ",")
	}
	return labels
}
