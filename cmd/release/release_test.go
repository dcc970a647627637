package main

import (
	"bytes"
	"crypto/x509"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// packed packs a small file as if it were a release's binary. What is in a binary is read from this test's own.
func packed(t *testing.T, commitTime time.Time) *release {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	const binary = "LICENSE"
	r := &release{Version: "v1.2.3", Image: "registry.example/tenure", To: t.TempDir(), commit: "abc", time: commitTime}
	binaries := map[string]string{}
	for _, arch := range platforms {
		binaries[arch] = binary
		must(t, r.archive(arch, binary))
		must(t, r.bill(arch, program))
	}
	must(t, r.image(binaries))
	must(t, r.chart())
	must(t, r.checksums())
	return r
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	t.Chdir("../..")
	at := time.Unix(1_700_000_000, 0).UTC()
	sums := map[string][]byte{}
	for name, commit := range map[string]time.Time{"one": at, "again": at, "another commit": at.Add(time.Hour)} {
		r := packed(t, commit)
		text, err := os.ReadFile(filepath.Join(r.To, "SHA256SUMS"))
		must(t, err)
		sums[name] = text
	}
	if !bytes.Equal(sums["one"], sums["again"]) {
		t.Errorf("two builds of one commit differ:\n%s\n%s", sums["one"], sums["again"])
	}
	if bytes.Equal(sums["one"], sums["another commit"]) {
		t.Error("another commit's files are the same: the time isn't in them")
	}
	if n := strings.Count(string(sums["one"]), "\n"); n != 2*len(platforms)+2 {
		t.Errorf("%d files: %s", n, sums["one"])
	}
}

// packedImage is the image's archive, and the list of its entries.
func packedImage(t *testing.T) (v1.ImageIndex, *v1.IndexManifest) {
	t.Helper()
	r := packed(t, time.Unix(1_700_000_000, 0).UTC())
	folder := t.TempDir()
	untar(t, filepath.Join(r.To, "tenure_v1.2.3_image.tar"), folder)
	index, err := layout.ImageIndexFromPath(folder)
	must(t, err)
	return index, entriesOf(t, index)
}

func entriesOf(t *testing.T, index v1.ImageIndex) *v1.IndexManifest {
	t.Helper()
	list, err := index.IndexManifest()
	must(t, err)
	return list
}

func TestTheImageHasABinaryForEachPlatform(t *testing.T) {
	t.Chdir("../..")
	index, top := packedImage(t)
	name := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
	if name != "registry.example/tenure:v1.2.3" {
		t.Errorf("the image is named %q", name)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	must(t, err)
	for i, m := range entriesOf(t, inner).Manifests {
		if m.Platform.Architecture != platforms[i] {
			t.Errorf("image %d is for %v", i, m.Platform)
		}
		image, err := inner.Image(m.Digest)
		must(t, err)
		config, err := image.ConfigFile()
		must(t, err)
		if config.Config.User != user || config.Config.Entrypoint[0] != "/tenure" || config.Architecture != platforms[i] {
			t.Errorf("the image for %s: %+v", platforms[i], config)
		}
		layers, err := image.Layers()
		must(t, err)
		files, err := layers[0].Uncompressed()
		must(t, err)
		path, within := filepath.Join(t.TempDir(), "layer.tar"), t.TempDir()
		text, err := io.ReadAll(files)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		must(t, err)
		untar(t, path, within)
		authorities, err := os.ReadFile(filepath.Join(within, "etc/ssl/certs/ca-certificates.crt")) // where Go looks for them
		if err != nil || !x509.NewCertPool().AppendCertsFromPEM(authorities) {
			t.Errorf("the image for %s knows no certificate authorities: %v", platforms[i], err)
		}
	}
}

// crane push takes the archive's only entry, and with --index the list of its entries. What it takes has to name
// platforms, by which each node finds its image.
func TestTheWorkflowPublishesAnImageForEachPlatform(t *testing.T) {
	t.Chdir("../..")
	workflow, err := os.ReadFile(".github/workflows/release.yaml")
	must(t, err)
	command := regexp.MustCompile(`(?m)^\s+crane push .*$`).FindString(string(workflow))
	if command == "" {
		t.Fatal("the workflow pushes no image")
	}
	pushed, list := packedImage(t)
	if !strings.Contains(command, "--index") {
		if len(list.Manifests) != 1 {
			t.Fatalf("the archive has %d entries, and crane push wants one, or --index", len(list.Manifests))
		}
		pushed, err = pushed.ImageIndex(list.Manifests[0].Digest)
		must(t, err)
		list = entriesOf(t, pushed)
	}
	for _, m := range list.Manifests {
		if m.Platform == nil || !m.MediaType.IsImage() {
			t.Errorf("%s publishes an entry of type %s for platform %v", strings.TrimSpace(command), m.MediaType, m.Platform)
		}
	}
	if len(list.Manifests) != len(platforms) {
		t.Errorf("%d entries are published, want %d", len(list.Manifests), len(platforms))
	}
}

func TestAReleaseNeedsAVersionThatGoKnows(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3 ", "v1.2.3/x"} {
		if err := (&release{Version: version}).make(t.Context()); err == nil || !strings.Contains(err.Error(), "v1.2.3") {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

func TestOnlyOurImageIsNamedAnew(t *testing.T) {
	text, err := os.ReadFile("../../config/manager/kustomization.yaml")
	must(t, err)
	named := regexp.MustCompile(`newName: (\S+)\n\s+newTag: (\S+)\n`).FindStringSubmatch(string(text))
	if named == nil {
		t.Fatal("config/manager names no image")
	}
	installed := named[1] + ":" + named[2] // what kubectl makes of it
	manifest := "kind: Deployment\n    - image: tenure\n      image: " + installed +
		"\n      image: busybox\n      image: x/tenure-other:v1\n      name: tenure\n"
	want := "kind: Deployment\n    - image: r/t:v1\n      image: r/t:v1\n      image: busybox\n      image: " +
		"x/tenure-other:v1\n      name: tenure\n"
	if got, err := withImage(manifest, "r/t:v1"); got != want || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := withImage("kind: Deployment\n      image: busybox\n", "r/t:v1"); err == nil {
		t.Error("a Deployment without our image is published")
	}
}

func TestTheChartInstallsTheImageOfTheRelease(t *testing.T) {
	t.Chdir("../..")
	r, folder := packed(t, time.Unix(1_700_000_000, 0).UTC()), t.TempDir()
	untar(t, filepath.Join(r.To, "tenure-1.2.3.tgz"), folder)
	changed := map[string][]string{
		"Chart.yaml":  {"version: 1.2.3", "appVersion: v1.2.3"},
		"values.yaml": {"image: registry.example/tenure:v1.2.3"},
	}
	files, err := filesBelow("config/chart")
	must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file.path)
		must(t, err)
		text, err := os.ReadFile(filepath.Join(folder, "tenure", file.name))
		must(t, err)
		var differ []string
		was := strings.Split(string(source), "\n")
		for i, line := range strings.Split(string(text), "\n") {
			if i >= len(was) || line != was[i] {
				differ = append(differ, line)
			}
		}
		if !slices.Equal(differ, changed[file.name]) {
			t.Errorf("%s differs from the source in %q, want %q", file.name, differ, changed[file.name])
		}
	}
	if _, err := withImage("replicas: 3\n", "r/t:v1"); err == nil {
		t.Error("values without our image are published")
	}
}

func untar(t *testing.T, path, to string) {
	t.Helper()
	_, err := output(t.Context(), "tar", "-xf", path, "-C", to)
	must(t, err)
}
