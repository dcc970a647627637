package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// envName is the environment variable of a flag.
func envName(name string) string {
	return "TENURE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// environment is the annotation of a flag that holds the name of its environment variable, and the value if it is set.
const environment = "environment"

// ofOthers matches the variables that Kubernetes gives a container for Services whose names begin with tenure, and
// those of tenure trace and of this project's tests.
var ofOthers = regexp.MustCompile(`^TENURE_(([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|` +
	`PORT(_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?)|JAEGER(_URL)?|CONTROLPLANE|RIGHTS)$`)

// unknownIn returns the variables of an environment that look like those of flags and aren't.
func unknownIn(environ []string, fs *pflag.FlagSet) (names []string) {
	known := map[string]bool{}
	fs.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envName("")) && !known[name] && !ofOthers.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fromEnvironment lets an environment variable set a flag that isn't given. One that is empty counts as set, like a
// flag with an empty value: some flags mean something by that, and the others refuse it.
func fromEnvironment(f *pflag.Flag, variable string, lookup func(string) (string, bool)) {
	f.Usage += " [$" + variable + "]"
	about := []string{variable}
	if value, set := lookup(variable); set {
		about = append(about, value)
	}
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[environment] = about // beside what complete and refuseEmpty put there
}

// readEnvironment sets the flags that weren't given.
func readEnvironment(fs *pflag.FlagSet) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		from := f.Annotations[environment]
		if f.Changed || len(from) < 2 {
			return
		}
		if err := f.Value.Set(from[1]); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q for environment variable %s: %w%s", from[1], from[0], err,
				wantedInstead(f, from[1])))
		}
	})
	return errors.Join(errs...)
}

// sources names the variables that set flags which an error names, so that nobody looks for them on the command line;
// "" if there are none.
func sources(fs *pflag.FlagSet, err string) (said string) {
	fs.VisitAll(func(f *pflag.Flag) {
		from := f.Annotations[environment]
		if !f.Changed && len(from) == 2 && regexp.MustCompile("--"+f.Name+"($|[^a-z-])").MatchString(err) {
			said += fmt.Sprintf("; --%s is from $%s", f.Name, from[0])
		}
	})
	return said
}

// overridden is an environment variable that has no effect, since its flag is given another value.
type overridden struct{ Flag, Value, Variable, Ignored string }

// overriddenBy returns those among the variables of the manager's flags. A variable may say the same in other words,
// such as 1m for 1m0s, so flags of their own read them.
func overriddenBy(fs *pflag.FlagSet) (all []overridden) {
	variables := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&options{sharding: true, serverFilter: true}).declare(variables)
	fs.Visit(func(f *pflag.Flag) {
		from := f.Annotations[environment]
		if len(from) < 2 {
			return
		}
		if v := variables.Lookup(f.Name).Value; v.Set(from[1]) != nil || v.String() != f.Value.String() {
			all = append(all, overridden{"--" + f.Name, f.Value.String(), from[0], from[1]})
		}
	})
	return all
}
