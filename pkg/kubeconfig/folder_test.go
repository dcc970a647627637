package kubeconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// folderRig is a folder of files, and what a watcher was told since it was asked last.
type folderRig struct {
	t      *testing.T
	path   string
	folder *Folder
	told   []string
	log    []string
}

func newFolderRig(t *testing.T, files map[string]string) *folderRig {
	t.Helper()
	r := &folderRig{t: t, path: filepath.Join(t.TempDir(), "clusters")}
	must.Succeed(t, os.Mkdir(r.path, 0o700))
	for name, text := range files {
		r.write(name, text)
	}
	r.open()
	return r
}

func (r *folderRig) open() {
	r.t.Helper()
	log := funcr.New(func(_, args string) { r.log = append(r.log, args) }, funcr.Options{})
	folder, err := OpenFolder(r.path, "ns", log)
	must.Succeed(r.t, err)
	r.folder = folder
	r.folder.watch(r)
}

func (r *folderRig) OnAdd(o any, _ bool)     { r.hear("add", o) }
func (r *folderRig) OnUpdate(was, now any)   { r.hear("update from "+textOf(was)+" to", now) }
func (r *folderRig) OnDelete(o any)          { r.hear("delete", o) }
func (r *folderRig) hear(what string, o any) { r.told = append(r.told, what+" "+textOf(o)) }

func textOf(o any) string {
	s := o.(*corev1.Secret)
	if s.Namespace != "ns" || s.Labels[Label] != "true" {
		return fmt.Sprintf("no cluster's Secret: %v", s)
	}
	return s.Name + "=" + string(s.Data[Key]) + s.Annotations[problemAnnotation]
}

func (r *folderRig) write(name, text string) {
	r.t.Helper()
	must.Succeed(r.t, os.WriteFile(filepath.Join(r.path, name), []byte(text), 0o600))
}

// looks has the folder looked into so often; afterwards the watcher must have been told this and no more.
func (r *folderRig) looks(times int, want ...string) {
	r.t.Helper()
	for range times {
		r.folder.look()
	}
	expect.Equal(r.t, "told", want, r.told)
	r.told = nil
}

// logged reports whether a line with all these words was logged, and how often.
func (r *folderRig) logged(words ...string) (n int) {
	for _, line := range r.log {
		found := 1
		for _, w := range words {
			if !strings.Contains(line, w) {
				found = 0
			}
		}
		n += found
	}
	return n
}

func TestFilesOfAFolderAreClusters(t *testing.T) {
	r := newFolderRig(t, map[string]string{"west.yaml": "1", ".hidden": "x", "..data": "x"})
	must.Succeed(r.t, os.Mkdir(filepath.Join(r.path, "lost+found"), 0o700))
	r.looks(1, "add west=1")
	r.write("east", "2")
	r.write("north.kubeconfig", "3")
	r.looks(1)
	r.folder.look()
	if len(r.told) != 2 {
		t.Errorf("told %q, want east and north added", r.told)
	}
	r.told = nil
	r.write("west.yaml", "4")
	r.looks(2, "update from west=1 to west=4")
	must.Succeed(r.t, os.Remove(filepath.Join(r.path, "east")))
	r.looks(2, "delete east=2")
	r.looks(2)
	if len(r.log) > 0 {
		t.Errorf("logged %q", r.log)
	}
}

func TestAFileThatIsBeingWrittenIsNotReadUntilItIsComplete(t *testing.T) {
	r := newFolderRig(t, map[string]string{"west": "whole"})
	r.looks(1, "add west=whole")
	for _, part := range []string{"", "n", "ne", "new"} {
		r.write("west", part)
		r.looks(1)
	}
	must.Succeed(r.t, os.Remove(filepath.Join(r.path, "west"))) // as editors do
	r.looks(1)
	r.write("west", "newer")
	r.looks(1)
	r.looks(1, "update from west=whole to west=newer")
}

// A kubelet changes a mounted Secret by one rename of a symbolic link.
func TestAMountedSecretIsAFolder(t *testing.T) {
	r := newFolderRig(t, nil)
	project := func(version, text string) {
		must.Succeed(r.t, os.Mkdir(filepath.Join(r.path, version), 0o700))
		r.write(version+"/west.yaml", text)
		must.Succeed(r.t, os.Symlink(version, filepath.Join(r.path, "..data_tmp")))
		must.Succeed(r.t, os.Rename(filepath.Join(r.path, "..data_tmp"), filepath.Join(r.path, "..data")))
	}
	project("..2026_1", "1")
	must.Succeed(r.t, os.Symlink("..data/west.yaml", filepath.Join(r.path, "west.yaml")))
	r.looks(2, "add west=1")
	project("..2026_2", "2")
	must.Succeed(r.t, os.RemoveAll(filepath.Join(r.path, "..2026_1")))
	r.looks(2, "update from west=1 to west=2")
}

