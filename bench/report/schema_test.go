package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

//go:embed schema.json
var schemaText []byte

// schema is the part of JSON schema that schema.json uses.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Enum       []any             `json:"enum"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	// Additional is false, or the schema of what isn't named.
	Additional  json.RawMessage   `json:"additionalProperties"`
	Definitions map[string]schema `json:"definitions"`
}

func loadSchema(t *testing.T) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal(schemaText, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// violations lists where a document isn't as a schema says.
func violations(root, s schema, at string, doc any) []string {
	if s.Ref != "" {
		return violations(root, root.Definitions[strings.TrimPrefix(s.Ref, "#/definitions/")], at, doc)
	}
	var out []string
	if s.Type != nil && !hasType(s.Type, doc) {
		return []string{fmt.Sprintf("%s: %T is not a %v", at, doc, s.Type)}
	}
	if s.Enum != nil && !slices.Contains(s.Enum, doc) {
		out = append(out, fmt.Sprintf("%s: %v is none of %v", at, doc, s.Enum))
	}
	switch doc := doc.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := doc[name]; !ok {
				out = append(out, at+"."+name+": missing")
			}
		}
		for name, value := range doc {
			below := at + "." + name
			if p, ok := s.Properties[name]; ok {
				out = append(out, violations(root, p, below, value)...)
			} else if string(s.Additional) == "false" {
				out = append(out, below+": not in the schema")
			} else if s.Additional != nil {
				var p schema
				if err := json.Unmarshal(s.Additional, &p); err != nil {
					return append(out, err.Error())
				}
				out = append(out, violations(root, p, below, value)...)
			}
		}
	case []any:
		for i, value := range doc {
			if s.Items != nil {
				out = append(out, violations(root, *s.Items, fmt.Sprintf("%s[%d]", at, i), value)...)
			}
		}
	}
	return out
}

func hasType(want any, doc any) bool {
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return hasType(one, doc) })
	}
	switch doc := doc.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case float64:
		return want == "number" || want == "integer" && doc == float64(int64(doc))
	case []any:
		return want == "array"
	}
	return want == "object"
}

func document(t *testing.T, r *Report) any {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// fill sets every field to something, so that no omitempty hides one.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Interface || v.Type().Elem().Kind() == reflect.Map {
			return // a scenario's sizes
		}
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.SetMapIndex(reflect.ValueOf("floor").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int64:
		v.SetInt(1e9)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// full is a report with all fields.
func full(t *testing.T) *Report {
	t.Helper()
	r := &Report{}
	fill(reflect.ValueOf(r).Elem())
	r.Schema = Schema
	return r
}

func TestAReportIsAsTheSchemaSays(t *testing.T) {
	root := loadSchema(t)
	for name, r := range map[string]*Report{"every field": full(t), "hardly any": hardly()} {
		t.Run(name, func(t *testing.T) {
			for _, v := range violations(root, root, "", document(t, r)) {
				t.Error(v)
			}
		})
	}
}

func TestTheSchemaKnowsNothingThatReportsDoNotHave(t *testing.T) {
	root := loadSchema(t)
	doc := document(t, full(t)).(map[string]any)
	for name := range root.Properties {
		if _, ok := doc[name]; !ok {
			t.Errorf("%s is in the schema and not in a report", name)
		}
	}
	results := doc["results"].(map[string]any)
	for name := range root.Definitions["results"].Properties {
		if _, ok := results[name]; !ok {
			t.Errorf("results.%s is in the schema and not in a report", name)
		}
	}
}

// The names that other programs were promised.
func TestTheNamesThatOthersReadAreThere(t *testing.T) {
	doc := document(t, full(t)).(map[string]any)
	for _, name := range []string{"schema", "scenario", "valid", "reasons", "config", "environment", "results", "references", "ratios"} {
		if _, ok := doc[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	results := doc["results"].(map[string]any)
	for _, name := range []string{
		"queue_latency_ms", "event_to_reconcile_ms", "converge_ms", "lateness_ms", "handoff_gap_ms", "throughput_per_s",
		"api_writes_per_object", "api_reads_per_object", "conflicts", "watch_bytes_per_replica", "watch_discarded_events",
		"cpu_seconds_per_replica", "rss_mb_per_replica", "objects", "lost", "duplicates", "early",
	} {
		if _, ok := results[name]; !ok {
			t.Errorf("results.%s is missing", name)
		}
	}
	for _, name := range []string{"p50", "p90", "p99", "p999", "max"} {
		if _, ok := results["queue_latency_ms"].(map[string]any)[name]; !ok {
			t.Errorf("queue_latency_ms.%s is missing", name)
		}
	}
}

func TestTheValidatorOfThisTestFindsWhatIsWrong(t *testing.T) {
	root := loadSchema(t)
	for name, change := range map[string]func(map[string]any){
		"another schema":   func(d map[string]any) { d["schema"] = "tenure.dev/bench/v2" },
		"missing":          func(d map[string]any) { delete(d, "valid") },
		"unknown field":    func(d map[string]any) { d["surprise"] = 1.0 },
		"wrong type":       func(d map[string]any) { d["valid"] = "yes" },
		"unknown below":    func(d map[string]any) { d["results"].(map[string]any)["surprise"] = 1.0 },
		"wrong type below": func(d map[string]any) { d["results"].(map[string]any)["lost"] = 1.5 },
	} {
		doc := document(t, full(t)).(map[string]any)
		change(doc)
		if len(violations(root, root, "", doc)) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}
