package report

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/tenure-dev/tenure/test/must"
)

//go:embed schema.json
var schemaText []byte

func loadSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.CompileString("schema.json", string(schemaText))
	must.Succeed(t, err)
	return s
}

func document(t *testing.T, r *Report) any {
	t.Helper()
	data, err := json.Marshal(r)
	must.Succeed(t, err)
	var doc any
	must.Succeed(t, json.Unmarshal(data, &doc))
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
			if err := root.Validate(document(t, r)); err != nil {
				t.Errorf("%#v", err)
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
	for name := range root.Properties["results"].Ref.Properties {
		if _, ok := results[name]; !ok {
			t.Errorf("results.%s is in the schema and not in a report", name)
		}
	}
}

// Other programs rely on these names.
func TestTheNamesThatOthersReadAreThere(t *testing.T) {
	doc := document(t, full(t)).(map[string]any)
	for _, name := range []string{"schema", "scenario", "valid", "reasons", "config", "environment", "results",
		"references", "ratios"} {
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

func TestTheSchemaRefusesWhatIsNoReport(t *testing.T) {
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
		if root.Validate(doc) == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
