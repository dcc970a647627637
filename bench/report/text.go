package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Text writes the summary that fits a terminal.
func Text(w io.Writer, r *Report) {
	fmt.Fprintf(w, "%s (%s), %.0f s, valid: %v\n\n", r.Scenario, r.Config.Size, r.Seconds, r.Valid)
	if r.Config.Unwitnessed != "" {
		fmt.Fprintf(w, "not witnessed: %s\n\n", r.Config.Unwitnessed)
	}
	if set := r.Environment.GoText(); set != "" {
		fmt.Fprintf(w, "set for all programs: %s\n\n", set)
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(columns, "ms\tn\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, row := range Latencies(r.Results) {
		fmt.Fprintf(columns, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", row.Name, row.Q.N, row.Q.P50, row.Q.P90, row.Q.P99,
			row.Q.P999, row.Q.Max)
	}
	columns.Flush()
	fmt.Fprintln(w)
	for _, line := range r.figures() {
		fmt.Fprintf(w, "%-32s %s\n", line[0], line[1])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Ratios)) {
		fmt.Fprintf(w, "%-44s %s\n", name, RatioText(r.Ratios[name]))
	}
	r.neighbours(w)
	fmt.Fprintln(w)
	if r.Profile != nil {
		r.Profile.text(w)
	}
}

// neighbours prints what each noise did to the other clusters: in a fleet that also serves the noisy one, and in
// one that does not.
func (r *Report) neighbours(w io.Writer) {
	control := r.References[string(scenario.Apart)]
	if len(r.Results.Noises) == 0 || control == nil {
		return
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(columns, "\nnoise\tothers' n\tp50\tp99\tapart p50\tp99\tof what it may be\town done\tapart\tgo on, s\t"+
		"and all, s\tapart\t")
	for _, name := range slices.Sorted(maps.Keys(r.Results.Noises)) {
		with, apart := r.Results.Noises[name], control.Noises[name]
		of, ok := r.Ratios[Allowed+"/"+name]
		if !ok {
			continue
		}
		fmt.Fprintf(columns, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%d\t%d\t%s\t%s\t%s\t\n", name, with.Others.N,
			with.Others.P50, with.Others.P99,
			apart.Others.P50, apart.Others.P99, of.Value, with.OwnDone, apart.OwnDone,
			tenths(with.OwnBegun), tenths(with.OwnSettled), tenths(apart.OwnSettled))
	}
	columns.Flush()
}

// tenths is a figure for a table, "-" if there is none.
func tenths(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *v)
}

// text is the knee in one sentence.
func (k *Knee) text() string {
	if !k.Found {
		return fmt.Sprintf("above %s per second, the highest rate tried (lateness p99 within %s ms)",
			short(k.Rate), short(k.SLO))
	}
	return fmt.Sprintf("%s per second (lateness p99 within %s ms)", short(k.Rate), short(k.SLO))
}

// RatioText is a ratio with its interval.
func RatioText(r stats.Ratio) string {
	if r.Low == nil {
		return fmt.Sprintf("%.3f (%d rounds: no interval)", r.Value, r.Rounds)
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f] (%d rounds)", r.Value, *r.Low, *r.High, r.Rounds)
}

// Latency is one distribution of a fleet.
type Latency struct {
	Name, Explanation string
	Q                 *stats.Quantiles
}

// Latencies lists the distributions that were measured.
func Latencies(r *Results) []Latency {
	all := []Latency{
		{"intended to converged", "from the time at which an At should have been asked for until a watch shows it DONE, or " +
			"a Deployment until all its copies are there", r.Converge},
		{"lateness", "from an At's due time until a watch shows that it has started", r.Lateness},
		{"queue", "from the moment a key is ready until a worker takes it", r.QueueLatency},
		{"queue, backfill", "the same for keys that were enqueued because a shard was taken over", r.QueueLatencyBackfill},
		{"event to reconcile", "from sending the create until a worker takes the key: the create's own time included",
			r.EventToReconcile},
		{"work", "from worker start to worker done", r.Work},
		{"handoff gap", "planned moves, by the logs: from the old holder's last work until the new one serves", r.HandoffGap},
		{"handoff, unserved", "the same by the audit logs: for how long keys that were due waited", r.HandoffUnserved},
		{"crash gap", "from the kill until another serves a shard of the victim's, by the logs", r.CrashGap},
		{"crash, unserved", "by the audit logs: for how long keys that were due waited", r.CrashUnserved},
		{"crash gap over lease", "the same less the lease duration", r.CrashGapOverLease},
		{"drift to repaired", "from when a stranger should have changed a copy until a watch shows that this was undone",
			r.DriftRepair},
		{"converged, live clusters", "intended to converged in the other clusters while one was paused", r.LiveConverge},
	}
	return slices.DeleteFunc(all, func(l Latency) bool { return l.Q == nil })
}

