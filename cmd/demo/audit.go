package main

import (
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
)

// adminUser is the admin's name in an audit log.
const adminUser = "tenure-admin"

// request is when a request arrived and when it was answered.
type request struct{ received, answered time.Time }

// auditFacts are what one cluster's log says about the replicas.
type auditFacts struct {
	// filtered and unfiltered count the lists and watches of Ats with and without a shard's selector.
	filtered, unfiltered int
	// copyWrites are the replicas' writes of Deployments, meddling those of the admin: the demo itself writes as
	// the admin.
	copyWrites, meddling []deploymentWrite
}

// deploymentWrite is a committed write of a Deployment, its scale included, its status not.
type deploymentWrite struct {
	verb, name string
	request
}

// readAudit reads a cluster's audit log.
func readAudit(path, user string) (auditFacts, error) {
	var facts auditFacts
	for e, err := range audit.Events(path) {
		if err != nil {
			return auditFacts{}, err
		}
		answered := request{e.Arrived(), e.Answered()}
		copied := e.IsDeployment() && e.Namespace == sourceNamespace && e.Subresource != "status" && e.Wrote()
		switch {
		case copied && e.User == user:
			facts.copyWrites = append(facts.copyWrites, deploymentWrite{e.Verb, e.Name, answered})
		case copied && e.User == adminUser:
			facts.meddling = append(facts.meddling, deploymentWrite{e.Verb, e.Name, answered})
		case e.User != user:
		case e.IsAt() && (e.Verb == "list" || e.Verb == "watch"):
			if strings.Contains(e.URI, "shardSelector=shardRange") {
				facts.filtered++
			} else {
				facts.unfiltered++
			}
		}
	}
	return facts, nil
}
