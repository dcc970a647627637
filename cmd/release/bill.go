package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// bill writes the bill of materials of a binary: the modules that the linker has noted in it, with their checksums as
// go.sum has them.
func (r *release) bill(arch, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading what is in %s: %w", binary, err)
	}
	purl := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	main := cyclonedx.Component{
		BOMRef: purl(info.Main.Path, r.Version), Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path,
		Version: r.Version, PackageURL: purl(info.Main.Path, r.Version),
	}
	components := []cyclonedx.Component{{
		BOMRef: purl("std", info.GoVersion), Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: purl("std", info.GoVersion),
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, cyclonedx.Component{
			BOMRef: purl(m.Path, m.Version), Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			PackageURL: purl(m.Path, m.Version), Properties: &[]cyclonedx.Property{{Name: "go.sum", Value: m.Sum}},
		})
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return r.create(filepath.Join(r.To, fmt.Sprintf("tenure_%s_linux_%s.cdx.json", r.Version, arch)),
		func(to io.Writer) error {
			return cyclonedx.NewBOMEncoder(to, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
		})
}
