package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// entry is a file in an archive. Its content is text, or what is in the file at path.
type entry struct {
	name, path string
	mode       int64
	text       []byte
}

// archive packs the binary for a platform with what belongs to it.
func (r *release) archive(arch, binary string) error {
	path := filepath.Join(r.To, fmt.Sprintf("tenure_%s_linux_%s.tar.gz", r.Version, arch))
	return r.create(path, func(to io.Writer) error {
		z, err := gzip.NewWriterLevel(to, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(z, r.time, entry{name: "tenure", path: binary, mode: 0o755},
			entry{name: "LICENSE", path: "LICENSE", mode: 0o644},
			entry{name: "README.md", path: "README.md", mode: 0o644}), z.Close())
	})
}

// chart packs config/chart with the version and the image of the release, as helm package would.
func (r *release) chart() error {
	const folder = "config/chart"
	entries, err := filesBelow(folder)
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(r.Version, "v")
	for i := range entries {
		e := &entries[i]
		text, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		switch e.name {
		case "Chart.yaml":
			if !versions.Match(text) {
				return fmt.Errorf("%s/%s has no line version followed by appVersion", folder, e.name)
			}
			text = versions.ReplaceAll(text, []byte("version: "+number+"\nappVersion: "+r.Version))
		case "values.yaml":
			values, err := withImage(string(text), r.Image+":"+r.Version)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", folder, e.name, err)
			}
			text = []byte(values)
		}
		e.name, e.text = "tenure/"+e.name, text
	}
	return r.create(filepath.Join(r.To, "tenure-"+number+".tgz"), func(to io.Writer) error {
		z := gzip.NewWriter(to)
		return errors.Join(writeTar(z, r.time, entries...), z.Close())
	})
}

// versions matches the chart's own version and that of what it installs.
var versions = regexp.MustCompile(`(?m)^version: .*\nappVersion: .*$`)

func (r *release) create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// writeTar writes files with nothing in their headers that differs from machine to machine.
func writeTar(to io.Writer, at time.Time, entries ...entry) error {
	w := tar.NewWriter(to)
	for _, e := range entries {
		text := e.text
		if text == nil {
			var err error
			if text, err = os.ReadFile(e.path); err != nil {
				return err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(text)), Mode: e.mode, ModTime: at,
			Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("packing %s: %w", e.name, err)
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("packing %s: %w", e.name, err)
		}
	}
	return w.Close()
}

// user is the user and group that the image runs as: numbers, so that a kubelet can check runAsNonRoot.
const user = "65532:65532"

// image makes one archive, in the layout of the Open Container Initiative, with an image for each platform: the static
// binary, and the authorities that it trusts where a kubeconfig names none.
func (r *release) image(binaries map[string]string) error {
	index := mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex)
	for _, arch := range platforms {
		image, err := r.imageFor(arch, binaries[arch])
		if err != nil {
			return fmt.Errorf("making the image for linux/%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	folder, err := os.MkdirTemp(r.To, ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	named := map[string]string{"org.opencontainers.image.ref.name": r.Image + ":" + r.Version}
	if err := path.AppendIndex(index, layout.WithAnnotations(named)); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	entries, err := filesBelow(folder)
	if err != nil {
		return err
	}
	return r.create(filepath.Join(r.To, fmt.Sprintf("tenure_%s_image.tar", r.Version)), func(to io.Writer) error {
		return writeTar(to, r.time, entries...)
	})
}

func (r *release) imageFor(arch, binary string) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		from, to := io.Pipe()
		go func() {
			to.CloseWithError(writeTar(to, r.time, entry{name: "tenure", path: binary, mode: 0o755},
				entry{name: "etc/ssl/certs/ca-certificates.crt", text: authorities(), mode: 0o644}))
		}()
		return from, nil
	}, tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		Entrypoint: []string{"/tenure"}, User: user, ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "tenure", "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version": r.Version, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.created": r.time.Format(time.RFC3339),
		},
	}
	return mutate.ConfigFile(image, config)
}

// authorities returns Mozilla's certificate authorities as a file of PEM. It leaves out those that are trusted under
// conditions, since such a file can't say these.
func authorities() []byte {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&file, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return file.Bytes()
}

// filesBelow lists the files of a folder in order.
func filesBelow(folder string) ([]entry, error) {
	var all []entry
	err := filepath.WalkDir(folder, func(path string, file os.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		all = append(all, entry{name: filepath.ToSlash(name), path: path, mode: 0o644})
		return err
	})
	return all, err
}
