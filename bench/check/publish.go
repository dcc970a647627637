package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/bench/compare"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// counted lists figures that are exact, not sampled, beside those that are added up and the largest of a run: the
// audit logs have all writes. They have no interval.
var counted = []string{"api_writes_per_object", "writes_per_copy", "writes_per_source", "watch_discarded_events"}

func isCounted(figure string) bool {
	return compare.Added(figure) || compare.Longest(figure) ||
		slices.Contains(counted, figure[strings.LastIndexByte(figure, '.')+1:])
}

// Publishable returns every reason against publishing figures of each of these runs, or nil. file is that of the
// scenario, as for [Judge], which refuses a run whose scenario isn't known. [compare.Pool] refuses those that don't
// belong together.
func Publishable(reports []*report.Report, file string) error {
	var errs []error
	for _, r := range reports {
		refuse := func(wrong bool, format string, args ...any) {
			if wrong {
				errs = append(errs, fmt.Errorf("%s: %s", r.File, fmt.Sprintf(format, args...)))
			}
		}
		e := r.Environment
		refuse(!r.Valid, "is not valid: %s", strings.Join(r.Reasons, "; "))
		refuse(r.Config.Unwitnessed != "", "was not witnessed: %s", r.Config.Unwitnessed)
		refuse(r.Results == nil || r.Results.Violations == nil, "no witness judged it")
		refuse(e.Others == nil, "how busy the machine was is not known")
		refuse(e.Others != nil && *e.Others > report.MaxOthers,
			"other programs took %.0f %% of the machine, %.0f %% are allowed: "+
				"run it again on a quiet one", 100*deref(e.Others), 100*report.MaxOthers)
		refuse(len(e.GoSettings) > 0, "%s was set in its environment: unset it and run again", e.GoText())
		refuse(r.Profiled, "profiles were taken meanwhile: run it again without --profile")
		refuse(!report.Commit.MatchString(e.Tenure),
			"its revision %q is no commit: commit, `make build lab`, and run it again", e.Tenure)
		if file != "" || slices.Contains(scenario.Names(), r.Scenario) {
			today, err := scenario.Read(cmp.Or(file, r.Scenario), settings(r.Command))
			refuse(err != nil, "its settings can't be read again: %v", err)
			same := today.SameSettings(r.Config) && slices.Equal(today.Publish, r.Config.Publish)
			refuse(err == nil && !same, "its settings aren't those of `%s` now: run it again", r.Command)
		}
	}
	return errors.Join(errs...)
}

func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// Publish writes the figures of one run, or of several of one scenario, into the text of the results file. They
// replace the section of the same scenario and settings. file is that of the scenario (see [Judge]).
func Publish(results string, reports []*report.Report, file string) (string, error) {
	if err := Publishable(reports, file); err != nil {
		return "", err
	}
	p, err := compare.Pool(reports)
	if err != nil {
		return "", err
	}
	if err := Judge(p, file); err != nil {
		return "", err
	}
	section, err := sectionOf(p)
	if err != nil {
		return "", err
	}
	return replaceSection(results, section), nil
}

// sectionOf is the part of the results file that is about one scenario.
func sectionOf(p *report.Report) (string, error) {
	published, err := Published(p)
	if err != nil {
		return "", err
	}
	var errs []error
	var rows strings.Builder
	row := func(v report.Verdict, wanted, word string) {
		if v.Measured == nil {
			errs = append(errs, fmt.Errorf("%s was not measured", v.Figure))
		} else if v.Measured.Low == nil && !isCounted(v.Figure) {
			errs = append(errs, fmt.Errorf("%s has no interval: it takes four rounds, or four runs (bench publish A B C D)",
				v.Figure))
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", v.Figure, v.Value(), wanted, word)
	}
	for _, v := range p.Checks {
		if !v.OK {
			errs = append(errs, fmt.Errorf("%s; mend it, or list the miss in bench/check/misses.yaml", v.Text()))
		}
		row(v, v.Wanted(), v.Word())
	}
	for _, v := range published {
		row(v, "", "")
	}
	if rows.Len() == 0 {
		errs = append(errs, fmt.Errorf("scenario %s has no threshold for size %s, and publishes no other figure", p.Scenario,
			p.Config.Size))
	}
	e := p.Environment
	runs := ""
	if p.Runs > 1 {
		runs = fmt.Sprintf(", %d runs with other seeds", p.Runs)
	}
	return fmt.Sprintf("%s\n\n%s, commit %.10s, %d × %s, %d MB, kernel %s; other programs took %.0f %% of the "+
		"machine.\n`%s`%s\n\n"+
		"| figure | measured, with its 95 %% interval | wanted | |\n|---|---|---|---|\n%s",
		heading(p), p.Started.Format("2006-01-02"), e.Tenure, e.CPUs, e.CPU, e.MemoryMB, e.Kernel, 100*deref(e.Others),
		p.Command, runs, rows.String()), errors.Join(errs...)
}

// Published returns the figures that a report's scenario publishes beside those that have thresholds.
func Published(r *report.Report) ([]report.Verdict, error) {
	find, err := figuresOf(r)
	if err != nil {
		return nil, err
	}
	all := make([]report.Verdict, len(r.Config.Publish))
	for i, figure := range r.Config.Publish {
		all[i].Figure = figure
		if value, ok := find(figure); ok {
			all[i].Measured = &value
		}
	}
	return all, nil
}

// heading names a scenario with the settings that aren't its own.
func heading(p *report.Report) string {
	parts := []string{"## " + p.Scenario, p.Config.Size}
	for _, setting := range settings(p.Command) {
		if key, _, _ := strings.Cut(setting, "="); key != "size" && key != "load.seed" && key != "seed" {
			parts = append(parts, setting)
		}
	}
	return strings.Join(parts, ", ")
}

// settings are the values of --set in a report's command.
func settings(command string) (list []string) {
	for _, setting := range strings.Split(command, " --set ")[1:] {
		setting, _, _ = strings.Cut(setting, " --")
		list = append(list, setting)
	}
	return list
}

// replaceSection puts a section in the place of the one with the same heading, or in order among those of scenarios,
// which come last. The order of the others stays.
func replaceSection(results, section string) string {
	title, _, _ := strings.Cut(section, "\n")
	parts := strings.Split("\n"+results, "\n## ")
	intro, others := strings.TrimSpace(parts[0]), parts[1:]
	var sections []string
	for _, other := range others {
		other = "## " + strings.TrimSpace(other) + "\n"
		if name, _, _ := strings.Cut(other, "\n"); name != title {
			sections = append(sections, other)
		}
	}
	at := len(sections)
	for at > 0 && sections[at-1] > section { // names of scenarios are in lower case, behind the capitals of other headings
		at--
	}
	return intro + "\n\n" + strings.Join(slices.Insert(sections, at, section), "\n")
}
