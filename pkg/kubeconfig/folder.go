package kubeconfig

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/pkg/text"
)

// lookEvery is the time between two looks into a folder. Looking is simpler than file notifications: it works the
// same on every volume, network volumes included, and for every way to write a file. A look at a thousand files
// takes milliseconds.
const lookEvery = 2 * time.Second

// suffixes are the suffixes of file names that aren't part of the cluster's name.
var suffixes = []string{".yaml", ".kubeconfig"}

var folderProblems = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "tenure_kubeconfig_folder_problems",
	Help: "How many files of --kubeconfig-folder give no cluster, because of their name or kind; and one more while the " +
		"folder itself can't be read. The log names them.",
})

func init() { metrics.Registry.MustRegister(folderProblems) }

// Folder is a folder whose regular files are clusters: NAME, NAME.yaml or NAME.kubeconfig is the kubeconfig of the
// cluster NAME. Hidden files and subfolders are ignored. Symbolic links are followed, so a mounted Secret or
// ConfigMap of Kubernetes can be such a folder. See [Folder.Join]. It is safe for concurrent use.
type Folder struct {
	path, namespace string
	log             logr.Logger

	// Once OpenFolder has returned, only look uses these.
	seen map[string]file   // by cluster, at the last look
	said map[string]string // by path: the problem that was logged

	// mu guards all below. It is held while watchers are called: they only enqueue.
	mu       sync.Mutex
	taken    map[string]file // by cluster: what readers see
	watchers []toolscache.ResourceEventHandler
}

// HomeName is the home cluster's name where that is one of the workload clusters. No other cluster can have it.
const HomeName = "home"

// file is what a look found for a cluster.
type file struct {
	path    string
	text    string
	problem string // why it can't be read, "" if it can
}

// OpenFolder reads a folder for the first time. Its files appear as Secrets of the namespace. An error names the
// folder.
func OpenFolder(path, namespace string, log logr.Logger) (*Folder, error) {
	f := &Folder{
		path: filepath.Clean(path), namespace: namespace, log: log.WithValues("folder", path),
		said: map[string]string{}, taken: map[string]file{},
	}
	found, wrong, err := f.scan()
	if err != nil {
		return nil, err
	}
	f.seen = found
	f.say(wrong)
	f.take(found)
	return f, nil
}

// Start looks into the folder until the context ends.
func (f *Folder) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
			f.look()
		}
	}
}

// NeedLeaderElection returns false, since every replica looks.
func (f *Folder) NeedLeaderElection() bool { return false }

// errEmptied is a folder that has lost all its clusters between two looks: more likely its volume isn't mounted any
// more.
var errEmptied = errors.New("all clusters' files are gone at once, as if its volume weren't mounted; " +
	"to remove clusters, remove one file after another")

// look takes over what two looks in a row have found alike, so that a file isn't read while it is being written. It
// changes nothing if the folder can't be read, or has no cluster left after it held several.
func (f *Folder) look() {
	found, wrong, err := f.scan()
	switch {
	case err != nil:
		wrong = maps.Clone(f.said) // nothing is known of its files now
	case len(found) == 0 && len(f.seen) > 1: // a file that gives no cluster, such as a README, doesn't count
		err = errEmptied
	}
	if err != nil {
		wrong[f.path] = err.Error() + "; the clusters stay as they are"
		f.say(wrong)
		return
	}
	f.say(wrong)
	steady := map[string]file{}
	f.mu.Lock()
	for name, now := range found {
		if now == f.seen[name] {
			steady[name] = now
		} else if was, known := f.taken[name]; known {
			steady[name] = was
		}
	}
	for name := range f.seen {
		if was, known := f.taken[name]; known && found[name] == (file{}) {
			steady[name] = was
		}
	}
	f.mu.Unlock()
	f.seen = found
	f.take(steady)
}

