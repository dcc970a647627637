package console

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	// youngFor is for how long a new cluster may be without shards before that is trouble.
	youngFor = 30 * time.Second
	// stuckAfter is after how long a move counts as stuck: a drain may take 20 s, and filling caches some more.
	stuckAfter = time.Minute
	// crashesFor is for how long a healed crash is reported.
	crashesFor = 10 * time.Minute
	// examples is how many names a finding lists.
	examples = 3
)

// Entries of config/RUNBOOK.md, which are the names of the alerts too.
const (
	AlertNoReplica   = "TenureNoReplica"
	AlertUnheld      = "TenureShardWithoutHolder"
	AlertNotServed   = "TenureShardNotServed"
	AlertCoordinator = "TenureCoordinatorMissing"
	AlertUnreachable = "TenureClusterUnreachable"
	AlertStuck       = "TenureMoveStuck"
	AlertImbalance   = "TenureImbalance"
	AlertWaiting     = "TenureKeyWaitingTooLong"
	AlertLapses      = "TenureLapses"
	// EntryLaterEpoch isn't an alert. It says what to do about objects that show higher epochs than their shards'
	// records.
	EntryLaterEpoch = "Objects from a later epoch"
	AlertOdd        = "TenureOddRecords"
	AlertLimited    = "TenureClusterLimited"
	AlertExpireSoon = "TenureCredentialsExpireSoon"
	AlertExpire     = "TenureCredentialsExpire"
)

// findings returns what is wrong, and then what is good to know.
func (v *survey) findings() []Finding {
	all := slices.Concat(
		v.findNobody(), v.findCoordinator(), // first, since they concern the whole fleet, and screens show a few findings
		v.findRecords(), v.findUnserved(), v.findHoles(), v.findUnfit(), v.findLimited(), v.findQuiet(),
		v.findClusters(), v.findExpiring(), v.findBadLimits(), v.findMoves(), v.findCrashes(),
	)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) }) // "wrong" > "note"
	return all
}

func (v *survey) living() (n int) {
	for _, r := range v.replicas {
		if r.State == Live {
			n++
		}
	}
	return n
}

func (v *survey) findNobody() []Finding {
	if v.living() > 0 {
		return nil
	}
	return []Finding{{Wrong, AlertNoReplica, "no replica is alive: nothing is reconciled",
		fmt.Sprintf("look at the replicas: kubectl -n %s get pods; and that --namespace and --fleet are theirs; with "+
			"--sharding=off there are no shards, and Lease tenure-leader says who works",
			v.Namespace)}}
}

// findRecords reports records that make no sense.
func (v *survey) findRecords() (found []Finding) {
	counts := map[string]bool{}
	for _, e := range v.entries {
		counts[e.raw.Name] = true
	}
	for _, o := range v.odd {
		if o.Reason == inspect.Overlapping {
			continue // that is found by slots
		}
		do := "the record was written by hand; no replica serves it"
		switch {
		case counts[o.Record]:
			do = "somebody edited it by hand; it counts all the same"
		case o.Reason == inspect.Unreadable:
			do = "somebody wrote it by hand; replicas go on with the last of it that they could read, if there was any"
		}
		found = append(found, Finding{Wrong, AlertOdd, o.Note, do})
	}
	return found
}

// findUnserved reports the shards without a live holder, grouped by the reason.
func (v *survey) findUnserved() []Finding {
	why := map[string][]string{}
	for _, e := range v.entries {
		switch {
		case e.served() || v.unwanted[e.ID.Cluster]:
		case e.holder == nil:
			why["nobody holds"] = append(why["nobody holds"], e.ID.String())
		default:
			text := map[ReplicaState]string{
				Quiet: "is quiet", Sealed: "was sealed", Missing: "has no Lease",
			}[e.holder.State]
			text = fmt.Sprintf("%s, which %s, holds", e.holder.Incarnation, text)
			why[text] = append(why[text], e.ID.String())
		}
	}
	var found []Finding
	for _, text := range slices.Sorted(maps.Keys(why)) {
		found = append(found, Finding{Wrong, AlertUnheld, text + " " + list(why[text], "shard"),
			"a live replica takes it within the lease duration; if this stays, look at the logs of the live replicas"})
	}
	return found
}

