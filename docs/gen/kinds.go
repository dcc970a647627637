// Package gen writes the part of docs/reference.md about the API, from the CustomResourceDefinitions. A test of
// cmd/tenure writes the page.
//
// What it doesn't know, it refuses: a field without a description, a keyword of a schema that no table shows.
package gen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/config"
)

// API writes the tables of all kinds.
func API(page io.Writer) error {
	definitions, err := config.Render("crd")
	if err != nil {
		return err
	}
	fmt.Fprint(page, "\n## The API\n\nBold fields are required. What a status says is written by the replicas only.\n")
	for _, d := range definitions {
		if err := writeKind(page, d.Object); err != nil {
			return fmt.Errorf("%s: %w", d.GetName(), err)
		}
	}
	return nil
}

// schema is what there is to say about a field. Decoding is strict: a keyword that isn't here is an error.
type schema struct {
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Description          string             `json:"description"`
	Default              json.RawMessage    `json:"default"`
	Enum                 []string           `json:"enum"`
	Minimum              *json.Number       `json:"minimum"`
	Maximum              *json.Number       `json:"maximum"`
	MinLength            *int               `json:"minLength"`
	MaxLength            *int               `json:"maxLength"`
	MinItems             *int               `json:"minItems"`
	MaxItems             *int               `json:"maxItems"`
	MaxProperties        *int               `json:"maxProperties"`
	Pattern              string             `json:"pattern"`
	Required             []string           `json:"required"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Rules                []struct {
		Message string `json:"message"`
		Rule    string `json:"rule"`
		Always  bool   `json:"optionalOldSelf"` // also without an old value, which it has as an optional
	} `json:"x-kubernetes-validations"`
	IntOrString bool     `json:"x-kubernetes-int-or-string"`
	AnyOf       []any    `json:"anyOf"` // of integer or string
	ListType    string   `json:"x-kubernetes-list-type"`
	ListKeys    []string `json:"x-kubernetes-list-map-keys"`
}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name       string `json:"name"`
			Selectable []struct {
				Path string `json:"jsonPath"`
			} `json:"selectableFields"`
			Schema struct {
				Object json.RawMessage `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

func writeKind(page io.Writer, object map[string]any) error {
	encoded, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var d definition
	if err := json.Unmarshal(encoded, &d); err != nil {
		return err
	}
	for _, v := range d.Spec.Versions {
		var all schema
		strict := json.NewDecoder(bytes.NewReader(v.Schema.Object))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&all); err != nil {
			return fmt.Errorf("version %s: %w", v.Name, err)
		}
		names := d.Spec.Names
		fmt.Fprintf(page, "\n### %s\n\n%s\n\n`apiVersion: %s/%s`, `kind: %s`. %s; kubectl knows it as `%s`",
			names.Kind, all.Description,
			d.Spec.Group, v.Name, names.Kind, d.Spec.Scope,
			strings.Join(append([]string{names.Plural}, names.ShortNames...), "`, `"))
		for i, s := range v.Selectable {
			fmt.Fprint(page, map[bool]string{true: ". Field selectors: ", false: ", "}[i == 0], "`",
				strings.TrimPrefix(s.Path, "."), "`")
		}
		fmt.Fprint(page, ".\n\n| field | type | default | allowed | meaning |\n|---|---|---|---|---|\n")
		for _, part := range []string{"spec", "status"} {
			if err := writeField(page, part, all.Properties[part], slices.Contains(all.Required, part)); err != nil {
				return err
			}
		}
		if len(all.Rules) > 0 {
			fmt.Fprint(page, "\nOf the whole object:\n\n")
		}
		for _, rule := range all.Rules {
			fmt.Fprintf(page, "- %s\n", rule.Message)
		}
	}
	return nil
}

// writeField writes the row of a field, and those of the fields within.
func writeField(page io.Writer, path string, s *schema, required bool) error {
	if s == nil {
		return fmt.Errorf("%s has no schema", path)
	}
	if s.Description == "" {
		return fmt.Errorf("%s has no description", path)
	}
	allowed, err := s.allowed()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	shown := "`" + path + "`"
	if required {
		shown = "**" + shown + "**"
	}
	value := ""
	if s.Default != nil {
		value = "`" + string(s.Default) + "`"
	}
	Row(page, shown, s.kind(), value, strings.Join(allowed, "; "), s.Description)
	within, prefix := s, path+"."
	if s.Items != nil {
		within, prefix = s.Items, path+"[]."
	}
	for _, name := range slices.Sorted(maps.Keys(within.Properties)) {
		if err := writeField(page, prefix+name, within.Properties[name], slices.Contains(within.Required, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) kind() string {
	switch {
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind()
	case s.IntOrString:
		return "quantity"
	case s.Format != "":
		return s.Format
	}
	return s.Type
}

// allowed lists what a value has to be, that of a list's items too.
func (s *schema) allowed() (all []string, err error) {
	if len(s.Enum) > 0 {
		all = append(all, "`"+strings.Join(s.Enum, "`, `")+"`")
	}
	all = append(all, bounds(s.Minimum, s.Maximum, "")...)
	all = append(all, bounds(s.MinLength, s.MaxLength, " characters")...)
	all = append(all, bounds(s.MinItems, s.MaxItems, " items")...)
	all = append(all, bounds(nil, s.MaxProperties, " entries")...)
	if s.Pattern != "" && !s.IntOrString {
		all = append(all, "`"+s.Pattern+"`")
	}
	for _, rule := range s.Rules {
		if rule.Message == "" {
			return nil, errors.New("a rule has no message: " + rule.Rule)
		}
		all = append(all, rule.Message)
	}
	if s.Items != nil {
		of, err := s.Items.allowed()
		if err != nil {
			return nil, err
		}
		for _, one := range of {
			all = append(all, "each: "+one)
		}
	}
	return all, nil
}

func bounds[N any](least, most *N, of string) []string {
	switch {
	case least != nil && most != nil:
		return []string{fmt.Sprintf("%v to %v%s", *least, *most, of)}
	case least != nil:
		return []string{fmt.Sprintf("at least %v%s", *least, of)}
	case most != nil:
		return []string{fmt.Sprintf("at most %v%s", *most, of)}
	}
	return nil
}

// Row writes a row of a table; only its last cell is prose.
func Row(page io.Writer, cells ...string) {
	last := len(cells) - 1
	cells[last] = strings.ReplaceAll(cells[last], "*", `\*`)
	for _, cell := range cells {
		fmt.Fprint(page, "| ", strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`), " ")
	}
	fmt.Fprintln(page, "|")
}
