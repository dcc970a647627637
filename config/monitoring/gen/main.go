// Command gen writes config/monitoring/dashboard.json, the Grafana dashboard, and metrics.txt, the names of all metrics
// that dashboard and alerts use. It has a module of its own because of what it needs to check its work: Grafana's
// schema and Prometheus' parser.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write(".."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// write writes both files into a folder that has rules.yaml.
func write(folder string) error {
	content, err := encode()
	if err != nil {
		return err
	}
	names, err := metricNames(content, filepath.Join(folder, "rules.yaml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "dashboard.json"), content, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "metrics.txt"), names, 0o644)
}
