package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/report"
	benchrun "github.com/tenure-dev/tenure/bench/run"
	"github.com/tenure-dev/tenure/bench/scenario"
)

func newList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list the scenarios", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, name := range scenario.Names() {
				s, err := scenario.Read(name, nil)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\n", name, s.Summary)
			}
			return w.Flush()
		},
	}
}

// runFlags are the command line of run.
type runFlags struct {
	jsonFile, htmlFile string
	set, kubeconfigs   []string
	unwitnessed        string
	options            benchrun.Options
}

// forReplicas adds the flag that run and tour share.
func (f *runFlags) forReplicas(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.options.Tenure, "tenure", "",
		"the `binary` of a replica (default: tenure beside this program, or bin/tenure)")
	return cmd
}

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run SCENARIO|FILE", Short: "carry a scenario out and report",
		Long: "Starts control planes and replicas on this machine, gives them the scenario's load, and reports. Settings\n" +
			"are applied to the scenario by their dotted path: --set size=full, --set fleet.replicas=5, --set\n" +
			"load.count=1000.",
		Args: exactlyOne("a scenario (bench list) or a file"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return scenario.Names(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := clusterFiles(f.kubeconfigs)
			if err != nil {
				return err
			}
			for _, k := range files {
				if f.options.Kubeconfigs == nil {
					f.options.Kubeconfigs = map[string]string{}
				}
				f.options.Kubeconfigs[k.cluster] = k.path
			}
			f.options.Command = f.command(cmd, args[0])
			_, err = f.run(cmd, args[0])
			return err
		},
	}
	fs := f.forReplicas(cmd).Flags()
	fs.StringArrayVar(&f.set, "set", nil, "`path=value` of a field of the scenario; repeatable")
	fs.StringVar(&f.jsonFile, "json", "", "write the report as JSON to this `file`")
	fs.StringVar(&f.htmlFile, "html", "", "write the report as a page to this `file`")
	fs.StringVar(&f.options.Dir, "dir", "", "keep logs, audit logs and samples in this `folder` (default: a temporary "+
		"one)")
	fs.StringArrayVar(&f.kubeconfigs, "kubeconfig", nil,
		"run in these clusters, `CLUSTER=FILE`, instead of on control planes "+
			"of our own; repeatable, one is called home")
	fs.StringVar(&f.unwitnessed, "unwitnessed", "",
		"with --kubeconfig, the `reason` why no witness judges the run's writes")
	fs.StringVar(&f.options.Profile, "profile", "",
		"take CPU profiles of all processes in each round into this `folder`, and print one table of them")
	return cmd
}

// command returns the command line that repeats a run, without flags that only say where files go.
func (f *runFlags) command(cmd *cobra.Command, name string) string {
	parts := []string{cmd.CommandPath(), name}
	for _, s := range f.set {
		parts = append(parts, "--set "+s)
	}
	for _, k := range f.kubeconfigs {
		parts = append(parts, "--kubeconfig "+k)
	}
	for _, name := range []string{"tenure", "profile", "unwitnessed"} {
		if flag := cmd.Flag(name); flag.Changed {
			parts = append(parts, "--"+name+" "+flag.Value.String())
		}
	}
	return strings.Join(parts, " ")
}

// run carries a scenario out, writes and prints the report, and judges it.
func (f *runFlags) run(cmd *cobra.Command, name string) (*report.Report, error) {
	s, err := scenario.Read(name, f.set)
	if err != nil {
		return nil, err
	}
	if err := f.writable(); err != nil {
		return nil, err
	}
	if f.unwitnessed != "" {
		s.Unwitnessed = f.unwitnessed
	}
	klog.SetLogger(logr.Discard()) // libraries would write between the lines of progress
	log.SetLogger(logr.Discard())
	f.options.Progress = cmd.ErrOrStderr()
	r, err := benchrun.Run(cmd.Context(), s, f.options)
	if err != nil {
		return nil, err
	}
	unjudged := check.Judge(r, name)  // the scenario's file may have changed meanwhile
	report.Text(cmd.OutOrStdout(), r) // first, since it is all that is left of the run if a file can't be written
	verdict := judge(cmd.OutOrStdout(), r)
	if err := errors.Join(report.WriteJSON(f.jsonFile, "the report", r), f.writePage(r), unjudged); err != nil {
		return nil, err
	}
	return r, verdict
}

// writable refuses, before the run, files that can't be written after it. It leaves no file behind, since the run may
// be refused for another reason; and an empty one in --dir would be such a reason.
func (f *runFlags) writable() error {
	var earlier fs.FileInfo
	for _, o := range []struct{ flag, path string }{{"--json", f.jsonFile}, {"--html", f.htmlFile}} {
		if o.path == "" {
			continue
		}
		if there, err := os.Stat(o.path); err == nil && !there.Mode().IsRegular() && !there.IsDir() {
			continue // whoever reads a pipe would take its closing for the end of the report
		}
		_, missing := os.Lstat(o.path)
		if err := os.MkdirAll(filepath.Dir(o.path), 0o755); err != nil {
			return fmt.Errorf("%s %s: %w", o.flag, o.path, err)
		}
		file, err := os.OpenFile(o.path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.flag, o.path, err)
		}
		defer file.Close()
		if missing != nil {
			defer os.Remove(o.path)
		}
		opened, err := file.Stat()
		if err == nil && earlier != nil && os.SameFile(earlier, opened) {
			err = errors.New("is the file of --json, too: name another one")
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.flag, o.path, err)
		}
		earlier = opened
	}
	return nil
}

// judge prints the verdicts; an invalid run and a missed threshold are findings.
func judge(stdout io.Writer, r *report.Report) error {
	failed := !r.Valid
	for _, v := range r.Checks {
		fmt.Fprintln(stdout, v.Text())
		failed = failed || !v.OK
	}
	for _, warning := range r.Warnings {
		fmt.Fprintln(stdout, "warning:", warning)
	}
	for _, reason := range r.Reasons {
		fmt.Fprintln(stdout, "INVALID:", reason)
	}
	if failed {
		return errFindings
	}
	return nil
}

func (f *runFlags) writePage(r *report.Report) error {
	if f.htmlFile == "" {
		return nil
	}
	return writePage(f.htmlFile, func(w io.Writer) error { return report.HTML(w, r) })
}

// writePage makes a page and its folder.
func writePage(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making a folder for a page: %w", err)
	}
	page, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a page: %w", err)
	}
	return errors.Join(write(page), page.Close())
}
