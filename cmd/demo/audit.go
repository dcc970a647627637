package main

import (
	"fmt"
	"hash/fnv"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
)

// adminUser is the admin's name in an audit log.
const adminUser = "tenure-admin"

// request is when a request arrived and when it was answered.
type request struct{ received, answered time.Time }

// auditFacts are what one cluster's log says about the replicas.
type auditFacts struct {
	podCreates map[[2]string]request // by namespace and name
	// selectors are the different shardSelectors of lists and watches of Ats; unfiltered counts those without.
	selectors  []string
	unfiltered int
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
	facts := auditFacts{podCreates: map[[2]string]request{}}
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
		case e.IsPod() && e.What() == "create pods" && e.Wrote():
			facts.podCreates[[2]string{e.Namespace, e.Name}] = answered
		case e.IsAt() && (e.Verb == "list" || e.Verb == "watch"):
			if selector := selectorOf(e.URI); selector != "" {
				facts.selectors = append(facts.selectors, selector)
			} else {
				facts.unfiltered++
			}
		}
	}
	slices.Sort(facts.selectors)
	facts.selectors = slices.Compact(facts.selectors)
	return facts, nil
}

func selectorOf(uri string) string {
	parsed, err := url.ParseRequestURI(uri)
	if err != nil {
		return ""
	}
	return parsed.Query().Get("shardSelector")
}

var bound = regexp.MustCompile(`'0x([0-9a-fA-F]+)'`)

// inRange reports whether a shardSelector covers an object. It computes the hash itself and uses none of the
// replicas' code.
func inRange(selector, uid string) (bool, error) {
	found := bound.FindAllStringSubmatch(selector, -1)
	if len(found) != 2 {
		return false, fmt.Errorf("shardSelector %q: want two bounds", selector)
	}
	low, _ := new(big.Int).SetString(found[0][1], 16)
	high, _ := new(big.Int).SetString(found[1][1], 16)
	hash := fnv.New64a()
	hash.Write([]byte(uid))
	at := new(big.Int).SetUint64(hash.Sum64())
	return at.Cmp(low) >= 0 && at.Cmp(high) < 0, nil
}
