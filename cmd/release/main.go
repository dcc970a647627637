// Command release makes what is published of a version: binaries, a container image for each platform in one archive,
// manifests, a chart, bills of materials and checksums. It needs no container daemon and no network but for Go's
// modules.
//
//	make release VERSION=v1.2.3
//
// The same commit gives the same bytes with the same version of Go, which the bills of materials name: binaries are
// built with -trimpath, and every time in an archive or image is that of the commit.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var r release
	flag.StringVar(&r.Version, "version", "", "version to release, such as v1.2.3")
	flag.StringVar(&r.Image, "image", "tenure", "name that the image will have in its registry")
	flag.StringVar(&r.To, "to", "out/release", "folder to write to; what is in it is replaced")
	kubectl := flag.String("kubectl", "bin/controlplane kubectl", "command that renders the manifests")
	flag.Parse()
	r.Kubectl = strings.Fields(*kubectl)
	if err := r.make(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// platforms are those that binaries and images are made for.
var platforms = []string{"amd64", "arm64"}

// semver is what a version has to look like.
var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// release is one version, and where its files go.
type release struct {
	Version, Image, To string
	Kubectl            []string

	commit string
	time   time.Time // of the commit
}

func (r *release) make(ctx context.Context) error {
	if !semver.MatchString(r.Version) {
		return fmt.Errorf("version %q: want one like v1.2.3 or v1.2.3-rc.1", r.Version)
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(r.To), os.MkdirAll(r.To, 0o755)); err != nil {
		return err
	}
	binaries := map[string]string{}
	for _, arch := range platforms {
		step("binary for linux/%s", arch)
		binary, err := r.build(ctx, arch)
		if err != nil {
			return err
		}
		binaries[arch] = binary
		if err := r.archive(arch, binary); err != nil {
			return err
		}
		if err := r.bill(arch, binary); err != nil {
			return err
		}
	}
	step("image")
	if err := r.image(binaries); err != nil {
		return err
	}
	for _, binary := range binaries {
		if err := os.Remove(binary); err != nil {
			return err
		}
	}
	step("manifests")
	if err := r.manifests(ctx); err != nil {
		return err
	}
	step("chart")
	if err := r.chart(); err != nil {
		return err
	}
	return r.checksums()
}

func step(format string, args ...any) { fmt.Printf("release: "+format+"\n", args...) }

// readCommit reads what is released. It refuses local changes, since they are part of no commit.
func (r *release) readCommit(ctx context.Context) error {
	if changed, err := output(ctx, "git", "status", "--porcelain"); err != nil {
		return err
	} else if changed != "" {
		return fmt.Errorf("there are changes that aren't committed: commit or stash them\n%s", changed)
	}
	text, err := output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the time of commit %s: %w", commit, err)
	}
	r.commit, r.time = commit, time.Unix(at, 0).UTC()
	return nil
}

// build makes the binary for a platform, and returns its path.
func (r *release) build(ctx context.Context, arch string) (string, error) {
	path, err := filepath.Abs(filepath.Join(r.To, "tenure-"+arch))
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags=-s -w -X main.version="+r.Version, "-o", path, "./cmd/tenure")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("building for linux/%s: %w", arch, err)
	}
	return path, nil
}

// install are the manifests that are published, by the folder of config/ that each is made of.
var install = map[string]string{
	"default":            "home.yaml",
	"remote":             "remote.yaml",
	"workload":           "workload.yaml",
	"replication/home":   "home-replication.yaml",
	"replication/target": "target-replication.yaml",
}

// manifests renders what is installed, with the image of this version.
func (r *release) manifests(ctx context.Context) error {
	for folder, name := range install {
		text, err := output(ctx, append(slices.Clone(r.Kubectl), "kustomize", filepath.Join("config", folder))...)
		if err != nil {
			return err
		}
		if text, err = withImage(text, r.Image+":"+r.Version); err != nil {
			return fmt.Errorf("config/%s: %w", folder, err)
		}
		if err := os.WriteFile(filepath.Join(r.To, name), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ours matches where a manifest names an image of Tenure, in any registry and version.
var ours = regexp.MustCompile(`(?m)^(\s*(?:- )?image: )(?:\S+/)?tenure(?::\S+)?$`)

// withImage puts the image of the release into a manifest, or into the chart's values. It refuses those values, and a
// manifest with a Deployment, if they have none of our images, since that would install another version.
func withImage(manifest, image string) (string, error) {
	values := !strings.Contains(manifest, "kind: ")
	if (values || strings.Contains(manifest, "kind: Deployment")) && !ours.MatchString(manifest) {
		return "", errors.New("it has no image of Tenure to replace")
	}
	return ours.ReplaceAllString(manifest, "${1}"+image), nil
}

// checksums writes the checksum of every file, in the form that sha256sum -c reads.
func (r *release) checksums() error {
	files, err := os.ReadDir(r.To)
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, file := range files {
		sum, size, err := digest(filepath.Join(r.To, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%x  %s\n", sum, file.Name())
		fmt.Printf("%8.1f MB  %s\n", float64(size)/1e6, file.Name())
	}
	return os.WriteFile(filepath.Join(r.To, "SHA256SUMS"), []byte(all.String()), 0o644)
}

func digest(path string) (sum []byte, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return h.Sum(nil), size, err
}

// output returns what a command prints.
func output(ctx context.Context, args ...string) (string, error) {
	var errs strings.Builder
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}
