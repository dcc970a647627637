package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"
)

// variables stand for what Grafana puts into an expression.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$namespace", "n", "$job", "j")

// strict reads a dashboard back by Grafana's schema, where nothing unknown is allowed.
func strict(content []byte) error {
	plugins.RegisterDefaultPlugins()
	d := dashboard.Dashboard{}
	if err := d.UnmarshalJSONStrict(content); err != nil {
		return fmt.Errorf("the dashboard breaks Grafana's schema: %w", err)
	}
	if err := d.Validate(); err != nil {
		return fmt.Errorf("the dashboard isn't valid: %w", err)
	}
	return nil
}

// dashboardExpressions finds every PromQL expression of a dashboard, by the title of its panel.
func dashboardExpressions(content []byte) (map[string][]string, error) {
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
			Panels  []json.RawMessage
		}
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, p := range d.Panels {
		if len(p.Panels) > 0 {
			return nil, fmt.Errorf("row %s holds panels: this check doesn't look there", p.Title)
		}
		for _, t := range p.Targets {
			found[p.Title] = append(found[p.Title], t.Expr)
		}
	}
	return found, nil
}

// ruleExpressions finds those of the alerts, by alert.
func ruleExpressions(path string) (map[string][]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found := map[string][]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			found[r.Alert] = append(found[r.Alert], r.Expr)
		}
	}
	return found, nil
}

// metricNames parses every expression and lists the metrics of replicas that they use, a line each. What isn't PromQL
// is an error.
func metricNames(dashboardJSON []byte, rules string) ([]byte, error) {
	panels, err := dashboardExpressions(dashboardJSON)
	if err != nil {
		return nil, err
	}
	alerts, err := ruleExpressions(rules)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	var errs []error
	for _, group := range []map[string][]string{panels, alerts} {
		for where, expressions := range group {
			for _, text := range expressions {
				if err := collect(text, names); err != nil {
					errs = append(errs, fmt.Errorf("%s: %s: %w", where, text, err))
				}
			}
		}
	}
	return []byte(strings.Join(slices.Sorted(maps.Keys(names)), "\n") + "\n"), errors.Join(errs...)
}

// prometheusOwn is a metric that Prometheus makes itself: whether a scrape of a target succeeded.
const prometheusOwn = "up"

func collect(text string, names map[string]bool) error {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(text))
	if err != nil {
		return err
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok && v.Name != prometheusOwn {
			names[v.Name] = true
		}
		return nil
	})
	return nil
}
