package rights

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifest is any object of config/, as far as it is about rights.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Rules    []rbacv1.PolicyRule
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// Granted reads the manifests below a folder, and lists what their roles grant to User. A role counts if a binding
// there gives it to User.
func Granted(below string) ([]Grant, error) {
	roles, bound := map[string][]rbacv1.PolicyRule{}, map[string]bool{}
	err := filepath.WalkDir(below, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && entry.Name() == "templates" {
			return filepath.SkipDir // of the Helm chart: they aren't YAML yet
		}
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		objects, err := read(path)
		for _, o := range objects {
			switch o.Kind {
			case "Role", "ClusterRole":
				roles[o.Metadata.Name] = o.Rules
			case "RoleBinding", "ClusterRoleBinding":
				bound[o.RoleRef.Name] = bound[o.RoleRef.Name] || slices.ContainsFunc(o.Subjects, isUser)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the roles below %s: %w", below, err)
	}
	granted := map[Grant]bool{}
	for role, rules := range roles {
		if !bound[role] {
			continue
		}
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted[Grant{role, Right{group, resource, verb}}] = true
					}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(granted), compare), nil
}

// asked are rights that no logged request shows, since they are only checked in the course of another request.
// Without them that request is refused.
var asked = []Right{
	{"tenure.dev", "replications", "record"}, // by the policy of config/replication/source
	{"apps", "deployments", "create"},        // by an apply, in a patch, of what isn't there yet
}

// streamed returns the grant whose use also proves the use of a list. A watch that begins with all objects needs no
// list, but client-go falls back on a list whenever a server can't stream. How often that happens is a matter of
// luck.
func (g Grant) streamed() Grant {
	if g.Verb == "list" {
		g.Verb = "watch"
	}
	return g
}

func isUser(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.ServiceAccountKind && "system:serviceaccount:"+s.Namespace+":"+s.Name == User
}

func read(path string) (all []manifest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		var m manifest
		if err := decoder.Decode(&m); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, m)
	}
}

// Judge fails on what is granted and not used, and on what was refused. It prints what it saw.
func Judge(to io.Writer, granted []Grant, use Use) error {
	used := map[Grant]bool{}
	for _, g := range use.Used {
		used[g] = true
	}
	var wrong []error
	count := 0
	for _, g := range granted {
		if used[g] || used[g.streamed()] || slices.Contains(asked, g.Right) {
			count++
		} else {
			wrong = append(wrong, fmt.Errorf("role %s grants %s, which nothing used", g.Role, g.Right))
		}
	}
	for _, r := range use.Refused {
		wrong = append(wrong, fmt.Errorf("%s was refused in namespace %q (%s)", r.Right, r.Namespace, r.URI))
	}
	if len(granted) == 0 {
		wrong = append(wrong, errors.New("no role grants anything: is config/ where it should be?"))
	}
	_, err := fmt.Fprintf(to, "rights: %d of %d granted are used, %d kinds of requests were refused\n", count,
		len(granted), len(use.Refused))
	return errors.Join(append(wrong, err)...)
}