func TestAFolderThatVanishesChangesNothingAndIsReported(t *testing.T) {
	r := newFolderRig(t, map[string]string{"west": "1", "Not a name": "1"})
	r.looks(1, "add west=1")
	must.Succeed(r.t, os.Rename(r.path, r.path+".away"))
	r.looks(5)
	if n := r.logged(r.path, "the clusters stay as they are"); n != 1 {
		t.Errorf("reported %d times, want once: %q", n, r.log)
	}
	if n := testutil.ToFloat64(folderProblems); n != 2 || r.logged("is over") != 0 {
		t.Errorf("%v problems in the metric, want those of the folder and of the file: %q", n, r.log)
	}
	must.Succeed(r.t, os.Rename(r.path+".away", r.path))
	r.looks(5)
	if n := testutil.ToFloat64(folderProblems); n != 1 || r.logged("is over") != 1 {
		t.Errorf("%v problems in the metric, log: %q", n, r.log)
	}
}

func TestAFolderThatIsEmptyAllAtOnceChangesNothingAndIsReported(t *testing.T) {
	r := newFolderRig(t, map[string]string{"west": "1", "east": "1"})
	r.told = nil
	for _, name := range []string{"west", "east"} {
		must.Succeed(r.t, os.Remove(filepath.Join(r.path, name)))
	}
	r.looks(3)
	if r.logged("files are gone at once") != 1 || testutil.ToFloat64(folderProblems) != 1 {
		t.Errorf("it is reported by %v", r.log)
	}
	r.write("README.md", "no cluster")
	r.looks(3)
	if r.logged("files are gone at once") != 1 || r.logged("README.md") != 1 || testutil.ToFloat64(folderProblems) != 2 {
		t.Errorf("with a file that gives no cluster it is reported by %v", r.log)
	}
	r.write("west", "1")
	r.looks(3, "delete east=1")
	must.Succeed(r.t, os.Remove(filepath.Join(r.path, "west")))
	r.looks(3, "delete west=1")
}

func TestAFolderThatIsNotThereIsNotOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if _, err := OpenFolder(path, "ns", logr.Discard()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
}

func TestFilesThatGiveNoClusterAreReportedWithTheRule(t *testing.T) {
	r := newFolderRig(t, map[string]string{"West.yaml": "1", "west.bak": "2", "a.yaml": "3",
		"a.kubeconfig": "4", "home": "5", "b.kubeconfig.yaml": "6"})
	r.looks(3, "add a=4")
	for path, rule := range map[string]string{
		"West.yaml": "lower case", "b.kubeconfig.yaml": "dots",
		"west.bak": "dots", "a.yaml": "a.kubeconfig", "home": "rename the file",
	} {
		if n := r.logged(filepath.Join(r.path, path), rule); n != 1 {
			t.Errorf("%s was reported %d times with %q, want once: %q", path, n, rule, r.log)
		}
	}
	if n := testutil.ToFloat64(folderProblems); n != 5 {
		t.Errorf("%v problems in the metric, want 5", n)
	}
}

// What can't be read is a cluster with a broken kubeconfig: package clusterhealth reports it, and the fence keeps what
// worked.
func TestAFileThatCannotBeReadIsRefusedByItsName(t *testing.T) {
	r := newFolderRig(t, map[string]string{"empty": "", "large": strings.Repeat("x", maxText+7), "broken": "clusters: ["})
	must.Succeed(r.t, syscall.Mkfifo(filepath.Join(r.path, "pipe"), 0o600))
	must.Succeed(r.t, os.Symlink("/dev/zero", filepath.Join(r.path, "endless")))
	must.Succeed(r.t, os.Symlink("nowhere", filepath.Join(r.path, "dangling")))
	r.folder.look()
	r.folder.look()
	for name, want := range map[string]string{
		"empty": "is empty", "large": "more than", "broken": "isn't YAML", "pipe": "isn't a regular file",
		"endless":  "isn't a regular file",
		"dangling": "no such file",
	} {
		_, err := OfSecret(r.folder.Secret(name), Policy{})
		refused := (*Refused)(nil)
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), filepath.Join(r.path, name)) {
			t.Errorf("%s: %v, want an error that names the file and says %q", name, err, want)
		}
	}
}

