package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// The cast. The numbers that somebody may want to change are flags.
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

func newFlags(getenv func(string) string) (*flag.FlagSet, *settings) {
	s := &settings{}
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&s.ats, "ats", 600, "`number` of Ats, half of them due at once")
	fs.IntVar(&s.deployments, "deployments", 12, "`number` of Deployments that are kept in all clusters")
	fs.DurationVar(&s.spread, "spread", 30*time.Second, "time over which the other half comes due")
	fs.DurationVar(&s.leaseDuration, "lease-duration", 5*time.Second, "how long a silent replica keeps its shards")
	fs.DurationVar(&s.limit, "limit", 3*time.Minute, "how long all Ats may take to be DONE")
	fs.StringVar(&s.tenure, "tenure", "", "the `binary` of a replica (default: tenure beside this program, or bin/tenure)")
	fs.StringVar(&s.dir, "dir", getenv("DEMO_DIR"), "`folder` for logs and data, kept at the end [$DEMO_DIR] (default: a temporary one)")
	fs.StringVar(&s.json, "json", getenv("DEMO_JSON"), "`file` for the result [$DEMO_JSON]")
	return fs, s
}

func parseSettings(args []string, getenv func(string) string) (*settings, error) {
	fs, s := newFlags(getenv)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if s.ats < 2 || s.deployments < 2 || s.spread < 0 || s.leaseDuration < time.Second || s.limit <= 0 {
		return nil, errors.New("--ats and --deployments must be at least 2, --lease-duration at least 1s, --spread and --limit not negative")
	}
	ci, dumb := getenv("CI") != "", getenv("TERM") == "dumb"
	out := term.IsTerminal(int(os.Stdout.Fd())) && !ci
	s.terminal = out && !dumb
	s.stay = out && term.IsTerminal(int(os.Stdin.Fd()))
	return s, nil
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, "demo shows Tenure at work on local control planes.\n\nusage: demo [flags]     (make demo builds what it needs)\n\n")
	fs, _ := newFlags(os.Getenv)
	fs.SetOutput(w)
	fs.PrintDefaults()
}

// locate finds the programs and manifests, and says how to make what is missing.
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
	if s.json != "" && !isFolder(filepath.Dir(s.json)) { // better now than after the run
		return fmt.Errorf("no folder for the result %s: make it, or name another file with DEMO_JSON", s.json)
	}
	if _, err := lab.Root(); err != nil {
		return err
	}
	s.tenure, err = lab.FindTenure(s.tenure)
	return err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
