package record

import (
	"maps"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/load"
)

// Calls are the requests of one user to one API server, as its audit log has them.
type Calls struct {
	// ByVerb counts what succeeded: "update ats/status".
	ByVerb map[string]int
	// AtWrites are successful writes to Ats, their status and Pods.
	AtWrites int
	// DeploymentWrites are successful writes to Deployments and their status.
	DeploymentWrites int
	Conflicts        int
	Created          int // Ats, by anybody
	// Served are the Ats whose DONE somebody wrote and the Deployments that the user wrote, in the cluster of the copy. A
	// write whose outcome the log doesn't show counts, too.
	Served map[load.Ref]bool
}

// CallsIn reads the audit log of a cluster's API server. One without a single line is an error.
func CallsIn(path, cluster, user string) (Calls, error) {
	calls := Calls{ByVerb: map[string]int{}, Served: map[load.Ref]bool{}}
	_, err := audit.All(path, func(e *audit.Event) bool {
		calls.count(e, user)
		calls.serve(e, cluster, user)
		return false
	})
	return calls, err
}

func (c *Calls) count(e *audit.Event, user string) {
	if !e.Ended() { // a watch has a line when it begins, too
		return
	}
	ours, copies, ok := e.Resource == "ats" || e.Resource == "pods", e.Resource == "deployments",
		e.Outcome() == audit.Committed
	if ok && e.What() == "create ats" {
		c.Created++
	}
	if e.User != user {
		return
	}
	if e.Code == 409 && (ours || copies) {
		c.Conflicts++
	}
	if !ok {
		return
	}
	c.ByVerb[e.What()]++
	if !e.Mutating() || !ours && !copies {
		return
	}
	if ours {
		c.AtWrites++
	} else {
		c.DeploymentWrites++
	}
}

func (c *Calls) serve(e *audit.Event, cluster, user string) {
	if !e.Ended() || !e.Mutating() || e.Outcome() == audit.Rejected {
		return
	}
	if e.IsAt() && (e.Outcome() == audit.Unknown || e.Body != nil && e.Body.Phase == "DONE") ||
		e.IsDeployment() && e.User == user {
		c.Served[load.RefOf(cluster, e.Namespace, e.Name)] = true
	}
}

// Add adds the counts of another API server.
func (c *Calls) Add(other Calls) {
	if c.ByVerb == nil {
		c.ByVerb, c.Served = map[string]int{}, map[load.Ref]bool{}
	}
	maps.Copy(c.Served, other.Served)
	for what, n := range other.ByVerb {
		c.ByVerb[what] += n
	}
	c.AtWrites += other.AtWrites
	c.DeploymentWrites += other.DeploymentWrites
	c.Conflicts += other.Conflicts
	c.Created += other.Created
}
