package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

// screen lays a snapshot out for a terminal: at most rows lines of at most columns characters.
func screen(s snapshot, columns, rows int) []string {
	total := s.total()
	lines := []string{
		fmt.Sprintf("tenure demo  %s  %d of %d Ats DONE  %s", clock(s.elapsed), total.done, s.ats,
			bar(total.done, s.ats, 24)),
		"  " + s.headline,
		"",
		row("REPLICA", "STATE", "SHARDS", "QUEUE", "RECONCILED"),
	}
	for _, r := range s.replicas {
		lines = append(lines, replicaRow(r))
	}
	lines = append(lines, "", row("CLUSTER", "STATE", "PENDING", "RUNNING", "DONE", "COPIES"))
	for _, c := range append(s.clusters, total) {
		lines = append(lines, clusterRow(c))
	}
	lines = append(lines, "", fmt.Sprintf("LAST HANDOFFS  (%d so far, %d of %d shards held)",
		len(s.handoffs), s.held, s.shards))
	room := min(8, max(0, rows-1-len(lines)))
	for _, h := range s.handoffs[max(0, len(s.handoffs)-room):] {
		lines = append(lines, "  "+handoffLine(h))
	}
	lines = lines[:min(len(lines), max(0, rows-1))]
	for i := range lines {
		lines[i] = lab.Clip(lines[i], columns)
	}
	return lines
}

func row(name, state string, numbers ...string) string {
	line := fmt.Sprintf("  %-9s%-10s", name, state)
	for _, n := range numbers {
		line += fmt.Sprintf("%11s", n)
	}
	return line
}

func clusterRow(c clusterView) string {
	state := ""
	if c.frozen {
		state = "frozen"
	}
	return row(c.name, state, fmt.Sprint(c.pending), fmt.Sprint(c.running), fmt.Sprint(c.done), fmt.Sprint(c.copies))
}

func replicaRow(r replicaView) string {
	queue, reconciled := "-", "-"
	if r.asked {
		reconciled = fmt.Sprint(r.reconciled)
		if r.state == alive || r.state == leaving {
			queue = fmt.Sprint(r.queue)
		}
	}
	return row(r.name, r.state, fmt.Sprint(r.shards), queue, reconciled)
}

func handoffLine(h handoff) string {
	return fmt.Sprintf("%-10s %-8s %s -> %s  epoch %d  %s", h.Shard, h.Kind, h.From, h.To, h.Epoch, gapText(h.GapMS))
}

func gapText(ms *float64) string {
	if ms == nil {
		return "..."
	}
	return "gap " + length(lab.Millis(*ms))
}

// length formats a duration: in seconds from one second on, else in milliseconds.
func length(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", milli(d))
}

// plainLine is a snapshot in one line, for logs.
func plainLine(s snapshot) string {
	all := s.total()
	line := fmt.Sprintf("%s  Ats %d pending %d running %d done | shards", clock(s.elapsed), all.pending,
		all.running, all.done)
	for _, r := range s.replicas {
		if r.state == killed {
			line += fmt.Sprintf("  %s killed", r.name)
			if r.shards > 0 {
				line += fmt.Sprintf(" (%d orphaned)", r.shards)
			}
			continue
		}
		line += fmt.Sprintf("  %s %d", r.name, r.shards)
		if r.queue > 0 {
			line += fmt.Sprintf(" (queue %d)", r.queue)
		}
	}
	line += fmt.Sprintf(" | handoffs %d", len(s.handoffs))
	if all.copies > 0 {
		line += fmt.Sprintf(" | Deployments %d of %d replicated", s.replicated, s.deployments)
	}
	return line
}

func clock(d time.Duration) string {
	seconds := int(d.Seconds())
	return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
}

func bar(done, of, width int) string {
	full := 0
	if of > 0 {
		full = min(width, done*width/of)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}
