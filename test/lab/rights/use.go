package rights

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/bench/audit"
)

// Variable names the folder that use is left in. Without it, nothing is left and planes log no reads of single objects.
const Variable = "TENURE_RIGHTS"

// User is the replicas' name in an audit log.
const User = "system:serviceaccount:tenure-system:tenure"

// Unbound is a namespace in which tests provoke refusals. Those there don't count.
const Unbound = "unbound"

// Right is one verb on one kind of resource, as RBAC has it.
type Right struct {
	Group, Resource, Verb string // the resource with its subresource: ats/status
}

func (r Right) String() string {
	if r.Group == "" {
		return r.Verb + " " + r.Resource
	}
	return r.Verb + " " + r.Resource + "." + r.Group
}

// Grant is a right that a role gives.
type Grant struct {
	Role string // of either kind; their names differ
	Right
}

// Refusal is a request that no role allowed.
type Refusal struct {
	Right
	Namespace string
	URI       string // of the first of them
}

// Use is what audit logs show.
type Use struct {
	Used    []Grant
	Refused []Refusal
}

// roleIn finds the role in the reason that RBAC gives. Roles that Kubernetes itself gives to all users are none of
// ours.
var roleIn = regexp.MustCompile(`of (?:Cluster)?Role "(tenure-[^"]+)"`)

// Read reads one audit log.
func Read(path string) (Use, error) {
	seen := use{used: map[Grant]bool{}, allowed: map[place]bool{}, refused: map[place]Refusal{}}
	for e, err := range audit.Events(path) {
		if errors.Is(err, audit.ErrTruncated) {
			break // the last line of a killed server
		}
		if err != nil {
			return Use{}, fmt.Errorf("reading who used which right: %w", err)
		}
		if e.User == User {
			seen.count(&e)
		}
	}
	// An API server that has just started refuses what its roles allow until it has read them.
	maps.DeleteFunc(seen.refused, func(where place, _ Refusal) bool { return seen.allowed[where] })
	return Use{Used: slices.Collect(maps.Keys(seen.used)), Refused: slices.Collect(maps.Values(seen.refused))}, nil
}

// use is what one log shows.
type use struct {
	used    map[Grant]bool
	allowed map[place]bool
	refused map[place]Refusal // the first of each
}

// place is where a right was asked for.
type place struct {
	Right
	namespace string
}

func (u *use) count(e *audit.Event) {
	right := Right{Group: e.Group, Resource: e.Resource, Verb: e.Verb}
	if e.Subresource != "" {
		right.Resource += "/" + e.Subresource
	}
	if right.Resource == "" {
		return // a path, as of discovery
	}
	where := place{right, e.Namespace}
	switch role := roleIn.FindStringSubmatch(e.Reason); {
	case e.Decision == "forbid" && where.namespace == Unbound:
	case e.Decision == "forbid":
		if _, there := u.refused[where]; !there {
			u.refused[where] = Refusal{Right: right, Namespace: where.namespace, URI: e.URI}
		}
	case e.Decision == "allow" && role != nil:
		u.used[Grant{Role: role[1], Right: right}] = true
		u.allowed[where] = true
	}
}

// AuditPolicy adds the reads of single objects to an audit policy that ends with a rule for all else, if use is left.
func AuditPolicy(policy []byte) []byte {
	rest := []byte("- level: None\n")
	if os.Getenv(Variable) == "" || !bytes.HasSuffix(policy, rest) {
		return policy
	}
	reads := "- level: Metadata\n  users: [\"" + User + "\"]\n  verbs: [get]\n"
	return slices.Concat(bytes.TrimSuffix(policy, rest), []byte(reads), rest)
}

// Leave reads the audit logs below a folder, and leaves what they show where Variable says. Without it, it does
// nothing.
func Leave(below string) error {
	to := os.Getenv(Variable)
	if to == "" {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(below, "*", "audit*.log"))
	if err != nil {
		return fmt.Errorf("looking for audit logs: %w", err)
	}
	var all Use
	for _, log := range logs {
		use, err := Read(log)
		if err != nil {
			return err
		}
		all.Used, all.Refused = append(all.Used, use.Used...), append(all.Refused, use.Refused...)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("leaving the used rights: %w", err)
	}
	f, err := os.CreateTemp(to, filepath.Base(os.Args[0])+"-*.json")
	if err != nil {
		return fmt.Errorf("leaving the used rights (%s): %w", Variable, err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// Left collects what was left in a folder.
func Left(folder string) (Use, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return Use{}, fmt.Errorf("looking for used rights: %w", err)
	}
	used, refused := map[Grant]bool{}, map[Refusal]bool{}
	for _, file := range files {
		var use Use
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &use)
		}
		if err != nil {
			return Use{}, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, g := range use.Used {
			used[g] = true
		}
		for _, r := range use.Refused {
			r.URI = strings.TrimSuffix(filepath.Base(file), ".json") + ": " + r.URI
			refused[r] = true
		}
	}
	all := Use{Used: slices.Collect(maps.Keys(used)), Refused: slices.Collect(maps.Keys(refused))}
	slices.SortFunc(all.Used, func(a, b Grant) int { return compare(a, b) })
	slices.SortFunc(all.Refused, func(a, b Refusal) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.URI, b.URI))
	})
	return all, nil
}

func compare(a, b Grant) int {
	return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Verb, b.Verb),
		strings.Compare(a.Group, b.Group))
}
