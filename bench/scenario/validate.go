package scenario

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Bounds that keep a typing error from filling the machine.
const (
	maxReplicas = 64
	maxWorkers  = 1000 // replicas take no more
	maxClusters = 32
	maxArrivals = 2_000_000
)

// violations collects complaints, each with the name of its field.
type violations []error

func (v *violations) check(ok bool, field, format string, args ...any) {
	if !ok {
		*v = append(*v, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
}

// oneOf complains about a value that isn't listed.
func oneOf[T ~string](v *violations, field string, value T, allowed ...T) {
	texts := make([]string, len(allowed))
	for i, a := range allowed {
		texts[i] = string(a)
	}
	v.check(slices.Contains(allowed, value), field, "%q is none of %s", string(value), strings.Join(texts, ", "))
}

// Validate reports everything that can't be, by field.
func (s Scenario) Validate() error {
	v := violations{}
	v.check(s.Schema == Schema, "schema", "%q: want %s", s.Schema, Schema)
	v.check(s.Name != "", "name", "is missing")
	v.check(s.Summary != "", "summary", "is missing")
	v.check(s.Rounds >= 1 && s.Rounds <= 1000, "rounds", "%d is not between 1 and 1000", s.Rounds)
	v.check(s.Limit > 0, "limit", "%s must be positive", s.Limit)
	for i, n := range s.Sweep {
		at := fmt.Sprintf("sweep[%d]", i)
		v.check(n >= 1 && n <= maxReplicas, at, "%d is not between 1 and %d", n, maxReplicas)
		v.check(i == 0 || n > s.Sweep[i-1], at, "%d doesn't rise", n)
	}
	s.Fleet.validate(&v)
	s.Load.validate(&v)
	v.check(len(s.Load.Rates) == 0 || s.Rounds == 1 && len(s.Compare) == 0 && len(s.Steps) == 0 && s.Load.Kind == Ats,
		"load.rates", "give one fleet its rounds, with Ats: neither rounds nor compare nor steps")
	s.validateSteps(&v)
	s.validateReferences(&v)
	s.validateNoises(&v)
	v.check(s.Load.Arrivals != Nothing || s.Unwitnessed != "", "unwitnessed",
		"is missing: say why nothing is to be judged where nothing arrives")
	for i, t := range s.Thresholds {
		at := fmt.Sprintf("thresholds[%d].", i)
		v.check(t.Figure != "", at+"figure", "is missing")
		v.check(t.Max != nil || t.Min != nil, at+"max", "or min is needed")
		v.check(t.Why != "", at+"why", "is missing: say where the number comes from")
		for _, size := range t.Sizes {
			_, there := s.Sizes[size]
			v.check(there || size == DefaultSize, at+"sizes", "%q is none of the scenario's: this would never be checked", size)
		}
	}
	return errors.Join(v...)
}

func (f Fleet) validate(v *violations) {
	v.check(f.Clusters >= 1 && f.Clusters <= maxClusters, "fleet.clusters", "%d is not between 1 and %d",
		f.Clusters, maxClusters)
	v.check(f.Kubeconfigs == 0 || f.Kubeconfigs >= f.Clusters, "fleet.kubeconfigs", "%d is less than fleet.clusters %d",
		f.Kubeconfigs, f.Clusters)
	v.check(f.Replicas >= 1 && f.Replicas <= maxReplicas, "fleet.replicas", "%d is not between 1 and %d",
		f.Replicas, maxReplicas)
	v.check(f.Workers >= 1 && f.Workers <= maxWorkers, "fleet.workers", "%d is not between 1 and %d",
		f.Workers, maxWorkers)
	v.check(f.ShardsPerCluster >= 1 && f.ShardsPerCluster <= 256 && bits.OnesCount(uint(f.ShardsPerCluster)) == 1,
		"fleet.shardsPerCluster", "%d is not a power of two up to 256", f.ShardsPerCluster)
	v.check(f.LeaseDuration.D() >= time.Second, "fleet.leaseDuration", "%s is less than 1s", f.LeaseDuration)
	v.check(f.InjectedWork >= 0, "fleet.injectedWork", "%s is negative", f.InjectedWork)
	v.check(f.Slowdown >= 0 && f.Slowdown <= 10, "fleet.slowdown", "%v is not between 0 and 10", f.Slowdown)
	v.check(f.TracingTurns == 0 || f.TracingTurns.D() >= time.Second, "fleet.tracingTurns",
		"%s is less than 1s", f.TracingTurns)
	v.check(f.TracingTurns == 0 || f.Samples, "fleet.tracingTurns", "needs fleet.samples")
	oneOf(v, "fleet.storage", f.Storage, Memory, Disk)
}

func (l Load) validate(v *violations) {
	oneOf(v, "load.kind", l.Kind, Ats, Deployments)
	if l.Kind == Deployments {
		v.check(l.Due == DueNow && l.Edit == 0 && !l.Delete && l.Preload == 0 && l.Finished == 0, "load.kind",
			"Deployments know no due, edit, delete, preload and finished")
	}
	v.check(l.DriftEvery >= 0, "load.driftEvery", "%s is negative", l.DriftEvery)
	oneOf(v, "load.arrivals", l.Arrivals, Burst, Constant, Poisson, Closed, Nothing)
	oneOf(v, "load.due", l.Due, DueNow, DueTogether)
	v.check(l.Preload >= 0 && l.Preload <= maxArrivals, "load.preload", "%d is not between 0 and %d",
		l.Preload, maxArrivals)
	v.check(l.Finished >= 0 && l.Finished <= maxArrivals, "load.finished", "%d is not between 0 and %d",
		l.Finished, maxArrivals)
	v.check(l.Clients >= 1 && l.Clients <= 4096, "load.clients", "%d is not between 1 and 4096", l.Clients)
	v.check(l.Changes >= 0 && l.Changes*l.Duration.D().Seconds() <= maxArrivals, "load.changes",
		"%v is negative, or makes more than %d changes", l.Changes, maxArrivals)
	v.check(l.Changes == 0 || l.Preload > 0 && l.Duration > 0, "load.changes", "needs load.preload and load.duration")
	v.check(l.Edit >= 0, "load.edit", "%s is negative", l.Edit)
	v.check(l.Edit == 0 || l.Due == DueNow, "load.edit", "goes with load.due now only")
	switch l.Arrivals {
	case Burst, Closed:
		v.check(l.Count >= 1 && l.Count <= maxArrivals, "load.count", "%d is not between 1 and %d", l.Count, maxArrivals)
		v.check(l.Rate == 0, "load.rate", "follows from how fast the fleet is with arrivals %s", l.Arrivals)
		v.check(l.Duration == 0, "load.duration", "follows from how fast the fleet is with arrivals %s", l.Arrivals)
		v.check(l.Edit == 0, "load.edit", "goes with a rate only")
		v.check(l.Arrivals == Burst || l.Kind == Ats && l.Due == DueNow && !l.Delete, "load.arrivals",
			"closed goes with Ats that are due at once and aren't deleted")
	case Constant, Poisson:
		v.check(l.Rate > 0 != (len(l.Rates) > 0), "load.rate", "%v must be positive, or there are load.rates", l.Rate)
		for i, rate := range l.Rates {
			v.check(rate > 0 && (i == 0 || rate > l.Rates[i-1]), fmt.Sprintf("load.rates[%d]", i), "%v doesn't rise", rate)
			v.check(rate*l.Duration.D().Seconds() <= maxArrivals, "load.duration", "gives more than %d arrivals", maxArrivals)
		}
		v.check(len(l.Rates) > 0 == (l.SLO > 0), "load.slo", "goes with load.rates, and they with it")
		v.check(l.Duration > 0, "load.duration", "%s must be positive", l.Duration)
		v.check(l.Rate*l.Duration.D().Seconds() <= maxArrivals, "load.duration", "gives more than %d arrivals", maxArrivals)
		v.check(l.Count == 0, "load.count", "follows from load.rate and load.duration")
		v.check(l.Due == DueNow, "load.due", "together goes with a burst only")
	case Nothing:
		v.check(l.Rate == 0 && l.Count == 0, "load.count", "and load.rate have no use where nothing arrives")
		v.check(l.Duration > 0, "load.duration", "%s must be positive", l.Duration)
	}
}

func (s Scenario) validateSteps(v *violations) {
	started, paused := false, false
	replicas := s.Fleet.Replicas
	for i, step := range s.Steps {
		at := fmt.Sprintf("steps[%d].", i)
		oneOf(v, at+"do", step.Do, Join, Leave, Kill, Restart, PauseCluster, Resume, Drift, Start)
		v.check(step.After >= 0, at+"after", "%s is negative", step.After)
		v.check(i == 0 || step.After >= s.Steps[i-1].After, at+"after", "%s is before the step above", step.After)
		switch step.Do {
		case Start:
			v.check(!started, at+"do", "the fleet starts once")
			started = true
		case Drift:
			v.check(s.Load.Kind == Deployments, at+"do", "only copies of Deployments drift")
		case Join:
			replicas++
		case Leave, Kill:
			replicas--
			v.check(replicas >= 1, at+"do", "no replica is left")
		case PauseCluster:
			v.check(s.Fleet.Clusters >= 2, at+"do", "needs fleet.clusters of 2 or more")
			v.check(!paused, at+"do", "the cluster is paused already")
			paused = true
		case Resume:
			v.check(paused, at+"do", "no cluster is paused")
			paused = false
		}
	}
	v.check(!paused, "steps", "a paused cluster must be resumed, or what is in it can't converge")
	v.check(len(s.Steps) == 0 || s.Rounds == 1, "rounds", "%d: a scenario with steps has one", s.Rounds)
}

func (s Scenario) validateReferences(v *violations) {
	v.check(len(s.Compare) == 0 || s.Fleet.Replicas*s.Fleet.Workers <= maxWorkers, "fleet.workers",
		"%d for each of %d replicas are more than the %d that one process, a reference, may have", s.Fleet.Workers,
		s.Fleet.Replicas, maxWorkers)
	for i, r := range s.Compare {
		at := fmt.Sprintf("compare[%d]", i)
		oneOf(v, at, r, Floor, Floors, Stock, Client, Identical, Slow, Apart, Unserved)
		v.check(r != Apart || max(s.Fleet.Clusters, s.Fleet.Kubeconfigs) > max(1, s.Noisy) && s.Load.Kind == Ats, at,
			"apart needs other clusters beside those that are served apart, and Ats")
		v.check(r != Unserved || s.Load.Changes > 0, at, "unserved needs load.changes")
		v.check(!slices.Contains(s.Compare[:i], r), at, "%q is listed twice", string(r))
		v.check(r != Slow || (s.Fleet.Slowdown > 0 && s.Fleet.InjectedWork > 0), at,
			"slow needs fleet.injectedWork and fleet.slowdown")
		bare := r == Floor || r == Floors
		v.check(!bare || s.Load.Edit == 0 && !s.Load.Delete, at, "%s knows no edits and deletions", r)
		v.check(!bare || s.Load.Kind == Ats, at, "%s knows no Deployments", r)
	}
	virtual := s.Fleet.Kubeconfigs > s.Fleet.Clusters
	v.check(!virtual || s.Load.Kind == Ats && s.Load.Preload+s.Load.Finished == 0 && len(s.Steps) == 0 &&
		!slices.ContainsFunc(s.Compare, func(r Reference) bool { return r != Apart }),
		"fleet.kubeconfigs", "virtual clusters are given Ats, none of them before, without steps and beside apart alone")
	v.check(!virtual || s.Load.Arrivals == Nothing || !s.Fleet.Samples, "fleet.samples",
		"must be false with a load of virtual clusters: replicas call their Ats by other names")
	v.check(s.Load.Changes == 0 || s.Fleet.Samples, "load.changes", "needs fleet.samples")
	v.check(len(s.Compare) == 0 || s.Fleet.TracingTurns == 0, "compare", "has no place beside fleet.tracingTurns")
	v.check(len(s.Compare) == 0 || len(s.Sweep) == 0, "compare", "has no place beside sweep")
	v.check(len(s.Compare) == 0 || len(s.Steps) == 0, "compare", "has no place beside steps")
}

func (s Scenario) validateNoises(v *violations) {
	for i, n := range s.Noises {
		at := fmt.Sprintf("noises[%d]", i)
		oneOf(v, at, n, Noises()...)
		v.check(!slices.Contains(s.Noises[:i], n), at, "%q is listed twice", string(n))
	}
	steady := s.Load.Arrivals == Constant || s.Load.Arrivals == Poisson
	v.check(len(s.Noises) == 0 || steady && s.Load.Kind == Ats && s.Load.Duration.D() > 2*time.Second &&
		len(s.Load.Rates) == 0, "noises",
		"go with Ats that arrive at one rate, for more than 2s")
	clusters := max(s.Fleet.Clusters, s.Fleet.Kubeconfigs)
	v.check(len(s.Noises) == 0 || clusters >= 2, "noises", "need fleet.clusters of 2 or more")
	v.check(s.Noisy == 0 || len(s.Noises) > 0 && s.Noisy > 0 && s.Noisy < clusters, "noisy",
		"%d: goes with noises, and leaves some of %d clusters quiet", s.Noisy, clusters)
	ofOne := slices.Contains(s.Noises, Backlog) || slices.Contains(s.Noises, Added)
	v.check(!ofOne || s.Noisy <= 1 && s.Fleet.Kubeconfigs <= s.Fleet.Clusters, "noises",
		"backlog and added are about one cluster with an API server of its own")
	v.check(len(s.Noises) == 0 || len(s.Steps) == 0 && len(s.Sweep) == 0, "noises", "have no place beside steps and sweep")
	v.check(s.Backlog > 0 || !slices.Contains(s.Noises, Backlog) && !slices.Contains(s.Noises, Added), "backlog",
		"%d: must be positive for the noises backlog and added", s.Backlog)
	v.check(s.Backlog >= 0 && s.Backlog <= maxArrivals, "backlog", "%d is not between 0 and %d", s.Backlog, maxArrivals)
}
