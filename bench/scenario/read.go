package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/bench/scenarios"
)

// DefaultSize is the profile that runs unless another one is set.
const DefaultSize = "small"

// Names lists the scenarios that come with the program.
func Names() []string {
	entries, err := scenarios.Files.ReadDir(".")
	if err != nil {
		panic(err) // an embedded folder can be read
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Read reads a scenario by its name, or from a file if the name ends in .yaml or has a slash, and applies settings of
// the form path=value.
func Read(name string, settings []string) (Scenario, error) {
	var content []byte
	var err error
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".yaml") {
		content, err = os.ReadFile(name)
	} else if content, err = scenarios.Files.ReadFile(path.Clean(name) + ".yaml"); err != nil {
		err = fmt.Errorf("no scenario %q; there are %s", name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("reading a scenario: %w", err)
	}
	s, err := Parse(content, settings)
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s, nil
}

// defaults of what a file may leave out.
func defaults() map[string]any {
	return map[string]any{
		"size": DefaultSize, "rounds": 1, "limit": "60s",
		"fleet": map[string]any{
			"clusters": 1, "replicas": 3, "workers": 16, "shardsPerCluster": 8, "leaseDuration": "5s",
			"storage": "memory", "samples": true,
		},
		"load": map[string]any{"kind": "ats", "due": "now", "clients": 64, "seed": 1},
	}
}

// Parse reads a scenario, picks the profile and applies the settings.
func Parse(content []byte, settings []string) (Scenario, error) {
	given := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &given); err != nil {
		return Scenario{}, err
	}
	tree := defaults()
	merge(tree, given)
	size := DefaultSize
	var errs []error
	rest := make([][2]string, 0, len(settings))
	for _, setting := range settings {
		key, value, found := strings.Cut(setting, "=")
		switch {
		case !found:
			errs = append(errs, fmt.Errorf("setting %q: want path=value", setting))
		case key == "size":
			size = value
		case key == "name":
			errs = append(errs, fmt.Errorf("setting %s: a report is judged by the file of its scenario; copy the file, and "+
				"name the scenario in it", setting))
		default:
			rest = append(rest, [2]string{key, value})
		}
	}
	tree["size"] = size
	sizes, _ := tree["sizes"].(map[string]any)
	profile, ok := sizes[size].(map[string]any)
	if !ok && len(sizes) > 0 {
		errs = append(errs, fmt.Errorf("size: %q is none of %s", size, strings.Join(slices.Sorted(maps.Keys(sizes)), ", ")))
	}
	for _, key := range slices.Sorted(maps.Keys(profile)) {
		if err := set(tree, key, profile[key]); err != nil {
			errs = append(errs, fmt.Errorf("sizes.%s: %w", size, err))
		}
	}
	s, err := decode(tree)
	if err = errors.Join(append(errs, err)...); err != nil {
		return Scenario{}, err
	}
	for _, setting := range rest { // one by one, so that an error names its setting
		var value any
		if err := yaml.Unmarshal([]byte(setting[1]), &value); err != nil {
			return Scenario{}, fmt.Errorf("setting %s=%s: is no YAML value: %w", setting[0], setting[1], err)
		}
		err := set(tree, setting[0], value)
		if err == nil {
			s, err = decode(tree)
		}
		if err != nil {
			return Scenario{}, fmt.Errorf("setting %s=%s: %w", setting[0], setting[1], err)
		}
	}
	return s, s.Validate()
}

func decode(tree map[string]any) (s Scenario, err error) {
	content, err := json.Marshal(tree)
	if err != nil {
		return s, err
	}
	err = yaml.UnmarshalStrict(content, &s)
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
		return s, fmt.Errorf("%s: must be of type %s, not %s", kind.Field, kind.Type, kind.Value)
	}
	if err != nil { // the library says three times what it did
		err = errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "),
			"json: "))
	}
	return s, err
}

// merge lays b over a.
func merge(a, b map[string]any) {
	for key, value := range b {
		below, isMap := value.(map[string]any)
		if under, ok := a[key].(map[string]any); ok && isMap {
			merge(under, below)
			continue
		}
		a[key] = value
	}
}

// set puts a value at a dotted path.
func set(tree map[string]any, dotted string, value any) error {
	parts := strings.Split(full(dotted), ".")
	for _, part := range parts[:len(parts)-1] {
		below, ok := tree[part].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: there is no such field", dotted)
		}
		tree = below
	}
	tree[parts[len(parts)-1]] = value
	return nil
}

// full expands the name of a field of fleet or load that stands alone.
func full(name string) string {
	if strings.Contains(name, ".") || slices.Contains(fields(reflect.TypeFor[Scenario]()), name) {
		return name
	}
	for prefix, t := range map[string]reflect.Type{"fleet.": reflect.TypeFor[Fleet](), "load.": reflect.TypeFor[Load]()} {
		if slices.Contains(fields(t), name) {
			return prefix + name
		}
	}
	return name
}

// fields lists the names of a struct's fields in a file.
func fields(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
