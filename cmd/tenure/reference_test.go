package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/docs/gen"
	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/pkg/telemetry/handoff"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/test/must"
)

var update = flag.Bool("update", false, "write docs/reference.md anew")

const head = `# Reference

<!-- Written by a test of cmd/tenure: run make generate. -->

The [API](#the-api) is that of the CustomResourceDefinitions in [config/crd](../config/crd). The
[commands](#the-commands) are those of the program itself; [install.md](install.md) and [operate.md](operate.md) say how to
use them. The [metrics](#the-metrics) are those that a replica adds to controller-runtime's own.
`

// groups are the flags of the manager, in the order in which a reader needs them. Each flag is in one.
var groups = []struct {
	title string
	flags []string
}{
	{"The fleet", []string{"home-kubeconfig", "namespace", "fleet", "replica", "sharding", "lease-duration",
		"drain-timeout", "weight",
		"shards-per-cluster", "objects-per-shard"}},
	{"Work", []string{"workers", "watch-filtering"}},
	{"Clusters", []string{"cluster-qps", "cluster-burst", "cluster-concurrent-writes", "cluster-removal-grace",
		"kubeconfig-allow", "kubeconfig-servers", "kubeconfig-folder"}},
	{"Ats", []string{"at-requests", "at-limits", "at-active-deadline", "at-security", "at-run-as-user",
		"at-service-account"}},
	{"Deployments", []string{"deployment-source", "create-namespaces", "replication-forbidden-namespaces",
		"replication-scalers"}},
	{"The replica's Pod", []string{"pod", "pod-selector", "termination-log"}},
	{"To look into it", []string{"metrics-bind-address", "metrics-secure", "health-probe-bind-address",
		"pprof-bind-address", "log-level",
		"trace-slow"}},
}

func TestTheReferenceSaysWhatTheProgramHas(t *testing.T) {
	const path = "../../docs/reference.md"
	page := bytes.NewBufferString(head)
	must.Succeed(t, errors.Join(gen.API(page), writeManager(page, newRoot(noEnv, runManager)), writeMetrics(page)))
	if *update {
		must.Succeed(t, os.WriteFile(path, page.Bytes(), 0o644))
		return
	}
	committed, err := os.ReadFile(path)
	must.Succeed(t, err)
	if diff := gocmp.Diff(string(committed), page.String()); diff != "" {
		t.Errorf("docs/reference.md is out of date: run make generate (- committed, + now)\n%s", diff)
	}
}

// writeMetrics writes all metrics that a replica may show.
func writeMetrics(page io.Writer) error {
	all := prometheus.NewRegistry()
	telemetry.New(telemetry.Config{Registerer: all, Exporter: tracetest.NewNoopExporter()})
	status := func() shard.Status { return shard.Status{} }
	all.MustRegister(homeCredentials{}, handoff.NewWatcher(nil), handoff.NewCollector(status),
		metrics.Registry.(prometheus.Collector)) // to which packages add theirs when they are loaded
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		all.Describe(descriptions)
	}()
	rows := map[string][]string{}
	for d := range descriptions {
		// A Desc can be read in no other way.
		parts := describes.FindStringSubmatch(d.String())
		if parts == nil {
			return fmt.Errorf("%s can't be read", d)
		}
		help, err := strconv.Unquote(parts[2])
		if err != nil {
			return fmt.Errorf("%s: its help: %w", d, err)
		}
		if name := parts[1]; strings.HasPrefix(name, "tenure_") {
			rows[name] = []string{"`" + name + "`", strings.ReplaceAll(parts[3], ",", ", "), help}
		}
	}
	used, err := os.ReadFile("../../config/monitoring/metrics.txt") // by alerts and dashboard
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(used)) {
		if strings.HasPrefix(name, "tenure_") && rows[partOfHistogram.ReplaceAllString(name, "")] == nil {
			return fmt.Errorf("%s is used by config/monitoring: register it here, as the program does", name)
		}
	}
	fmt.Fprint(page, "\n## The metrics\n\nA replica that has had nothing to do with a cluster has no "+
		"`tenure_watch_mode`, `tenure_cluster_state`, `tenure_cluster_writes`,\n`tenure_fenced_writes_total`, "+
		"`tenure_unanswered_writes_total` and `tenure_abandoned_reconciles` of it.\nA replica names at most 1,024 of "+
		"its shards.\n\n"+
		"| metric | labels | meaning |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		gen.Row(page, rows[name]...)
	}
	return nil
}

