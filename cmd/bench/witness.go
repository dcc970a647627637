package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/witness"
)

// witnessFlags are the command line of witness.
type witnessFlags struct {
	jsonFile         string
	waived, restored []string
	whole            bool
	rules            witness.Rules
}

func newWitness() *cobra.Command {
	var f witnessFlags
	cmd := &cobra.Command{
		Use: "witness DIR", Short: "judge the invariants from API servers' audit logs",
		Long: "Reads the audit logs below DIR (files audit*.log, rotated and .gz too, one folder per cluster) and reports\n" +
			"every broken invariant with the log lines that prove it. What the logs should hold and don't is a violation\n" +
			"too, unless a reason is given.",
		Args: exactlyOne("a directory of audit logs"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(args[0], cmd.OutOrStdout()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.jsonFile, "json", "", "also write the report as JSON to this `file` (- is stdout, instead of the "+
		"text)")
	fs.DurationVar(&f.rules.Skew, "skew", 0, "by how much the clocks of two API servers may differ")
	fs.DurationVar(&f.rules.Settle, "settle", time.Second,
		"how long an At may be due at the end of the logs before it is lost")
	fs.IntVar(&f.rules.MaxListed, "max", 20, "how many violations of one kind to list")
	fs.IntVar(&f.rules.InFlight, "in-flight", 16, "how many writes of a tenure may be in flight at its end")
	fs.StringVar(&f.rules.Unwitnessed, "unwitnessed", "", "the `reason` why there is nothing to be judged by")
	fs.StringArrayVar(&f.rules.Users, "user", nil, "a `name` by which API servers authenticate the replicas; repeatable")
	fs.StringArrayVar(&f.waived, "waive", nil,
		"accept missing evidence, `KIND=REASON`: no-ats=\"it only replicates\"; repeatable")
	fs.BoolVar(&f.whole, "whole", false, "the logs begin where their clusters did: an object whose creation they don't "+
		"show is missing evidence")
	fs.StringArrayVar(&f.restored, "restored", nil,
		"a cluster was started from a backup, `CLUSTER=TIME` in RFC 3339; repeatable")
	return cmd
}

func (f *witnessFlags) run(dir string, stdout io.Writer) error {
	if f.rules.Skew < 0 || f.rules.Settle < 0 || f.rules.MaxListed < 1 || f.rules.InFlight < 1 {
		return errors.New("--skew and --settle can't be negative, --max and --in-flight must be at least 1")
	}
	f.rules.Waived = map[witness.Kind]string{}
	for _, waived := range f.waived {
		kind, reason, _ := strings.Cut(waived, "=")
		f.rules.Waived[witness.Kind(kind)] = reason
	}
	restores, err := f.restores(dir)
	if err != nil {
		return err
	}
	facts := witness.Facts{Whole: f.whole, Restores: restores}
	found, err := witness.Read(dir, witness.Options{Facts: facts, Rules: f.rules, Complete: true})
	if err != nil {
		return err
	}
	if err := f.knows(found.Users); err != nil {
		return err
	}
	if f.jsonFile == "-" {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		err = out.Encode(found)
	} else {
		err = errors.Join(report.WriteJSON(f.jsonFile, "the report", found), found.Text(stdout))
	}
	if err == nil && !found.OK {
		err = errFindings
	}
	return err
}

// restores reads the values of --restored. A cluster that has no log is refused: under a wrong name a restore would
// change nothing, and what it explains would be reported.
func (f *witnessFlags) restores(dir string) (all []witness.Restore, err error) {
	if len(f.restored) == 0 {
		return nil, nil
	}
	logs, err := audit.Logs(dir)
	if err != nil {
		return nil, err
	}
	var clusters []string
	for _, log := range logs {
		clusters = append(clusters, log.Cluster)
	}
	slices.Sort(clusters)
	clusters = slices.Compact(clusters)
	for _, restored := range f.restored {
		cluster, text, _ := strings.Cut(restored, "=")
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, fmt.Errorf("--restored %q: want CLUSTER=TIME: %w", restored, err)
		}
		if !slices.Contains(clusters, cluster) {
			return nil, fmt.Errorf("--restored %q: no log is of cluster %q; there are logs of %s", restored, cluster,
				strings.Join(clusters, ", "))
		}
		all = append(all, witness.Restore{Cluster: cluster, Time: at})
	}
	return all, nil
}

// knows refuses a --user by whom no line is: writes that say nothing of a shard would pass if the name of their sender
// were wrong here.
func (f *witnessFlags) knows(users map[string]bool) error {
	var replicas []string
	for name, ours := range users {
		if ours {
			replicas = append(replicas, name)
		}
	}
	slices.Sort(replicas)
	for _, name := range f.rules.Users {
		if _, sent := users[name]; !sent {
			there := "and none has the User-Agent of a replica"
			if len(replicas) > 0 {
				there = "those with the User-Agent of a replica are by " + strings.Join(replicas, ", ")
			}
			return fmt.Errorf("--user %q: no line of the logs is by that user; %s", name, there)
		}
	}
	return nil
}
