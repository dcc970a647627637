package config

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWhatIsNotUnderstoodIsRefusedAndNamed(t *testing.T) {
	const (
		head   = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n"
		remove = "patches:\n- patch: |\n    $patch: delete\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: " +
			"%}\n"
	)
	for name, c := range map[string]struct{ kustomization, want string }{
		"a name prefix":       {head + "namePrefix: x-\n", "namePrefix"},
		"a patch with target": {head + "patches:\n- target: {kind: ConfigMap}\n  patch: x\n", "target"},
		"another patch": {head + "patches:\n- patch: '{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": " +
			"{\"name\": \"a\"}}'\n", "$patch"},
		"a change":         {head + "patches:\n- patch: '{\"kind\": \"ConfigMap\", \"data\": {}}'\n", "data"},
		"what isn't there": {head + strings.Replace(remove, "%", "b", 1), "ConfigMap b: 0 objects are that, want 1"},
		"a component": {strings.Replace(head, "Kustomization", "Component", 1),
			"is kustomize.config.k8s.io/v1beta1 Component"},
		"no file": {strings.Replace(head, "a.yaml", "b.yaml", 1), "f/b.yaml isn't built into this program"},
		"no folder": {strings.Replace(head, "a.yaml", "../b", 1),
			"b/kustomization.yaml isn't built into this program"},
	} {
		from := fstest.MapFS{
			"f/kustomization.yaml": {Data: []byte(c.kustomization)},
			"f/a.yaml":             {Data: []byte("# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")},
		}
		if all, err := render(from, "f"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, all, err, c.want)
		}
	}
	from := fstest.MapFS{
		"f/kustomization.yaml": {Data: []byte(head + strings.Replace(remove, "%", "a", 1))},
		"f/a.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: " +
			"v1\nkind: Secret\nmetadata: {name: a}\n")},
	}
	if all, err := render(from, "f"); err != nil || len(all) != 1 || all[0].GetKind() != "Secret" {
		t.Errorf("%v, %v", all, err)
	}
}

// An At that no client can read would keep all Ats of its cluster from everybody, and one that takes for ever to be
// read all clusters'.
func TestTheQuantitiesOfAnAtCanBeRead(t *testing.T) {
	for _, kind := range []string{"requests", "limits"} {
		pattern, found, _ := unstructured.NestedString(schemaOfAts(t), "properties", "spec", "properties", "resources",
			"properties", kind, "additionalProperties", "pattern")
		if !found {
			t.Fatalf("%s have no pattern", kind)
		}
		accepts := regexp.MustCompile(pattern)
		for _, text := range []string{"1", "100m", "0.5", ".5", "5.", "+1.5Gi", "-1", "1E", "2Ei",
			"1e3", "1E3", "1e-3", "1e+3", "1e99", "1e-99"} {
			if !accepts.MatchString(text) {
				t.Errorf("%s: %s is refused", kind, text)
			}
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			quantity.Cmp(resource.MustParse("10m")) // takes a moment
		}
		for _, text := range []string{"1e1.5", "1e.5", "1E1.", "1e999999999", "1e-999999999", "1e+2147483647",
			"1e99999999999999999999", "much", ""} {
			if accepts.MatchString(text) {
				t.Errorf("%s: %q is accepted", kind, text)
			}
		}
	}
}

// API servers before 1.36 don't hold a number against its format (kubernetes/kubernetes#136091), and take 1.000000001
// for an integer unless a rule looks at it. One that doesn't fit would keep all Ats of its cluster from everybody.
func TestTheNumbersOfAnAtFitTheirTypes(t *testing.T) {
	seen := 0
	var check func(path string, schema map[string]any)
	check = func(path string, schema map[string]any) {
		if schema["format"] == "int32" {
			seen++
			least, _ := schema["minimum"].(int64)
			most, bounded := schema["maximum"].(int64)
			if _, above := schema["minimum"]; !above || least < math.MinInt32 || !bounded || most > math.MaxInt32 {
				t.Errorf("%s: from %v to %v, which an int32 doesn't hold", path, schema["minimum"], schema["maximum"])
			}
		}
		// Only replicas write the status.
		if strings.HasPrefix(path, "at.spec.") && schema["type"] == "integer" && schema["x-kubernetes-validations"] == nil {
			t.Errorf("%s: 1.000000001 is taken for an integer, which no client can read", path)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, of := range properties {
			check(path+"."+name, of.(map[string]any))
		}
	}
	check("at", schemaOfAts(t))
	if seen == 0 {
		t.Fatal("no number of the CRD of Ats has a format")
	}
}

// Kubernetes 1.32 (cel-go 0.22) takes an optional value for one of any size, and refuses a type whose rules compare
// two.
func TestNoRuleComparesOptionalValues(t *testing.T) {
	optional, seen := regexp.MustCompile(`(?:\.\?\w+|\[\?[^\]]+\])(\.orValue\(|\.hasValue\()?`), 0
	var check func(any)
	check = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			rule, _ := v["rule"].(string)
			for _, m := range optional.FindAllStringSubmatch(rule, -1) {
				if seen++; m[1] == "" {
					t.Errorf("%s is compared as it is: %s", m[0], rule)
				}
			}
			for _, of := range v {
				check(of)
			}
		case []any:
			for _, of := range v {
				check(of)
			}
		}
	}
	check(definition(t, "crd/cnat.programming-kubernetes.info_ats.yaml"))
	check(definition(t, "crd/tenure.dev_shards.yaml"))
	if seen == 0 {
		t.Fatal("no rule has an optional value")
	}
}

// schemaOfAts returns the schema of the only version of Ats.
func schemaOfAts(t *testing.T) map[string]any {
	t.Helper()
	versions, _, _ := unstructured.NestedSlice(definition(t, "crd/cnat.programming-kubernetes.info_ats.yaml"), "spec",
		"versions")
	if len(versions) != 1 {
		t.Fatalf("%d versions", len(versions))
	}
	schema, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
	return schema
}

// definition returns the only object of a file.
func definition(t *testing.T, file string) map[string]any {
	t.Helper()
	objects, err := read(files, file)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%s: %d objects, %v", file, len(objects), err)
	}
	return objects[0].Object
}
