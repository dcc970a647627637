package onboard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// apiDiffers returns an error if the cluster serves another API of Ats than that of the manifests. It reads the
// published schema, which every authenticated user may.
func apiDiffers(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("asking for the kinds: %w", err)
	}
	version := cnatv1alpha1.GroupVersion
	if _, err := kinds.ServerResourcesForGroupVersionWithContext(ctx, version.String()); apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster doesn't serve %s: tenure cluster add installs it", version)
	} else if err != nil {
		return fmt.Errorf("asking for the kinds of %s: %w", version, err)
	}
	raw, err := schemaOfAts(ctx, kinds)
	if err != nil {
		return err
	}
	return schemaDiffers(raw, objects)
}

// schemaOfAts reads the published schema of Ats.
func schemaOfAts(ctx context.Context, kinds *discovery.DiscoveryClient) ([]byte, error) {
	version := cnatv1alpha1.GroupVersion
	raw, err := kinds.RESTClient().Get().AbsPath("/openapi/v3/apis", version.Group, version.Version).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", version, err)
	}
	return raw, nil
}

// schemaDiffers compares the published schema of Ats with that of the CustomResourceDefinition.
func schemaDiffers(raw []byte, objects []*unstructured.Unstructured) error {
	var published struct {
		Paths      map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &published); err != nil {
		return fmt.Errorf("the published schema can't be read: %w", err)
	}
	for _, o := range objects {
		if o.GetKind() != kindCRD {
			continue
		}
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil || len(versions) != 1 {
			return fmt.Errorf("CustomResourceDefinition %s has %d versions, this program compares one",
				o.GetName(), len(versions))
		}
		want, err := publishes(versions[0].(map[string]any))
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", o.GetName(), err)
		}
		var got map[string]any
		for name, schema := range published.Components.Schemas {
			if strings.HasSuffix(name, "."+kind) {
				got = schema
			}
		}
		differs := missing("", normalized(got), normalized(want))
		isStatus := func(path string) bool { return strings.HasSuffix(path, "/"+plural+"/{name}/status") }
		if differs == "" && !slices.ContainsFunc(slices.Collect(maps.Keys(published.Paths)), isStatus) {
			differs = "its subresource status, which isn't there"
		}
		if differs != "" {
			return fmt.Errorf("the cluster's %s differs from this program's at %s: tenure cluster add updates it, if this "+
				"program isn't the older one", kind, strings.ReplaceAll(differs, ".properties.", "."))
		}
	}
	return nil
}

// publishes returns what an API server publishes of a version of a CustomResourceDefinition: the schemas of spec and
// status, the rules of the whole object, and the fields that a watch can select by. The rest of the schema is the API
// server's own.
func publishes(version map[string]any) (map[string]any, error) {
	schema, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
	if err != nil {
		return nil, err
	}
	parts, _, err := unstructured.NestedMap(schema, "properties")
	if err != nil {
		return nil, err
	}
	fields, _, err := unstructured.NestedSlice(version, "selectableFields")
	if err != nil {
		return nil, err
	}
	selectable := make([]any, len(fields))
	for i, field := range fields {
		path, _, _ := unstructured.NestedString(field.(map[string]any), "jsonPath")
		selectable[i] = map[string]any{"fieldPath": strings.TrimPrefix(path, ".")}
	}
	return map[string]any{
		"properties":                     map[string]any{"spec": parts["spec"], "status": parts["status"]},
		"x-kubernetes-validations":       schema["x-kubernetes-validations"],
		"x-kubernetes-selectable-fields": selectable,
	}, nil
}

// normalized returns a schema with all numbers of one type and without descriptions.
func normalized(schema any) any {
	switch schema := schema.(type) {
	case map[string]any:
		clean := map[string]any{}
		for key, value := range schema {
			if _, text := value.(string); key == "description" && text {
				continue
			}
			clean[key] = normalized(value)
		}
		return clean
	case []any:
		clean := make([]any, len(schema))
		for i := range schema {
			clean[i] = normalized(schema[i])
		}
		return clean
	case int64:
		return float64(schema)
	}
	return schema
}
