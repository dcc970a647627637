package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
}

// auditLine is what is read of a line.
type auditLine struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// CallsIn reads an audit log.
func CallsIn(path, user string) (Calls, error) {
	in, err := os.Open(path)
	if err != nil {
		return Calls{}, fmt.Errorf("opening an audit log: %w", err)
	}
	defer in.Close()
	calls, err := readCalls(in, user)
	if err != nil {
		return calls, fmt.Errorf("%s: %w", path, err)
	}
	return calls, nil
}

func readCalls(in io.Reader, user string) (Calls, error) {
	calls := Calls{ByVerb: map[string]int{}}
	reader := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return calls, nil // a line without an end is still being written
		}
		if err != nil {
			return calls, err
		}
		var l auditLine
		if err := json.Unmarshal(line, &l); err != nil {
			return calls, fmt.Errorf("unreadable line: %w", err)
		}
		calls.count(l, user)
	}
}

func (c *Calls) count(l auditLine, user string) {
	ours := l.ObjectRef.Resource == "ats" || l.ObjectRef.Resource == "pods"
	copies := l.ObjectRef.Resource == "deployments"
	ok := l.ResponseStatus.Code >= 200 && l.ResponseStatus.Code < 300
	if ok && l.Verb == "create" && l.ObjectRef.Resource == "ats" {
		c.Created++
	}
	if l.User.Username != user {
		return
	}
	if l.ResponseStatus.Code == 409 && (ours || copies) {
		c.Conflicts++
	}
	if !ok {
		return
	}
	what := l.Verb + " " + l.ObjectRef.Resource
	if l.ObjectRef.Subresource != "" {
		what += "/" + l.ObjectRef.Subresource
	}
	c.ByVerb[what]++
	switch {
	case l.Verb == "list" || l.Verb == "watch" || l.Verb == "get":
	case ours:
		c.AtWrites++
	case copies:
		c.DeploymentWrites++
	}
}

// Add takes the counts of another API server in.
func (c *Calls) Add(other Calls) {
	if c.ByVerb == nil {
		c.ByVerb = map[string]int{}
	}
	for what, n := range other.ByVerb {
		c.ByVerb[what] += n
	}
	c.AtWrites += other.AtWrites
	c.DeploymentWrites += other.DeploymentWrites
	c.Conflicts += other.Conflicts
	c.Created += other.Created
}
