package gen

import (
	"strings"
	"testing"
)

func TestAKindIsRefusedThatTablesCannotShow(t *testing.T) {
	kind := func(field map[string]any) map[string]any {
		part := map[string]any{"type": "object", "description": "all of it", "properties": map[string]any{"size": field}}
		properties := map[string]any{"spec": part, "status": part}
		return map[string]any{"spec": map[string]any{"versions": []any{
			map[string]any{"schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": properties}}},
		}}}
	}
	for name, c := range map[string]struct {
		field map[string]any
		want  string
	}{
		"what is known":      {map[string]any{"type": "integer", "description": "how big", "minimum": 1}, ""},
		"no description":     {map[string]any{"type": "integer"}, "spec.size has no description"},
		"an unknown keyword": {map[string]any{"description": "how big", "multipleOf": 3}, "multipleOf"},
		"a rule that is mute": {map[string]any{"description": "how big",
			"x-kubernetes-validations": []any{map[string]any{"rule": "self > 1"}}}, "no message"},
		"a rule of list items": {map[string]any{"description": "sizes",
			"items": map[string]any{"x-kubernetes-validations": []any{map[string]any{"rule": "self > 1"}}}}, "no message"},
	} {
		var page strings.Builder
		err := writeKind(&page, kind(c.field))
		switch {
		case c.want == "" && (err != nil || !strings.Contains(page.String(),
			"| `spec.size` | integer |  | at least 1 | how big |")):
			t.Errorf("%s: %v\n%s", name, err, page.String())
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
