package main

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

// secondFacts is what we did in the second act, and what the API servers and the conditions show of it.
type secondFacts struct {
	deployments int
	within      time.Duration // until all were Replicated
	// deletedName and scaledName are the copies that we changed.
	deletedName, scaledName string
	repairs                 []repair
	frozenAt                time.Time
	// frozen is how long one cluster was frozen. shownBy is how many conditions showed that, the last of them after
	// shownAfter.
	frozen, shownAfter time.Duration
	shownBy            int
	// updates counts the copies in the other clusters that got their new image meanwhile. slowest is the longest
	// time that one took after its source.
	updates int
	slowest time.Duration
	caught  time.Duration // until all was as wanted, from when the cluster went on
}

// repair is one change that the demo made to a copy, and how long it took until it was undone.
type repair struct {
	what string
	took *time.Duration // nil: no write of ours followed
}

// readSecond reads the second act from the audit logs.
func (st *story) readSecond(logs map[string]auditFacts) (secondFacts, error) {
	f := st.second
	home, err := readAudit(st.fleet.Planes.Cluster(homeCluster).AuditLog(), lab.AccountUser)
	if err != nil {
		return secondFacts{}, err
	}
	f.deployments = st.settings.deployments
	f.repairs = []repair{
		{"copy deleted in " + deletedIn, logs[deletedIn].repaired("delete", f.deletedName)},
		{"copy scaled in " + scaledIn, logs[scaledIn].repaired("update", f.scaledName)},
	}
	for _, change := range home.meddling {
		if change.verb != "patch" || change.received.Before(f.frozenAt) {
			continue
		}
		for _, name := range workloadClusters {
			if name == frozenIn {
				continue
			}
			if took := logs[name].next(change); took != nil {
				f.updates++
				f.slowest = max(f.slowest, *took)
			}
		}
	}
	return f, nil
}

// repaired is how long after our own write of a copy the replicas' next one was committed; nil if there is none.
func (f auditFacts) repaired(verb, name string) *time.Duration {
	for _, w := range f.meddling {
		if w.verb == verb && w.name == name {
			return f.next(w)
		}
	}
	return nil
}

// next returns how long after a change was committed the replicas' next write of that copy was committed; nil if
// there is none. The replicas may react to a commit before the API server has answered it. In that case the time
// counts from when the change arrived.
func (f auditFacts) next(change deploymentWrite) *time.Duration {
	var first *deploymentWrite
	for i, w := range f.copyWrites {
		if w.name == change.name && w.answered.After(change.received) && (first == nil || w.answered.Before(first.answered)) {
			first = &f.copyWrites[i]
		}
	}
	if first == nil {
		return nil
	}
	took := first.answered.Sub(change.answered)
	if took < 0 {
		took = first.answered.Sub(change.received)
	}
	return &took
}

func (f secondFacts) checks() []check {
	n, others := f.deployments, len(workloadClusters)-1
	checks := []check{{
		"Deployments replicated", fmt.Sprintf("%d to %d clusters in %s", n, len(workloadClusters), length(f.within)),
		f.within > 0,
	}}
	for _, r := range f.repairs {
		c := check{r.what, "not repaired", false}
		if r.took != nil {
			c = bounded(r.what, "repaired after %s", repairedWithin, *r.took)
		}
		checks = append(checks, c)
	}
	return append(checks,
		check{
			"shown while " + frozenIn + " was frozen",
			fmt.Sprintf("by %d of %d conditions within %s", f.shownBy, n, length(f.shownAfter)), f.shownBy == n,
		},
		check{
			"updated meanwhile elsewhere",
			fmt.Sprintf("%d of %d copies, each within %s, at most %s", f.updates, n*others, length(f.slowest), repairedWithin),
			f.updates == n*others && f.slowest <= repairedWithin,
		},
		bounded(frozenIn+" after "+length(f.frozen)+" frozen", "caught up in %s", caughtUpWithin, f.caught),
	)
}
