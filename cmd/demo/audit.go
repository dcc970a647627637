package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/big"
	"net/url"
	"os"
	"regexp"
	"slices"
	"time"
)

// adminUser is the admin's name in an audit log.
const adminUser = "tenure-admin"

// auditEvent is what the demo reads of one line of an API server's audit log.
type auditEvent struct {
	Stage      string    `json:"stage"`
	RequestURI string    `json:"requestURI"`
	Verb       string    `json:"verb"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	Time       time.Time `json:"stageTimestamp"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// request is when a request arrived and when it was answered.
type request struct{ received, answered time.Time }

// auditFacts are what one cluster's log says about the replicas.
type auditFacts struct {
	podCreates map[[2]string]request // by namespace and name
	// selectors are the different shardSelectors of lists and watches of Ats; unfiltered counts those without.
	selectors  []string
	unfiltered int
	// copyWrites are the replicas' writes of Deployments, meddling those of the admin, who is us.
	copyWrites, meddling []deploymentWrite
}

// deploymentWrite is a committed write of a Deployment, its scale included, its status not.
type deploymentWrite struct {
	verb, name string
	request
}

// readAudit reads a cluster's audit log up to its last whole line.
func readAudit(path, user string) (auditFacts, error) {
	file, err := os.Open(path)
	if err != nil {
		return auditFacts{}, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	facts, err := scanAudit(file, user)
	if err != nil {
		return auditFacts{}, fmt.Errorf("reading the audit log %s: %w", path, err)
	}
	return facts, nil
}

func scanAudit(log io.Reader, user string) (auditFacts, error) {
	facts := auditFacts{podCreates: map[[2]string]request{}}
	reader := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			slices.Sort(facts.selectors)
			facts.selectors = slices.Compact(facts.selectors)
			return facts, nil // what follows the last newline is still being written
		}
		if err != nil {
			return auditFacts{}, err
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return auditFacts{}, err
		}
		switch {
		case e.deployment() && e.User.Username == user:
			facts.copyWrites = append(facts.copyWrites, e.write())
		case e.deployment() && e.User.Username == adminUser:
			facts.meddling = append(facts.meddling, e.write())
		case e.User.Username == user:
			facts.add(e)
		}
	}
}

func (f *auditFacts) add(e auditEvent) {
	switch {
	case e.Verb == "create" && e.Object.Resource == "pods" && e.Object.Subresource == "" && e.Response.Code == 201:
		f.podCreates[[2]string{e.Object.Namespace, e.Object.Name}] = request{e.Received, e.Time}
	case (e.Verb == "list" || e.Verb == "watch") && e.Object.Resource == "ats":
		selector := selectorOf(e.RequestURI)
		if selector == "" {
			f.unfiltered++
			return
		}
		f.selectors = append(f.selectors, selector)
	}
}

// deployment says that the event is a deploymentWrite.
func (e *auditEvent) deployment() bool {
	return e.Object.Resource == "deployments" && e.Object.Namespace == sourceNamespace && e.Object.Subresource != "status" &&
		e.Verb != "list" && e.Verb != "watch" && e.Response.Code >= 200 && e.Response.Code < 300
}

func (e *auditEvent) write() deploymentWrite {
	return deploymentWrite{e.Verb, e.Object.Name, request{e.Received, e.Time}}
}

func selectorOf(uri string) string {
	parsed, err := url.ParseRequestURI(uri)
	if err != nil {
		return ""
	}
	return parsed.Query().Get("shardSelector")
}

var bound = regexp.MustCompile(`'0x([0-9a-fA-F]+)'`)

// inRange says whether a shardSelector covers an object. It reckons by itself, with nothing of the replicas' code.
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