// scan reads the folder: the files by cluster, and what is wrong with others by path.
func (f *Folder) scan() (found map[string]file, wrong map[string]string, err error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the folder of kubeconfigs %s: %w", f.path, cause(err))
	}
	found, wrong = map[string]file{}, map[string]string{}
	for _, entry := range entries { // sorted by name
		path := filepath.Join(f.path, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		content, err := read(path, maxText)
		gone := errors.Is(err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0 // since the folder was read
		if gone || errors.Is(err, errFolder) {
			continue
		}
		name := entry.Name()
		for _, suffix := range suffixes {
			if short, ends := strings.CutSuffix(name, suffix); ends {
				name = short
				break
			}
		}
		// The rule of tenure cluster add, but without dots: west.bak must not become another cluster.
		if name == HomeName {
			wrong[path] = fmt.Sprintf("%q is what replicas call the home cluster: rename the file", name)
			continue
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			wrong[path] = fmt.Sprintf("%q can't be a cluster's name: %s: rename the file, or hide it by a dot in front",
				text.Line(name, 80), strings.Join(problems, "; "))
			continue
		}
		if first, taken := found[name]; taken {
			wrong[path] = fmt.Sprintf("cluster %s is already what %s says: remove the one or the other", name, first.path)
			continue
		}
		now := file{path: path, text: string(content)}
		if err != nil {
			now = file{path: path, problem: "it can't be read: " + text.Line(err.Error(), 200)}
		}
		found[name] = now
	}
	return found, wrong, nil
}

var errFolder = errors.New("it is a folder")

// read reads a regular file, and no more than one byte above most: enough to refuse what is too large. It never waits
// for a writer, as opening a pipe would.
func read(path string, most int64) ([]byte, error) {
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer in.Close()
	info, err := in.Stat()
	switch {
	case err != nil:
		return nil, cause(err)
	case info.IsDir():
		return nil, errFolder
	case !info.Mode().IsRegular():
		return nil, errors.New("it isn't a regular file")
	}
	content, err := io.ReadAll(io.LimitReader(in, most+1))
	return content, cause(err)
}

// cause returns an error without its path, which the caller reports itself.
func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// say logs each problem once.
func (f *Folder) say(wrong map[string]string) {
	for path, what := range wrong {
		if f.said[path] != what {
			f.log.Info("a problem in --kubeconfig-folder", "path", path, "problem", what)
		}
	}
	for path := range f.said {
		if wrong[path] == "" {
			f.log.Info("a problem in --kubeconfig-folder is over", "path", path)
		}
	}
	f.said = wrong
	folderProblems.Set(float64(len(wrong)))
}

// take makes these files what readers see, and tells watchers what changed.
func (f *Folder) take(files map[string]file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.taken
	f.taken = files
	for _, w := range f.watchers {
		for name, now := range files {
			switch before, known := was[name]; {
			case !known:
				w.OnAdd(f.secret(name, now), false)
			case before != now:
				w.OnUpdate(f.secret(name, before), f.secret(name, now))
			}
		}
		for name, before := range was {
			if _, still := files[name]; !still {
				w.OnDelete(f.secret(name, before))
			}
		}
	}
}

// watch adds a watcher. It is called for all present files, and for changes from now on.
func (f *Folder) watch(w toolscache.ResourceEventHandler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers = append(f.watchers, w)
	for name, now := range f.taken {
		w.OnAdd(f.secret(name, now), false)
	}
}

// Secret returns the file of a cluster in the form of a new Secret; nil if there is none.
func (f *Folder) Secret(name string) *corev1.Secret {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, found := f.taken[name]; found {
		return f.secret(name, now)
	}
	return nil
}

const (
	// fileUID precedes the path in the UID of a Secret that stands for a file. API servers generate UIDs themselves,
	// so no real Secret has such a UID.
	fileUID = "file:"
	// problemAnnotation says why a file can't be read.
	problemAnnotation = "tenure.dev/file-problem"
)

// secret is a file in the form in which replicas read clusters.
func (f *Folder) secret(name string, from file) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.namespace, Name: name, UID: types.UID(fileUID + from.path), Labels: map[string]string{Label: "true"},
		ResourceVersion: fmt.Sprintf("%.8x", sha256.Sum256([]byte(from.text+from.problem))),
	}}
	if from.problem != "" {
		s.Annotations = map[string]string{problemAnnotation: from.problem}
		return s
	}
	s.Data = map[string][]byte{Key: []byte(from.text)}
	return s
}

// FileOf returns the path of the file that a Secret with this UID stands for, see [Folder]; ok is false for a Secret of
// the home cluster.
func FileOf(secret types.UID) (path string, ok bool) {
	if path, ok = strings.CutPrefix(string(secret), fileUID); !ok {
		return "", false
	}
	return path, true
}
