package sharding

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

// folder is a folder of kubeconfig files, laid out as a kubelet mounts a Secret: a change is one rename of a
// symbolic link.
type folder struct {
	path    string
	version int
}

// put replaces all files.
func (f *folder) put(files map[string][]byte) error {
	f.version++
	version := fmt.Sprintf("..%d", f.version)
	if err := os.Mkdir(filepath.Join(f.path, version), 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(f.path, version, name), content, 0o600); err != nil {
			return err
		}
		if err := os.Symlink("..data/"+name, filepath.Join(f.path, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	next := filepath.Join(f.path, "..data_tmp")
	if err := os.Symlink(version, next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(f.path, "..data")); err != nil {
		return err
	}
	links, err := filepath.Glob(filepath.Join(f.path, "[^.]*"))
	for _, link := range links {
		if _, still := files[filepath.Base(link)]; !still {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// TestClustersOfAFolderComeAreRotatedBreakAndGo serves west by a file instead of a Secret.
func TestClustersOfAFolderComeAreRotatedBreakAndGo(t *testing.T) {
	r := newRig(t)
	files := &folder{path: filepath.Join(t.TempDir(), "clusters")}
	must.Succeed(t, os.Mkdir(files.path, 0o700))
	west := func() []byte { // with another token each time
		t.Helper()
		content, err := r.ClusterKubeconfig(t.Context(), "west")
		must.Succeed(t, err)
		return content
	}
	// With this lease duration a busy machine alone makes nobody lapse.
	flags := []string{"--kubeconfig-folder=" + files.path, "--lease-duration=10s", soonGone}
	replicas := []*lab.Replica{r.start("f1", flags...), r.start("f2", flags...)}
	r.settle()
	must.Succeed(t, r.RemoveCluster(t.Context(), "west"))
	defer func() { // other tests expect the Secret
		if err := r.AddCluster(t.Context(), "west", "west"); err != nil {
			t.Error(err)
		}
	}()
	r.heldBy("west/", "")

	must.Succeed(t, files.put(map[string][]byte{"west.yaml": west()}))
	r.settle()
	r.createAts(10, 0)
	r.eventually("Ats of a cluster whose kubeconfig is a file are DONE", func() error { return r.unfinished() })
	// Each looks at the folder at times of its own. One that hasn't seen this file has no credentials to replace.
	r.eventually("all replicas know the cluster", func() error { return r.unfit("west", 0) })
	before := r.holders()

	must.Succeed(t, files.put(map[string][]byte{"west.yaml": west()}))
	r.eventually("the credentials are replaced by those of the new file", func() error {
		return r.logged(replicas, "cluster's credentials replaced", len(replicas))
	})
	must.Succeed(t, files.put(map[string][]byte{"west.yaml": []byte("current-context: " + canary),
		"north": []byte("clusters: [" + canary)}))
	r.eventually("the mistake in the file is told", func() error { return r.hasEvent("west", "BadKubeconfig") })
	r.eventually("the file is rejected by each replica, by name", func() error {
		for _, replica := range replicas {
			m, err := replica.Metrics(t.Context())
			if err != nil {
				return err
			}
			if n, _ := m.Count("tenure_cluster_kubeconfig_rejected", map[string]string{"cluster": "west"}); n != 1 {
				return fmt.Errorf("%s has %d series", replica.Name, n)
			}
		}
		return nil
	})
	named := 0
	for _, e := range r.events() {
		if e.Regarding.Name == "west" && strings.Contains(e.Note, filepath.Join(files.path, "west.yaml")) {
			named++
		}
	}
	if named == 0 {
		t.Errorf("no event names the file: %v", r.events())
	}
	r.eventually("tenure status says what is wrong with files", func() error {
		snapshot, err := console.Gatherer{Home: r.Planes.Cluster(lab.Home).RESTConfig(),
			Namespace: lab.Namespace}.Snapshot(t.Context())
		said := map[keyspace.ClusterName]string{}
		for _, c := range snapshot.Clusters {
			said[c.Cluster] = c.Reason
		}
		if err != nil || said["west"] != "BadKubeconfig" || said["north"] != "BadKubeconfig" {
			return fmt.Errorf("it says %v (%v)", said, err)
		}
		return nil
	})
	r.createAts(10, 0)
	r.eventually("the cluster is served on while its file is broken", func() error { return r.unfinished() })

	must.Succeed(t, os.Rename(files.path, files.path+".away"))
	r.eventually("it is reported that the folder is gone", func() error {
		return r.logged(replicas, "a problem in --kubeconfig-folder", len(replicas))
	})
	r.createAts(10, 0)
	r.eventually("the cluster is served on while the folder is gone", func() error { return r.unfinished() })
	must.Succeed(t, os.Rename(files.path+".away", files.path))
	must.Succeed(t, files.put(map[string][]byte{"west.yaml": west()}))
	r.eventually("the mended file is taken", func() error {
		return r.logged(replicas, "cluster's credentials replaced", 2*len(replicas))
	})
	must.Succeed(t, r.AddCluster(t.Context(), "west", "west"))
	r.eventually("a Secret of the same name goes before the file", func() error {
		return r.logged(replicas, "cluster's credentials replaced", 3*len(replicas))
	})
	must.Succeed(t, r.RemoveCluster(t.Context(), "west"))
	r.eventually("the file takes the place of the deleted Secret", func() error {
		return r.logged(replicas, "cluster's credentials replaced", 4*len(replicas))
	})
	r.createAts(10, 0)
	r.eventually("the cluster is served on by its file", func() error { return r.unfinished() })
	if m := moved(before, r.holders()); len(m) > 0 {
		t.Errorf("shards moved: %v", m)
	}

	must.Succeed(t, os.Remove(filepath.Join(files.path, "west.yaml")))
	r.heldBy("west/", "")
	r.createAts(10, 0, "east")
	r.eventually("east is served on", func() error { return r.unfinished("east") })
	lapsed(t, replicas...)
}