// row is a figure's name and what was measured, for a person.
type row [2]string

// figures lists the figures that are no distributions and no ratios: those of the fleet, and what a search for the knee
// or a sweep found.
func (r *Report) figures() []row {
	out := r.Results.figures()
	add := func(name, format string, args ...any) { out = append(out, row{name, fmt.Sprintf(format, args...)}) }
	if k := r.Knee; k != nil {
		add("knee", "%s", k.text())
		for _, p := range k.Points {
			add(fmt.Sprintf("  at %.0f per second", p.X), "lateness p99 %s ms", short(p.Y))
		}
	}
	for _, n := range r.Sweep {
		key, name := fmt.Sprint(n.Replicas), Count(n.Replicas, "replica")
		if s := r.ScaleOut; s != nil {
			add(name, "%.1f %s, efficiency %.3f, of the whole burst %.3f", s.Capacity[key], s.Unit, s.Efficiency[key],
				s.Makespan[key])
		}
		if c := r.WatchCost; c != nil {
			add(name, "watch bytes of all %.3f of one's, the largest %.3f of its objects' share, %.3f of an equal one",
				c.SumOverOne[key], c.MaxOverShare[key], c.MaxOverEqual[key])
		}
	}
	return out
}

func (r *Results) figures() []row {
	var out []row
	add := func(name, format string, args ...any) { out = append(out, row{name, fmt.Sprintf(format, args...)}) }
	float := func(name, format string, v *float64) {
		if v != nil {
			add(name, format, *v)
		}
	}
	if r.Copies > 0 {
		add("Deployments", "%d, with %d copies; lost, with repairs that never came, %d", r.Objects, r.Copies, r.Lost)
	} else {
		add("objects", "%d, of these lost %d, with two Pods %d, early %d", r.Objects, r.Lost, r.Duplicates, r.Early)
	}
	float("writes per copy", "%.3f (made or repaired)", r.WritesPerCopy)
	float("writes per source", "%.3f", r.WritesPerSource)
	float("converged per second", "%.1f", r.Throughput)
	float("reconciles per second", "%.1f (between the 20th and 60th percent)", r.Reconciles)
	float("API writes per object", "%.3f", r.APIWrites)
	float("API reads per object", "%.3f", r.APIReads)
	if r.Conflicts != nil {
		add("conflicts", "%d", *r.Conflicts)
	}
	if r.Violations != nil {
		add("violations, missing evidence", "%d, by the audit logs (I1, I2, I4, I5, I7)", *r.Violations)
	}
	if len(r.Moves) > 0 {
		add("moves", "%d planned, %d at exit, %d after a crash", r.Moves[protocol.Planned], r.Moves[protocol.Exit],
			r.Moves[protocol.Crash])
	}
	float("writes per move", "%.2f", r.WritesPerMove)
	float("seconds until all shards held", "%.2f", r.TimeToHeld)
	float("replicas' CPU ms per object", "%.3f", milli(r.CPUPerObject))
	for i, name := range r.Replicas {
		text := fmt.Sprintf("%.2f s CPU, %.0f MB at most", r.CPUSeconds[i], r.RSS[i])
		if i < len(r.ReconcilesPerReplica) {
			text += fmt.Sprintf(", %d reconciles", r.ReconcilesPerReplica[i])
		}
		if i < len(r.WatchBytes) {
			text += fmt.Sprintf(", %.0f kB received", r.WatchBytes[i]/1000)
		}
		add("  "+name, "%s", text)
	}
	float("events received for others", "%.0f", r.WatchDiscarded)
	for _, name := range slices.Sorted(maps.Keys(r.Servers)) {
		add("  "+name, "%.2f s CPU, %.0f MB", r.Servers[name].CPUSeconds, r.Servers[name].RSS)
	}
	if r.Generator != nil && r.Generator.Lateness != nil {
		add("generator late, ms", "p50 %.2f, p99 %.2f, max %.2f", r.Generator.Lateness.P50, r.Generator.Lateness.P99,
			r.Generator.Lateness.Max)
	}
	if r.Generator != nil && r.Generator.Achieved > 0 {
		add("arrivals per second", "%.1f sent", r.Generator.Achieved)
	}
	return out
}

func milli(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return new(*v * 1000)
}

// WriteJSON writes a document to a file, whose folder is made. Without a path it does nothing.
func WriteJSON(path, what string, document any) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(document, "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", what, err)
	}
	return nil
}