func TestFilesAreInspectedLikeSecrets(t *testing.T) {
	text := write(t, everything(t))
	r := newFolderRig(t, map[string]string{"west": string(text)})
	_, fromFile := OfSecret(r.folder.Secret("west"), Policy{})
	_, fromSecret := OfSecret(&corev1.Secret{Data: map[string][]byte{Key: text}}, Policy{})
	if fromSecret == nil || fromFile == nil || fromFile.Error() != "file "+filepath.Join(r.path, "west")+": "+
		fromSecret.Error() {
		t.Errorf("the file is refused with %v, the Secret with %v", fromFile, fromSecret)
	}
}

// As for kubectl, whatever the folder is that the replica runs in.
func TestAFileNamesOthersBesideIt(t *testing.T) {
	certificate, key := certs.Pair(t)
	r := newFolderRig(t, map[string]string{
		"west": string(naming(t, ".keys/ca", ".keys/token", "./.keys/ca", "../clusters/.keys/key")),
	})
	must.Succeed(r.t, os.Mkdir(filepath.Join(r.path, ".keys"), 0o700))
	r.write(".keys/ca", string(certificate))
	r.write(".keys/key", string(key))
	r.write(".keys/token", "secret")
	t.Chdir(filepath.Dir(r.path))
	r.path = filepath.Base(r.path)
	r.open()
	access, err := OfSecret(r.folder.Secret("west"), Policy{Files: true})
	must.Succeed(t, err)
	got, err := access.REST()
	must.Succeed(t, err)
	folder, err := filepath.Abs(filepath.Join(r.path, ".keys"))
	must.Succeed(r.t, err)
	want := []string{filepath.Join(folder, "ca"), filepath.Join(folder, "token"), filepath.Join(folder, "ca"),
		filepath.Join(folder, "key")}
	if diff := cmp.Diff(want, []string{got.CAFile, got.BearerTokenFile, got.CertFile, got.KeyFile}); diff != "" ||
		got.BearerToken != "secret" {
		t.Errorf("token %q, files (-want +got):\n%s", got.BearerToken, diff)
	}
}

func TestAProgramIsBesideTheFileThatNamesIt(t *testing.T) {
	const text = `{current-context: c, clusters: [{name: c, cluster: {server: "https://h"}}],` +
		` contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {exec: {command: %q,` +
		` apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}]}`
	for command, want := range map[string]string{
		".bin/login": "/clusters/.bin/login", "./login": "/clusters/login", "../login": "/login",
		"/bin/login": "/bin/login", "login": "login", // which is looked for in $PATH
	} {
		r := newFolderRig(t, map[string]string{"west": fmt.Sprintf(text, command)})
		access, err := OfSecret(r.folder.Secret("west"), Policy{Exec: true})
		must.Succeed(t, err)
		got, err := access.REST()
		must.Succeed(t, err)
		parent := filepath.Dir(r.path)
		if beside := got.ExecProvider.Command; strings.TrimPrefix(beside, parent) != want {
			t.Errorf("%s: %s, want %s in %s", command, beside, want, parent)
		}
	}
}

func TestASecretGoesBeforeAFileOfItsName(t *testing.T) {
	r := newFolderRig(t, map[string]string{"west": "file", "other": "file", "third": "file"})
	cluster := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "west", Labels: map[string]string{Label: "true"}},
		Data:       map[string][]byte{Key: []byte("secret")},
	}
	unrelated := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"},
		Data: map[string][]byte{Key: []byte("secret")}}
	c := &joinedClient{Client: fake.NewClientBuilder().WithObjects(cluster, unrelated).Build(), folder: r.folder}
	expect := func(name, want string) {
		t.Helper()
		got := &corev1.Secret{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, got)
		if want == "" && !apierrors.IsNotFound(err) || want != "" && (err != nil || string(got.Data[Key]) != want) {
			t.Errorf("%s is %q (%v), want %q", name, got.Data[Key], err, want)
		}
	}
	held := cluster.DeepCopy()
	held.Name, held.ResourceVersion, held.Finalizers = "third", "", []string{"example.com/held"}
	must.Succeed(t, c.Create(t.Context(), held))
	lonely := held.DeepCopy()
	lonely.Name, lonely.ResourceVersion = "lonely", ""
	must.Succeed(t, c.Create(t.Context(), lonely))
	expect("west", "secret")
	expect("other", "file")
	expect("third", "secret")
	must.Succeed(t, c.Delete(t.Context(), held))
	must.Succeed(t, c.Delete(t.Context(), lonely))
	expect("third", "file")
	expect("lonely", "secret")
	must.Succeed(r.t, c.Delete(t.Context(), cluster))
	expect("west", "file")
	must.Succeed(r.t, os.Remove(filepath.Join(r.path, "west")))
	must.Succeed(r.t, os.Remove(filepath.Join(r.path, "other")))
	r.folder.look()
	r.folder.look()
	expect("west", "")
	expect("other", "")
	err := c.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "other"}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
