package config

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
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
		pattern, found, _ := unstructured.NestedString(schemaOf(t, ats), "properties", "spec", "properties", "resources",
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

// API servers hold times against the format date-time, which lets more pass than Go reads. An object with such a time
// would keep all objects of its kind in its cluster from everybody.
func TestTheTimesThatTheCRDsTakeCanBeRead(t *testing.T) {
	var texts []string
	for _, day := range []string{"2026-12-01", "2024-02-29", "2026-02-30", "2026-13-01", "0000-01-01", "26-12-01"} {
		for _, clock := range []string{"T10:00:00", "t10:00:00", " 10:00:00", "T24:00:00", "T10:60:00", "T10:00:60"} {
			for _, fraction := range []string{"", ".000000", ",000000", "x000000", ".", ".0", "." + strings.Repeat("9", 40)} {
				for _, zone := range []string{"", "Z", "z", "ZT", "ZT.000000Z", "Z\n", "+00:00", "-23:59", "+01:60", "+01:75",
					"+24:00", "+25:00", "+99:99", "+0100"} {
					texts = append(texts, day+clock+fraction+zone)
				}
			}
		}
	}
	seen := 0
	var check func(path string, schema map[string]any)
	check = func(path string, schema map[string]any) {
		if schema["format"] == "date-time" {
			seen++
			pattern, _ := schema["pattern"].(string)
			accepts, taken, unread := regexp.MustCompile(pattern), 0, 0
			for _, text := range texts {
				var into json.Unmarshaler = &metav1.MicroTime{}
				if strings.HasSuffix(path, ".lastTransitionTime") {
					into = &metav1.Time{}
				}
				err := into.UnmarshalJSON([]byte(strconv.Quote(text)))
				switch formed := strfmt.Default.Validates("date-time", text); {
				case formed && accepts.MatchString(text):
					if taken++; err != nil {
						t.Errorf("%s: %q is accepted: %v", path, text, err)
					}
				case formed && err != nil:
					unread++
				}
			}
			if taken == 0 || unread == 0 {
				t.Errorf("%s: %d times are accepted, and %d are refused that can't be read", path, taken, unread)
			}
		}
		for name, of := range children(schema) {
			check(path+"."+name, of)
		}
	}
	check("at", schemaOf(t, ats))
	check("shard", schemaOf(t, shards))
	if seen != 6 {
		t.Errorf("%d times, want 6", seen)
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
		for name, of := range children(schema) {
			check(path+"."+name, of)
		}
	}
	check("at", schemaOf(t, ats))
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

// children are the schemas below one: of its fields, by name, and of its items.
func children(schema map[string]any) map[string]map[string]any {
	all := map[string]map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, of := range properties {
		all[name] = of.(map[string]any)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		all["[]"] = items
	}
	return all
}

const ats, shards = "crd/cnat.programming-kubernetes.info_ats.yaml", "crd/tenure.dev_shards.yaml"

// schemaOf returns the schema of the only version that a CRD has.
func schemaOf(t *testing.T, crd string) map[string]any {
	t.Helper()
	versions, _, _ := unstructured.NestedSlice(definition(t, crd), "spec", "versions")
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
