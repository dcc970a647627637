package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

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

// option is a flag, as its line in a command's help has it.
type option struct {
	name, short, value, byDefault, environment, meaning string
}

var (
	flagLine    = regexp.MustCompile(`^ +(?:-(\w), )?--([a-z0-9-]+)(?: (\S+))?(?: {2,}(.*))?$`)
	defaultPart = regexp.MustCompile(`(?:^| )\(default ("[^"]*"|[^ :]+)\)$`)
	environPart = regexp.MustCompile(`(?:^| )\[\$([A-Z_]+)\]$`)
	commandLine = regexp.MustCompile(`^  (\S+) +(.+)$`)
)

// parseFlags reads the flags of a command's help; host is the default of a flag that has the host's name.
func parseFlags(help, host string) (all []option, err error) {
	for _, line := range section(help, "Flags:") {
		m := flagLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("not understood: %q", line)
		}
		o := option{short: m[1], name: m[2], value: m[3], meaning: strings.TrimSpace(m[4])}
		if d := defaultPart.FindStringSubmatch(o.meaning); d != nil {
			o.byDefault, o.meaning = strings.Trim(d[1], `"`), strings.TrimSuffix(o.meaning, d[0])
		}
		if e := environPart.FindStringSubmatch(o.meaning); e != nil {
			o.environment, o.meaning = e[1], strings.TrimSuffix(o.meaning, e[0])
		}
		switch {
		case o.meaning == "":
			return nil, fmt.Errorf("--%s has no description", o.name)
		case o.name == "help":
			continue
		case o.name == "replica" && o.byDefault == strings.ToLower(host):
			o.byDefault = "the host's name"
		case o.value == "" && o.byDefault == "":
			o.byDefault = "false" // help leaves out what is false, zero or empty
		}
		all = append(all, o)
	}
	if len(all) == 0 && !strings.Contains(help, "--help") {
		return nil, errors.New("the help lists no flags")
	}
	return all, nil
}

// section returns the lines below a title of a command's help.
func section(help, title string) []string {
	_, below, found := strings.Cut(help, "\n"+title+"\n")
	if !found {
		return nil
	}
	below, _, _ = strings.Cut(below, "\n\n")
	return strings.Split(strings.TrimRight(below, "\n"), "\n")
}

// subcommands lists those of a command, without the two that come with every program of this kind.
func subcommands(help string) (names []string, err error) {
	for _, line := range section(help, "Available Commands:") {
		m := commandLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("a command has no description: %q", line)
		}
		if m[1] != "completion" && m[1] != "help" {
			names = append(names, m[1])
		}
	}
	return names, nil
}

// writeCommands writes the flags of tenure and of all its commands.
func writeCommands(page io.Writer, host string, help func(command ...string) (string, error)) error {
	text, err := help()
	if err != nil {
		return err
	}
	flags, err := parseFlags(text, host)
	if err != nil {
		return fmt.Errorf("tenure: %w", err)
	}
	fmt.Fprint(page, "\n## The commands\n\n### tenure\n\nRuns a replica. Each flag can be given as an environment "+
		"variable, too: `--lease-duration` is "+
		"`TENURE_LEASE_DURATION`.\nAn empty one counts as not given. A flag that has no default is empty, or 0.\n")
	for _, group := range groups {
		fmt.Fprintf(page, "\n%s:\n\n", group.title)
		var its []option
		for _, name := range group.flags {
			i := slices.IndexFunc(flags, func(o option) bool { return o.name == name })
			if i < 0 {
				return fmt.Errorf("--%s is in the group %q of docs/gen, and tenure has no such flag", name, group.title)
			}
			if want := "TENURE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")); flags[i].environment != want {
				return fmt.Errorf("--%s has the environment variable %q, want %s", name, flags[i].environment, want)
			}
			flags[i].environment = "" // as the text above says
			its = append(its, flags[i])
			flags = slices.Delete(flags, i, i+1)
		}
		writeFlags(page, its)
	}
	if len(flags) > 0 {
		return fmt.Errorf("--%s is in no group of docs/gen", flags[0].name)
	}
	return writeSubcommands(page, nil, text, help)
}

func writeSubcommands(page io.Writer, of []string, text string, help func(command ...string) (string, error)) error {
	names, err := subcommands(text)
	if err != nil {
		return err
	}
	for _, name := range names {
		command := append(slices.Clone(of), name)
		text, err := help(command...)
		if err != nil {
			return err
		}
		title := "tenure " + strings.Join(command, " ")
		flags, err := parseFlags(text, "")
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		about, _, _ := strings.Cut(text, "\n\nUsage:\n")
		fmt.Fprintf(page, "\n### %s\n\n", title)
		if usage := section(text, "Usage:"); len(usage) == 1 {
			fmt.Fprintf(page, "`%s`\n\n", strings.TrimSpace(usage[0]))
		}
		fmt.Fprintln(page, strings.ToUpper(about[:1])+strings.TrimSuffix(about[1:], ".")+".")
		if len(flags) > 0 {
			fmt.Fprintln(page)
			writeFlags(page, flags)
		}
		if err := writeSubcommands(page, command, text, help); err != nil {
			return err
		}
	}
	return nil
}

func writeFlags(page io.Writer, flags []option) {
	fmt.Fprint(page, "| flag | default | meaning |\n|---|---|---|\n")
	for _, o := range flags {
		name := "`--" + strings.TrimSpace(o.name+" "+o.value) + "`"
		if o.short != "" {
			name = "`-" + o.short + "`, " + name
		}
		if o.byDefault != "" && o.byDefault != "the host's name" {
			o.byDefault = "`" + o.byDefault + "`"
		}
		if o.environment != "" {
			o.meaning += ". Or `" + o.environment + "`"
		}
		row(page, name, o.byDefault, o.meaning)
	}
}
