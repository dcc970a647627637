package record

import (
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
)

// Calls are the requests of one user to one API server, as its audit log has them.
type Calls struct {
	// ByVerb counts what succeeded: "update ats/status".
	ByVerb map[string]int
	// AtWrites are successful writes to Ats, their status and Pods.
	AtWrites int
	// DeploymentWrites are successful writes to Deployments and their status.
	DeploymentWrites int
	// Later are those of both that came at a time or after it.
	Later     int
	Conflicts int
	Created   int // Ats, by anybody
}

// CallsIn reads an audit log. One without a single line is an error. Writes since a time are also counted apart.
func CallsIn(path, user string, since time.Time) (Calls, error) {
	calls := Calls{ByVerb: map[string]int{}}
	_, err := audit.All(path, func(e *audit.Event) bool {
		calls.count(e, user, since)
		return false
	})
	return calls, err
}

func (c *Calls) count(e *audit.Event, user string, since time.Time) {
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
	if !e.Arrived().Before(since) {
		c.Later++
	}
}

// Add adds the counts of another API server.
func (c *Calls) Add(other Calls) {
	if c.ByVerb == nil {
		c.ByVerb = map[string]int{}
	}
	for what, n := range other.ByVerb {
		c.ByVerb[what] += n
	}
	c.AtWrites += other.AtWrites
	c.DeploymentWrites += other.DeploymentWrites
	c.Later += other.Later
	c.Conflicts += other.Conflicts
	c.Created += other.Created
}
