package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entry is a file in an archive.
type entry struct {
	name, path string
	mode       int64
}

// archive packs the binary for a platform with what belongs to it.
func (r *release) archive(arch, binary string) error {
	path := filepath.Join(r.To, fmt.Sprintf("tenure_%s_linux_%s.tar.gz", r.Version, arch))
	return r.create(path, func(to io.Writer) error {
		z, err := gzip.NewWriterLevel(to, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(z, r.time, entry{"tenure", binary, 0o755}, entry{"LICENSE", "LICENSE", 0o644},
			entry{"README.md", "README.md", 0o644}), z.Close())
	})
}

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
		text, err := os.ReadFile(e.path)
		if err != nil {
			return err
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

// user is who the image runs as: a number, so that a kubelet can check runAsNonRoot.
const user = "65532:65532"

// image makes one archive, in the layout of the Open Container Initiative, with an image for each platform: the static
// binary and nothing else.
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
		go func() { to.CloseWithError(writeTar(to, r.time, entry{"tenure", binary, 0o755})) }()
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

// filesBelow lists the files of a folder in order.
func filesBelow(folder string) ([]entry, error) {
	var all []entry
	err := filepath.WalkDir(folder, func(path string, file os.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		all = append(all, entry{filepath.ToSlash(name), path, 0o644})
		return err
	})
	return all, err
}
