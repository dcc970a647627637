package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

// account is what a run did to the fleet, and how the fleet behaved, as far as chaos judges it. The witness judges the
// audit logs beside it.
type account struct {
	lease     time.Duration
	taken     time.Time
	slack     float64 // targets are multiplied by this
	lenient   bool
	scenarios []string
	quotas    []quota
	faults    []fault
	calms     []window
	rested    time.Time // since when nothing is done; zero if there was no rest
	logs      []logged
	ats       []lateAt
	ordeals   []ordeal
	refused   []refusal
	never     []madeAt // Ats for which no API server logged a write of ours
	remade    int      // Pods that were made for an At that had had one
}

// quota is how often something should be done, and how often it was.
type quota struct {
	what      string
	want, got int
}

// window is the time between two moments.
type window struct{ from, to time.Time }

func (w window) holds(t time.Time) bool { return t.After(w.from) && t.Before(w.to) }

func (w window) String() string {
	return w.from.Format("15:04:05.000") + " to " + w.to.Format("15:04:05.000")
}

// logged is one line of a replica's log.
type logged struct {
	lab.Line
	replica, place string
}

// calm reports whether a moment lies in a calm scenario.
func (a *account) calm(t time.Time) bool {
	return slices.ContainsFunc(a.calms, func(w window) bool { return w.holds(t) })
}

// complaints returns everything that fails the run, except missed targets.
func (a *account) complaints() error {
	_, unexplained := a.errors()
	errs := []error{a.unmet(), a.idle(), a.untold(), a.lapsed(), a.waited(), a.reran(), unexplained}
	for _, kind := range []string{"SIGKILL", "SIGTERM"} {
		for _, calm := range []bool{true, false} {
			_, never := a.unserved(kind, calm)
			errs = append(errs, never)
		}
	}
	return errors.Join(errs...)
}

// unmet reports quotas that weren't reached: what was hardly tried proves little.
func (a *account) unmet() error {
	var errs []error
	for _, q := range a.quotas {
		if q.got < q.want {
			errs = append(errs, fmt.Errorf("quota: %d of %d %s", q.got, q.want, q.what))
		}
	}
	return errors.Join(errs...)
}

// idle reports faults that hit no request, or did nothing that could be seen: nothing was tested by them.
func (a *account) idle() error {
	var errs []error
	for _, f := range a.faults {
		made := f.Kind != crowded && f.Kind != stalled // these two happen
		if made && !f.tookEffect() {
			errs = append(errs, fmt.Errorf("idle fault: %s had no effect, or not everywhere (%s: %d of %d)", f,
				cmp.Or(f.Sign, "requests hit, or connections on which one was, by the rule "+f.Rule), f.Hits, max(1, f.Of)))
		}
	}
	return errors.Join(errs...)
}

// untold reports calm crashes and exits for which it isn't known what the victim held: they measured nothing. At
// rest every replica holds a shard. In a storm this is accepted, since the API server may be away.
func (a *account) untold() error {
	var errs []error
	for _, f := range a.faults {
		ended := strings.HasPrefix(f.Kind, "SIGKILL") || strings.HasPrefix(f.Kind, "SIGTERM")
		if f.Calm && ended && len(f.Tenures) == 0 {
			errs = append(errs, fmt.Errorf("idle fault: %s: its victim held no shard, or the records couldn't be read", f))
		}
	}
	return errors.Join(errs...)
}

// lapsed reports replicas that lapsed in a calm scenario, or at rest, though nothing kept them from renewing.
func (a *account) lapsed() error {
	var errs []error
	for _, l := range a.logs {
		excused := slices.ContainsFunc(a.faults, func(f fault) bool {
			return f.Kind == paused && f.Victim == l.replica && window{f.Start, f.End}.holds(l.Time) ||
				f.Kind == stalled && f.End.Sub(f.Start) >= a.lease/5 && // a shorter one alone makes nobody lapse
					window{f.Start, f.End.Add(a.lease)}.holds(l.Time)
		})
		when := ""
		switch {
		case a.calm(l.Time):
			when = "in calm"
		case !a.lenient && !a.rested.IsZero() && l.Time.After(a.rested):
			when = "at rest"
		}
		if l.Lapse() && when != "" && !excused {
			errs = append(errs, fmt.Errorf("lapse %s: %s at %v: %s", when, l.replica, l.Time, l.Reason))
		}
	}
	return errors.Join(errs...)
}

const (
	// calmWait is how long, beyond a lease duration, a key may wait in a calm scenario, whatever is done to a replica.
	calmWait = 3 * time.Second
	// lenientWait replaces calmWait on a machine that does other things too. It is still less than a runaway backoff.
	lenientWait = 30 * time.Second
	// stormWait is how long a key may wait in a storm. If fault after fault hits it, a backoff of a minute may be
	// pending when the last fault is over.
	stormWait = 150 * time.Second
)

// bound returns how long a key that falls due at a moment may wait.
func (a *account) bound(due time.Time) time.Duration {
	switch {
	case a.calm(due) && a.lenient:
		return a.lease + lenientWait
	case a.calm(due):
		return a.lease + calmWait
	}
	return stormWait
}