// findLimited reports clusters that refuse requests or answer late, by what replicas say: one finding for each
// cause. findClusters reports those that don't answer at all.
func (v *survey) findLimited() (found []Finding) {
	where := map[Finding][]string{}
	for _, c := range v.clusters {
		if c.Removed || c.State == "" || c.Fails() {
			continue
		}
		f := Finding{Wrong, AlertLimited, "nothing is served (" + c.Cause + ")", "work there waits, and in no other cluster"}
		if c.State == protocol.ClusterLimited {
			f = Finding{Note, AlertLimited, "requests are refused or delayed (" + c.Cause + ")",
				f.Do + ": see " + AlertLimited + " in the runbook"}
		}
		at := v.saying(c)
		if len(at) > 1 {
			at = []string{count(len(at), "replica")}
		}
		where[f] = append(where[f], fmt.Sprintf("%s at %s", c.Name, strings.Join(at, "")))
	}
	for f, clusters := range where {
		f.What += ": " + list(clusters, "")
		found = append(found, f)
	}
	slices.SortFunc(found, func(x, y Finding) int { return strings.Compare(x.What, y.What) })
	return found
}

// saying lists the replicas that report the worst state of a cluster.
func (v *survey) saying(c *Cluster) (names []string) {
	for _, r := range v.replicas {
		if r.Acts() && !v.bystander(r, c) && slices.ContainsFunc(r.Clusters, func(said inspect.ClusterView) bool {
			return said.Cluster == c.Name && said.State == c.State
		}) {
			names = append(names, string(r.Incarnation))
		}
	}
	return names
}

// findHoles reports parts of the hash space that no record covers, and records that overlap.
func (v *survey) findHoles() (found []Finding) {
	var young, bare, partly, twice []string
	for _, c := range v.clusters {
		at := v.bySlot[c.Name]
		switch {
		case c.Removed:
		case at == nil && (c.Astray() || c.Reason == clusterhealth.ReasonBadConfig): // findClusters reports these
		case at == nil:
			if v.isYoung(c.Name) {
				young = append(young, string(c.Name))
			} else {
				bare = append(bare, string(c.Name))
			}
		default:
			uncovered, overlap := 0, false
			for _, here := range at {
				if len(here) == 0 {
					uncovered++
				}
				overlap = overlap || len(here) > 1
			}
			if uncovered > 0 {
				partly = append(partly, fmt.Sprintf("%s (%d of %d slots)", c.Name, uncovered, slots))
			}
			if overlap {
				twice = append(twice, string(c.Name))
			}
		}
	}
	if len(young) > examples {
		found = append(found, Finding{Note, "", "new and not divided into shards yet: " + list(young, "cluster"), ""})
	} else {
		for _, name := range young {
			found = append(found, Finding{Note, "", "cluster " + name + " is new and not divided into shards yet", ""})
		}
	}
	add := func(names []string, what, do string) {
		if len(names) > 0 {
			found = append(found, Finding{Wrong, AlertUnheld, fmt.Sprintf(what, list(names, "")), do})
		}
	}
	add(bare, "not divided into shards yet: %s",
		"a coordinator that has just started waits for two and a half lease durations; else look at its log, and for events "+
			"ClusterHasTwoNames: a second name of a cluster stays so")
	add(partly, "no record covers a part of: %s", "the coordinator makes what is missing, after two and a half lease "+
		"durations where a record was deleted; look at its log")
	add(twice, "records overlap, and no layout says which of them count: %s", "delete the records that were made by hand")
	return found
}

func (v *survey) isYoung(name keyspace.ClusterName) bool {
	return slices.ContainsFunc(v.Clusters, func(a Answer) bool {
		return a.Cluster == name &&
			v.Now.Sub(a.Since) < youngFor
	})
}

