package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
)

const (
	// restWithin bounds the wait for one more At to be DONE: backoffs of a minute may be pending.
	restWithin = 2 * time.Minute
	// restartFelt is how long after its start an API server may still refuse what it shouldn't.
	restartFelt = 30 * time.Second
)

// explained are the error lines that faults of ours call forth. Everything else at level ERROR fails the run.
var explained = []*regexp.Regexp{
	regexp.MustCompile(`fault proxy: `),
	regexp.MustCompile(`connection refused|connection reset|broken pipe|EOF|GOAWAY|stream error|connection lost|use of closed`),
	regexp.MustCompile(`context deadline exceeded|context canceled|Client\.Timeout|TLS handshake timeout|i/o timeout|the cluster doesn't answer`),
	regexp.MustCompile(`Unable to write event.*shard isn't held by this replica`), // the fence at work: its tenure was over
	regexp.MustCompile(`Failed to watch|unable to decode an event from the watch stream|too old resource version`),
}

// forbidden is what an API server says for a while after its start, before it knows the roles.
var forbidden = regexp.MustCompile(`is forbidden: User|Unauthorized`)

// undiscovered is what is left of an error with which discovery was answered: by the proxy, or by a server that starts.
var undiscovered = regexp.MustCompile(`failed to get server groups: unknown`)

// names are the parts of an error that differ from one object to the next.
var names = regexp.MustCompile(`[0-9][0-9a-z-]*`)

// nearRestart says whether an API server was started not long before.
func (r *run) nearRestart(t time.Time) bool {
	for _, f := range r.faults {
		restart := strings.HasPrefix(f.Kind, "restart of the API server") || strings.HasPrefix(f.Kind, "filtering on the server")
		if restart && t.After(f.Start) && t.Before(f.End.Add(restartFelt)) {
			return true
		}
	}
	return false
}

// refused says whether the proxy was answering requests with errors, or had been just before.
func (r *run) refused(t time.Time) bool {
	return slices.ContainsFunc(r.faults, func(f fault) bool {
		answered := strings.HasPrefix(f.Kind, "409") || strings.HasPrefix(f.Kind, "429") || strings.HasPrefix(f.Kind, "500")
		return answered && t.After(f.Start) && t.Before(f.End.Add(time.Second))
	})
}

// rest waits until nothing is left to do and the fleet has been at rest for a while.
func (r *run) rest(ctx context.Context) {
	r.settle(ctx, restWithin)
	r.say("waiting until all Ats are DONE")
	r.blame(r.catchUp(ctx))
	r.settle(ctx, settleWithin)
	r.say("at rest for %v", r.quiet)
	sleep(ctx, r.quiet)
	for _, replica := range r.fleet.Alive() {
		replica.Terminate()
	}
}

// catchUp waits until all Ats are DONE. A storm may leave more of them than the machine does in a minute; but they must
// become fewer.
func (r *run) catchUp(ctx context.Context) error {
	least, since := math.MaxInt, time.Now()
	for {
		left, err := r.load.unfinished(ctx)
		switch {
		case err == nil:
			return nil
		case left > 0 && left < least:
			least, since = left, time.Now()
		case time.Since(since) > restWithin:
			return fmt.Errorf("nothing became DONE for %v: %w", restWithin, err)
		}
		// Listing thousands of Ats takes as much of the API servers as a few dozen of them need to be done.
		sleep(ctx, 500*time.Millisecond+min(time.Duration(left)*5*time.Millisecond, 10*time.Second))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// judge reads the audit logs when all replicas have left.
func (r *run) judge(ctx context.Context) *witness.Report {
	for _, replica := range r.fleet.Replicas() {
		if err := replica.Wait(40 * time.Second); errors.Is(err, lab.ErrStillRuns) {
			r.blame(err)
		}
	}
	shards, err := r.fleet.Shards(ctx)
	r.blame(err)
	for i := range shards {
		if holder := shards[i].Status.Holder; holder != "" {
			r.blame(fmt.Errorf("all replicas have left, and shard %s is still held by %s", lab.ShardName(&shards[i]), holder))
		}
	}
	report, err := witness.Read(r.fleet.Planes.Dir(), witness.Options{Facts: r.load.facts(), Rules: witness.Rules{Settle: time.Second}})
	if err != nil {
		r.blame(err)
		return nil
	}
	if !report.OK {
		for _, v := range report.Violations {
			r.blame(fmt.Errorf("%s (%s): %s %s: %s%s%s", v.Kind, v.Invariant, v.Object, v.Shard, v.Detail, at(v.First), at(v.Second)))
		}
	}
	if report.Vacuous {
		r.blame(errors.New("the witness had nothing to judge"))
	}
	if report.Ats.LostUnknown > 0 || report.Ats.EarlyUnknown > 0 {
		r.blame(fmt.Errorf("the witness couldn't tell of %d Ats whether they were lost, and of %d whether they were early", report.Ats.LostUnknown, report.Ats.EarlyUnknown))
	}
	r.judgeLogs()
	return report
}

func at(l *witness.Line) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("\n    %s:%d %s %s epoch %d by %s", l.File, l.Line, l.Time.Format(time.RFC3339Nano), l.Verb, l.Epoch, l.Replica)
}

// judgeLogs looks for errors that nothing explains, and for panics.
func (r *run) judgeLogs() {
	unexplained := map[string]string{}
	for _, replica := range r.fleet.Replicas() {
		lines, err := replica.Log.Lines()
		r.blame(err)
		for n, l := range lines {
			starting, asking := forbidden.MatchString(l.Text), undiscovered.MatchString(l.Text)
			if (starting || asking) && r.nearRestart(l.Time) || asking && r.refused(l.Time) {
				continue
			}
			panicked := strings.HasPrefix(l.Text, "panic:") || strings.HasPrefix(l.Text, "fatal error:") || strings.Contains(l.Msg, "panic")
			if !panicked && (l.Level != "ERROR" || slices.ContainsFunc(explained, func(e *regexp.Regexp) bool { return e.MatchString(l.Text) })) {
				continue
			}
			key := names.ReplaceAllString(l.Msg+": "+l.Err, "#")
			if _, known := unexplained[key]; !known {
				unexplained[key] = fmt.Sprintf("%s:%d: %s", replica.LogPath, n+1, l.Text)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(unexplained)) {
		r.blame(fmt.Errorf("unexplained error in a log: %s", unexplained[key]))
	}
}
