// Package config holds the manifests of this folder that `tenure cluster add` applies to workload clusters, so that the
// binary and `kubectl apply -k` install the same.
//
// [Render] reads the kustomization files and follows their resources. It understands what they use, which is lists of
// files and folders, and patches that leave an object out. It fails on everything else: an object that is rendered
// otherwise than by kubectl would be worse than none. A test in test/deploy compares both.
package config

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed crd/*.yaml workload/*.yaml replication/source/*.yaml replication/target/*.yaml
var files embed.FS

// Folders that can be rendered.
const (
	// Workload is what each workload cluster needs.
	Workload = "workload"
	// ReplicationTarget is what a cluster of copies needs; it includes Workload.
	ReplicationTarget = "replication/target"
	// ReplicationSource is what a cluster of replicated Deployments needs beside Workload.
	ReplicationSource = "replication/source"
)

// kustomization is what is understood of a kustomization file.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
	Patches    []struct {
		Patch string `json:"patch"`
	} `json:"patches,omitempty"`
}

// Render returns the objects of a folder, as kubectl kustomize does, in the order in which the files list them.
func Render(folder string) ([]*unstructured.Unstructured, error) { return render(files, folder) }

func render(from fs.FS, folder string) ([]*unstructured.Unstructured, error) {
	file := path.Join(folder, "kustomization.yaml")
	text, err := fs.ReadFile(from, file)
	if err != nil {
		return nil, fmt.Errorf("%s isn't built into this program: %w", file, err)
	}
	var k kustomization
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		return nil, fmt.Errorf("%s: only resources, and patches that delete an object, are understood: %w", file, err)
	}
	if k.APIVersion != "kustomize.config.k8s.io/v1beta1" || k.Kind != "Kustomization" {
		return nil, fmt.Errorf("%s: is %s %s, only Kustomizations of kustomize.config.k8s.io/v1beta1 are understood", file,
			k.APIVersion, k.Kind)
	}
	var all []*unstructured.Unstructured
	for _, name := range k.Resources {
		var some []*unstructured.Unstructured
		if at := path.Join(folder, name); strings.HasSuffix(name, ".yaml") {
			some, err = read(from, at)
		} else {
			some, err = render(from, at)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	for _, p := range k.Patches {
		if all, err = without(all, p.Patch); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}

// read reads the objects of a file.
func read(from fs.FS, file string) (all []*unstructured.Unstructured, err error) {
	f, err := from.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s isn't built into this program: %w", file, err)
	}
	defer f.Close()
	for documents := utilyaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(object.Object) > 0 { // a document of comments is empty
			all = append(all, object)
		}
	}
}

// without carries out a patch that leaves one object out.
func without(all []*unstructured.Unstructured, patch string) ([]*unstructured.Unstructured, error) {
	var p struct {
		Patch      string `json:"$patch"`
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace,omitempty"`
		} `json:"metadata"`
	}
	if err := yaml.UnmarshalStrict([]byte(patch), &p); err != nil {
		return nil, fmt.Errorf("only patches that delete an object are understood: %w", err)
	}
	if p.Patch != "delete" {
		return nil, fmt.Errorf("only patches that delete an object are understood, not $patch: %q", p.Patch)
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool {
		return o.GetAPIVersion() == p.APIVersion && o.GetKind() == p.Kind && o.GetName() == p.Metadata.Name &&
			o.GetNamespace() == p.Metadata.Namespace
	})
	if len(rest) != len(all)-1 {
		return nil, fmt.Errorf("the patch deletes %s %s: %d objects are that, want 1", p.Kind, p.Metadata.Name,
			len(all)-len(rest))
	}
	return rest, nil
}