var (
	partOfHistogram = regexp.MustCompile(`_(bucket|sum|count)$`)
	describes       = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{(.*)\}\}$`)
)

// writeManager writes the flags of the manager, group by group, and then all commands.
func writeManager(page io.Writer, root *cobra.Command) error {
	fmt.Fprint(page, "\n## The commands\n\n### tenure\n\nRuns a replica. Each flag can be given as an environment "+
		"variable, too: `--lease-duration` is "+
		"`TENURE_LEASE_DURATION`.\nOne that is set but empty counts as a flag with an empty value. A flag that is given "+
		"goes before its variable.\nA flag that has no default is empty, or 0.\n")
	flags := flagsOf(root)
	for _, group := range groups {
		var its []*pflag.Flag
		for _, name := range group.flags {
			i := slices.IndexFunc(flags, func(f *pflag.Flag) bool { return f.Name == name })
			if i < 0 {
				return fmt.Errorf("--%s is in the group %q of reference_test.go: tenure has no such flag, or a group above "+
					"has it, too", name, group.title)
			}
			its = append(its, flags[i])
			flags = slices.Delete(flags, i, i+1)
		}
		fmt.Fprintf(page, "\n%s:\n\n", group.title)
		if err := writeFlags(page, root, its); err != nil {
			return err
		}
	}
	if len(flags) > 0 {
		return fmt.Errorf("--%s is in no group of reference_test.go", flags[0].Name)
	}
	return writeCommands(page, root)
}

// writeCommands writes the commands below one, and those below these.
func writeCommands(page io.Writer, of *cobra.Command) error {
	for _, c := range of.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if c.Short == "" {
			return fmt.Errorf("%s has no description", c.CommandPath())
		}
		fmt.Fprintf(page, "\n### %s\n\n", c.CommandPath())
		if !c.HasAvailableSubCommands() {
			c.InitDefaultHelpFlag() // as the program does; it makes the line end in [flags]
			fmt.Fprintf(page, "`%s`\n\n", c.UseLine())
		}
		about := cmp.Or(c.Long, c.Short)
		fmt.Fprintln(page, strings.ToUpper(about[:1])+strings.TrimSuffix(about[1:], ".")+".")
		if flags := flagsOf(c); len(flags) > 0 {
			fmt.Fprintln(page)
			if err := writeFlags(page, c, flags); err != nil {
				return err
			}
		}
		if err := writeCommands(page, c); err != nil {
			return err
		}
	}
	return nil
}

// flagsOf returns the flags that a command's help lists, except for --help.
func flagsOf(c *cobra.Command) (all []*pflag.Flag) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			all = append(all, f)
		}
	})
	return all
}

// writeFlags writes a table of flags.
func writeFlags(page io.Writer, c *cobra.Command, flags []*pflag.Flag) error {
	fmt.Fprint(page, "| flag | default | meaning |\n|---|---|---|\n")
	for _, f := range flags {
		value, meaning := pflag.UnquoteUsage(f)
		variable := ""
		if from := f.Annotations[environment]; len(from) > 0 {
			variable = from[0]
			meaning = strings.TrimSuffix(meaning, " [$"+variable+"]")
		}
		switch {
		case strings.TrimSpace(meaning) == "":
			return fmt.Errorf("%s: --%s has no description", c.CommandPath(), f.Name)
		case c.HasParent() && variable != "":
			meaning += ". Or `" + variable + "`"
		case !c.HasParent() && variable != envName(f.Name): // the text above says what each is called
			return fmt.Errorf("--%s has the environment variable %q, want %s", f.Name, variable, envName(f.Name))
		}
		name := "`--" + strings.TrimSpace(f.Name+" "+value) + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		gen.Row(page, name, byDefault(f), meaning)
	}
	return nil
}

// byDefault shows the default of a flag: nothing if it is empty or 0.
func byDefault(f *pflag.Flag) string {
	host, _ := os.Hostname() // as options.declare does
	switch {
	case f.Name == "replica" && f.DefValue == strings.ToLower(host):
		return "the host's name"
	case f.DefValue == "", f.Value.Type() != "string" && slices.Contains([]string{"0", "0s", "[]"}, f.DefValue):
		return ""
	}
	return "`" + f.DefValue + "`"
}

func TestTheReferenceRefusesWhatItCannotShow(t *testing.T) {
	for want, spoil := range map[string]func(root *cobra.Command){
		"": func(*cobra.Command) {},
		"--odd is in no group": func(root *cobra.Command) {
			root.Flags().String("odd", "", "is new")
		},
		`--weight is in the group "The fleet"`: func(root *cobra.Command) {
			root.Flags().Lookup("weight").Hidden = true
		},
		`--weight has the environment variable ""`: func(root *cobra.Command) {
			root.Flags().Lookup("weight").Annotations = nil
		},
		"tenure: --weight has no description": func(root *cobra.Command) {
			root.Flags().Lookup("weight").Usage = " [$TENURE_WEIGHT]"
		},
		"tenure status: --bare has no description": func(root *cobra.Command) {
			status, _, _ := root.Find([]string{"status"})
			status.Flags().String("bare", "x", "")
		},
		"tenure cluster list has no description": func(root *cobra.Command) {
			list, _, _ := root.Find([]string{"cluster", "list"})
			list.Short = ""
		},
	} {
		root := newRoot(noEnv, runManager)
		spoil(root)
		if err := writeManager(io.Discard, root); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
