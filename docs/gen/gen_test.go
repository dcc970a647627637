package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const help = `Does it.

Usage:
  tenure it [flags]

Flags:
      --plain                  without ornament
  -h, --help                   help for it
      --replica name           who it is [$TENURE_REPLICA] (default "box")
  -o, --output format          text or json (default: what fits) (default "text")
      --cluster cluster        where it is (default for most: home)
`

func TestAHelpIsReadFlagByFlag(t *testing.T) {
	got, err := parseFlags(help, "Box")
	if err != nil {
		t.Fatal(err)
	}
	want := []option{
		{name: "plain", byDefault: "false", meaning: "without ornament"},
		{name: "replica", value: "name", byDefault: "the host's name", environment: "TENURE_REPLICA", meaning: "who it is"},
		{name: "output", short: "o", value: "format", byDefault: "text", meaning: "text or json (default: what fits)"},
		{name: "cluster", value: "cluster", meaning: "where it is (default for most: home)"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(option{})); diff != "" {
		t.Errorf("(- want, + got)\n%s", diff)
	}
}

func TestAFlagWithoutADescriptionIsRefused(t *testing.T) {
	for _, line := range []string{"      --bare", "      --bare string   ", "      --bare name      [$TENURE_BARE]",
		`      --bare name      (default "x")`} {
		_, err := parseFlags(help+line+"\n", "")
		if err == nil || !strings.Contains(err.Error(), "--bare") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestAFlagInNoGroupIsRefused(t *testing.T) {
	text := "Runs.\n\nFlags:\n"
	for _, group := range groups {
		for _, name := range group.flags {
			text += "      --" + name + " x   says [$TENURE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "]\n"
		}
	}
	print := func(text string) error {
		return writeCommands(io.Discard, "", func(...string) (string, error) { return text, nil })
	}
	if err := print(text); err != nil {
		t.Fatal(err)
	}
	if err := print(text + "      --odd   is new [$TENURE_ODD]\n"); err == nil || !strings.Contains(err.Error(), "--odd") {
		t.Errorf("%v", err)
	}
	if err := print(strings.Replace(text, "--weight ", "--heft ", 1)); err == nil ||
		!strings.Contains(err.Error(), "--weight") {
		t.Errorf("%v", err)
	}
}

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
