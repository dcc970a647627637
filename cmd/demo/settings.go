package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// The cast: clusters and replicas. Numbers that a user may want to change are flags.
const (
	homeCluster = lab.Home
	namespace   = lab.Namespace
	// victim is the replica that is killed, joiner the one that comes instead.
	victim = "r2"
	joiner = "r4"
	// shardsPerCluster of home and the workload clusters.
	shardsPerCluster = 4
)

var (
	workloadClusters = []string{"west", "east", "north"}
	firstReplicas    = []string{"r1", "r2", "r3"}
	atNamespaces     = []string{"billing", "reports", "shop"}
)

// settings are what can be chosen.
type settings struct {
	ats           int
	deployments   int
	spread        time.Duration
	leaseDuration time.Duration
	limit         time.Duration
	tenure        string
	controlplane  string
	jaeger        string
	dir           string
	json          string

	terminal bool // draw a table in place
	stay     bool // stay up until Ctrl-C
}

// newDemo returns the command line; show runs the demo with its settings.
func newDemo(getenv func(string) string, show func(*settings) error) *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use: "demo", Short: "Shows Tenure at work on local control planes (make demo builds what it needs)",
		Args:          cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, low := range map[string]time.Duration{"spread": 0, "lease-duration": time.Second, "limit": time.Second} {
				if d, err := cmd.Flags().GetDuration(name); err != nil || d < low {
					return fmt.Errorf("--%s %v: must be at least %v", name, d, low)
				}
			}
			for name, n := range map[string]int{"ats": s.ats, "deployments": s.deployments} {
				if n < 2 {
					return fmt.Errorf("--%s %d: must be at least 2", name, n)
				}
			}
			out := term.IsTerminal(int(os.Stdout.Fd())) && getenv("CI") == ""
			s.terminal = out && getenv("TERM") != "dumb"
			s.stay = out && term.IsTerminal(int(os.Stdin.Fd()))
			return show(s)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&s.ats, "ats", 600, "`number` of Ats, half of them due at once")
	fs.IntVar(&s.deployments, "deployments", 12, "`number` of Deployments that are kept in all clusters")
	fs.DurationVar(&s.spread, "spread", 30*time.Second, "time over which the other half comes due")
	fs.DurationVar(&s.leaseDuration, "lease-duration", 5*time.Second, "how long a silent replica keeps its shards")
	fs.DurationVar(&s.limit, "limit", 3*time.Minute, "how long all Ats may take to be DONE")
	fs.StringVar(&s.tenure, "tenure", "", "the `binary` of a replica (default: tenure beside this program, or bin/tenure)")
	fs.StringVar(&s.dir, "dir", getenv("DEMO_DIR"),
		"`folder` for logs and data, kept at the end [$DEMO_DIR] (default: a temporary one)")
	fs.StringVar(&s.json, "json", getenv("DEMO_JSON"), "`file` for the result [$DEMO_JSON]")
	return cmd
}

// locate finds the programs and manifests. Its error says how to make what is missing.
func (s *settings) locate() error {
	var err error
	if s.controlplane, err = localplane.FindBinary(); err != nil {
		return err
	}
	if s.jaeger, err = localjaeger.FindBinary(); err != nil {
		return err
	}
	if entries, _ := os.ReadDir(s.dir); s.dir != "" && len(entries) > 0 {
		return fmt.Errorf("folder %s is not empty: the demo needs fresh clusters; remove it or name another one", s.dir)
	}
	if info, err := os.Stat(filepath.Dir(s.json)); s.json != "" && (err != nil || !info.IsDir()) {
		// better now than after the run
		return fmt.Errorf("no folder for the result %s: make it, or name another file with DEMO_JSON", s.json)
	}
	if _, err := lab.Root(); err != nil {
		return err
	}
	s.tenure, err = lab.FindTenure(s.tenure)
	return err
}