// waited reports the keys that waited longer than their bound, and names the worst.
func (a *account) waited() error {
	var worst *lateAt
	n := len(a.never)
	for i, at := range a.ats {
		if at.late <= a.bound(at.due) {
			continue
		}
		if n++; worst == nil || at.late > worst.late {
			worst = &a.ats[i]
		}
	}
	switch {
	case len(a.never) > 0:
		return fmt.Errorf("wait: %d keys waited too long, for one %s/%s, which was never served",
			n, a.never[0].cluster, a.never[0].name)
	case worst != nil:
		return fmt.Errorf("wait: %d keys waited too long, the longest %s, which may take %v", n, worst, a.bound(worst.due))
	}
	return nil
}

// reran reports Pods that were made again. No fault of chaos gives a reason: nobody deletes the Pod of an At that isn't
// DONE, and only home is restored.
func (a *account) reran() error {
	if a.remade == 0 {
		return nil
	}
	return fmt.Errorf("run twice: %d Pods were made for Ats that had had one", a.remade)
}

// excuse is a kind of error line that a fault explains.
type excuse struct {
	line *regexp.Regexp
	of   func(fault) bool
	tail time.Duration // how long after the fault's end
}

var (
	anything   = func(fault) bool { return true }
	restarts   = func(f fault) bool { return f.Server }
	answers    = func(f fault) bool { return strings.Contains(f.Rule, "Fault:answer") }
	connection = func(f fault) bool { return f.Server || f.Rule != "" || f.Kind == paused }
	slowness   = func(f fault) bool {
		return connection(f) || f.Kind == hogged || f.Kind == crowded || f.Kind == stalled
	}
	standstill = func(f fault) bool { return f.Kind == paused || f.Kind == hogged || f.Kind == stalled }
)

const (
	// feltFor is how long a fault's errors may go on: clients' circuit breakers and backoffs end within that time.
	feltFor = 15 * time.Second
	// restartFelt is the same for an API server that starts: it refuses valid requests until it has loaded the roles.
	restartFelt = 30 * time.Second
)

var excuses = []excuse{
	{regexp.MustCompile(`fault proxy: `), answers, feltFor},
	{
		regexp.MustCompile(
			`connection refused|connection reset|broken pipe|EOF|GOAWAY|stream error|connection lost|use of closed`),
		connection, restartFelt},
	{regexp.MustCompile(`context deadline exceeded|context canceled|Client\.Timeout|TLS handshake timeout|i/o timeout`),
		slowness, restartFelt},
	{regexp.MustCompile(`the cluster doesn't answer|Failed to watch|unable to decode an event from the watch stream`),
		slowness, restartFelt},
	{regexp.MustCompile(`too old resource version`), slowness, restartFelt},
	// The fence at work: the tenure was over.
	{regexp.MustCompile(`Unable to write event.*shard isn't held by this replica`), anything, feltFor},
	{
		regexp.MustCompile(`apiserver is shutting down|is forbidden: User|Unauthorized|failed to get server groups: unknown`),
		restarts, restartFelt},
	{regexp.MustCompile(`failed to get server groups: unknown`), answers, time.Second},
	{regexp.MustCompile(`before all known HTTP paths have been installed|not yet ready to handle request`), restarts,
		restartFelt},
	{regexp.MustCompile(`a reconcile doesn't return although its context has ended`), standstill, feltFor},
}

// names matches the parts of an error that differ from one object to the next.
var names = regexp.MustCompile(`[0-9][0-9a-z-]*`)

// errors splits the error lines of all logs into those that a fault explains, counted by fault, and all others. In calm
// scenarios only a stall of the machine excuses a line.
func (a *account) errors() (excused map[string]int, unexplained error) {
	excused, kinds := map[string]int{}, map[string]error{}
	for _, l := range a.logs {
		if l.Level != "ERROR" && !l.Crashed() {
			continue
		}
		if f := a.excuse(l); f != nil && !l.Crashed() {
			excused[f.String()]++
			continue
		}
		key := names.ReplaceAllString(l.Msg+": "+l.Err, "#")
		if _, known := kinds[key]; !known {
			kinds[key] = fmt.Errorf("unexplained error in a log: %s: %s", l.place, l.Text)
		}
	}
	return excused, errors.Join(slices.Collect(maps.Values(kinds))...)
}

// excuse returns the fault that explains a line, nil if none does.
func (a *account) excuse(l logged) *fault {
	for _, e := range excuses {
		if !e.line.MatchString(l.Text) {
			continue
		}
		for i, f := range a.faults {
			if a.calm(l.Time) && f.Kind != stalled {
				continue
			}
			if e.of(f) && f.feltBy(l) && (window{f.Start, f.End.Add(e.tail)}).holds(l.Time) {
				return &a.faults[i]
			}
		}
	}
	return nil
}

// feltBy reports whether a fault can be why a replica logged a line: it is a victim, and if the line is about a
// workload cluster, the fault isn't about another.
func (f fault) feltBy(l logged) bool {
	whom, cluster, _ := strings.Cut(f.Victim, " to ") // as in "r1 to home"
	if f.Server {
		whom, cluster = "all", f.Victim
	}
	if at := l.about(); at != "" && cluster != "" && cluster != lab.Home && cluster != at {
		return false
	}
	return whom == l.replica || whom == "all" || whom == ""
}

// about is the workload cluster that a line is about; "" if it names none.
func (l logged) about() string {
	cluster, _, _ := strings.Cut(cmp.Or(l.Cluster, l.Shard), "/")
	return cluster
}

func (f fault) String() string {
	return fmt.Sprintf("%s, %s, %s", f.Kind, f.Victim, window{f.Start, f.End})
}