// findQuiet reports late Leases, clocks that are off, double names and different builds.
func (v *survey) findQuiet() (found []Finding) {
	byName, builds := map[string]int{}, map[string]int{}
	for _, r := range v.replicas {
		switch {
		case r.State == Quiet:
			found = append(found, Finding{Wrong, AlertLapses,
				fmt.Sprintf("replica %s hasn't renewed its Lease for %s of %s%s", r.Incarnation, age(r.RenewedAgo),
					age(r.LeaseDuration), byWhom(*r)),
				"if it is dead its peers take over on their own; if it lives, it can't write to the home cluster"})
		case r.Acts() && r.Doubtful:
			why := fmt.Sprintf("the clock by which it renewed its Lease is ahead of this one by %s, and it wasn't seen to "+
				"renew since", age(r.ClockAhead))
			if r.ClockAhead == 0 {
				why = fmt.Sprintf("its Lease is %s old by its own clock, and it has been watched too briefly to tell",
					age(r.RenewedAgo))
			}
			found = append(found, Finding{Note, "", fmt.Sprintf("whether replica %s lives isn't known: %s", r.Incarnation, why),
				fmt.Sprintf("kubectl -n %s get lease %s -w shows each renewal, four in %s", v.Namespace, r.Incarnation,
					age(r.LeaseDuration))})
		case r.Acts() && r.ClockAhead > 0:
			found = append(found, Finding{Note, "", fmt.Sprintf("the clock of replica %s is ahead of this one by %s", r.Name,
				age(r.ClockAhead)), clockOff})
		case r.Acts() && r.ClockAhead < 0:
			found = append(found, Finding{Note, "", fmt.Sprintf("the clock of replica %s is behind this one by %s", r.Name,
				age(-r.ClockAhead)), clockOff})
		}
		if r.Acts() {
			byName[r.Name]++
			builds[cmp.Or(r.Build, "unknown")]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if byName[name] > 1 {
			found = append(found, Finding{Note, "", fmt.Sprintf("%d live incarnations are called %s", byName[name], name),
				"one may be the last life of a process that was restarted, for a lease duration; if both stay, give --replica " +
					"names of their own"})
		}
	}
	if len(builds) > 1 {
		found = append(found, Finding{Note, "", "a rollout is under way: builds " +
			list(slices.Sorted(maps.Keys(builds)), ""), ""})
	}
	return found
}

// clockOff is what follows from a clock that differs from this one.
const clockOff = "nothing depends on it but times that are shown; Ats start by the clock of their replica"

// byWhom says, behind how long ago a Lease was renewed, who measured that.
func byWhom(r Replica) string {
	switch {
	case !r.Watched:
		return " (by its own clock)"
	case r.Doubtful:
		return fmt.Sprintf(" (as watched from here; a live replica renews it four times in %s, and the time in it is %s "+
			"ahead of this clock)", age(r.LeaseDuration), age(r.ClockAhead))
	}
	return ""
}

func (v *survey) findCoordinator() []Finding {
	do := "holders go on, and crashes are healed without it; balance waits. A live replica takes the role by itself: " +
		"look at its log"
	lead := v.members.byID[v.members.lead]
	switch {
	case v.living() == 0:
		return nil
	case !v.members.led || lead == nil:
		return []Finding{{Wrong, AlertCoordinator, "there is no coordinator", do}}
	case lead.State != Live && lead.State != Leaving:
		return []Finding{{Wrong, AlertCoordinator, fmt.Sprintf("the coordinator, %s, is %s", lead.Incarnation, lead.State),
			do}}
	}
	return nil
}

// findBadLimits reports annotations that can't be used: they bound nothing.
func (v *survey) findBadLimits() (found []Finding) {
	for _, what := range v.BadLimits[:min(len(v.BadLimits), examples)] {
		found = append(found, Finding{Note, "", what, "see `tenure cluster check`"})
	}
	if more := len(v.BadLimits) - examples; more > 0 {
		found = append(found, Finding{Note, "", fmt.Sprintf("limits of %s more can't be used", count(more, "cluster")),
			"see the events BadLimits"})
	}
	return found
}

func (v *survey) findClusters() (found []Finding) {
	do := map[string]string{
		clusterhealth.ReasonBadConfig: "correct the Secret or file; the others go on",
		clusterhealth.ReasonRefused:   "renew the credentials in the Secret or file; the others go on",
		clusterhealth.ReasonUnreachable: "see whether the API server is up and can be reached from here and from the " +
			"replicas; the others go on",
		ReasonAnother:  "see `tenure cluster check`; the others go on",
		ReasonTwoNames: "see `tenure cluster check`; the others go on",
	}
	var removed, elsewhere []string
	byReason := map[string][]*Cluster{}
	for _, c := range v.clusters {
		if c.Removed {
			removed = append(removed, string(c.Name))
		}
		if c.Fails() {
			byReason[c.Reason] = append(byReason[c.Reason], c)
		}
		if c.Reason == ReasonNotFromHere {
			elsewhere = append(elsewhere, string(c.Name))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		all := byReason[reason]
		if len(all) > examples {
			var names []string
			for _, c := range all {
				names = append(names, string(c.Name))
			}
			found = append(found, Finding{Wrong, all[0].entry(), reason + ": " + list(names, "cluster"), do[reason]})
			continue
		}
		for _, c := range all {
			found = append(found, Finding{Wrong, c.entry(),
				strings.TrimSuffix(fmt.Sprintf("cluster %s: %s: %s", c.Name, reason, c.Note), ": "), do[reason]})
		}
	}
	if len(elsewhere) > 0 {
		found = append(found, Finding{Note, "", "can't be reached from here, and replicas serve all of it: " +
			list(elsewhere, ""), "--skip-clusters asks none"})
	}
	if len(removed) > 0 {
		what := "not registered any more, records kept for their epochs: "
		if !v.Registered {
			what = "held by nobody, and no replica complains, so probably not registered any more: "
		}
		found = append(found, Finding{Note, "", what + list(removed, ""), ""})
	}
	return found
}

// findExpiring reports credentials that have expired or will soon, as far as Secrets could be read. If a cluster
// refuses them already, findClusters reports that.
func (v *survey) findExpiring() (found []Finding) {
	var over, soon []string
	for _, a := range slices.SortedStableFunc(slices.Values(v.Clusters), func(a, b Answer) int {
		return a.Expires.Compare(b.Expires)
	}) {
		switch {
		case a.Reason == clusterhealth.ReasonRefused || !kubeconfig.EndSoon(a.Issued, a.Expires, v.Now):
		case a.Expires.After(v.Now):
			soon = append(soon, fmt.Sprintf("%s in %s", a.Cluster, age(seconds(a.Expires.Sub(v.Now)))))
		default:
			over = append(over, string(a.Cluster))
		}
	}
	const rotate = "tenure cluster rotate NAME --kubeconfig FILE puts a new token into the Secret"
	if len(over) > 0 {
		found = append(found, Finding{Wrong, AlertExpire, "credentials have expired: " + list(over, ""), rotate})
	}
	if len(soon) > 0 {
		found = append(found, Finding{Note, AlertExpireSoon, "credentials expire: " + list(soon, ""), rotate +
			"; why the fleet didn't: tenure cluster check NAME, and the events of the Secret"})
	}
	return found
}

// findMoves reports moves that take too long, and imbalance.
func (v *survey) findMoves() (found []Finding) {
	var stuck []string
	to := map[protocol.Incarnation]bool{}
	moving := 0
	for _, e := range v.entries {
		if !e.moving() {
			continue
		}
		moving++
		if m := v.move(e); m.AskedAgo.Duration() > stuckAfter {
			stuck = append(stuck, fmt.Sprintf("%s (%s)", e.ID, m.Stage))
			to[m.To] = true
		}
	}
	if len(stuck) > 0 {
		ids := slices.Sorted(maps.Keys(to))
		found = append(found, Finding{Wrong, AlertStuck,
			fmt.Sprintf("on the way for more than %s: %s", age(seconds(stuckAfter)), list(stuck, "shard")),
			fmt.Sprintf("until it is over the old holder serves it. Warming: look at the log of %s. Draining: at the holder's",
				ids[0])})
	}
	if waiting := len(settle(v.planShards(), v.planReplicas(nil))); waiting > 0 && moving == 0 && v.living() > 0 {
		found = append(found, Finding{Note, AlertImbalance, fmt.Sprintf("the planner would move %s", count(waiting, "shard")),
			"tenure plan shows which"})
	}
	return found
}

// findCrashes reports the crashes that were healed, by the replica that died.
func (v *survey) findCrashes() (found []Finding) {
	shards, last := map[string][]string{}, map[string]time.Time{}
	for _, e := range v.entries {
		m := e.raw.Status.LastMove
		if m == nil || protocol.MoveKind(m.Kind) != protocol.Crash || v.Now.Sub(m.Time.Time) > crashesFor {
			continue
		}
		shards[m.From] = append(shards[m.From], e.ID.String())
		if m.Time.After(last[m.From]) {
			last[m.From] = m.Time.Time
		}
	}
	for _, who := range slices.Sorted(maps.Keys(shards)) {
		found = append(found, Finding{Note, AlertLapses, fmt.Sprintf("%s died or lapsed %s ago: others took over %s",
			who, age(sinceTime(v.Now, last[who])), list(shards[who], "shard")), ""})
	}
	return found
}

// list joins a few names and says how many more there are. With a noun it begins with their number.
func list(names []string, noun string) string {
	few := text.Few(names, examples)
	if noun == "" {
		return few
	}
	return count(len(names), noun) + ": " + few
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// age writes a duration as a person would say it.
func age(s Seconds) string {
	sign := ""
	if s < 0 {
		s, sign = -s, "-"
	}
	d := s.Duration()
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%s%.1fs", sign, d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%s%ds", sign, int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%s%dm%02ds", sign, int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%s%dh%02dm", sign, int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%s%.0fd", sign, math.Floor(min(float64(s), 1e12)/86400))
}
