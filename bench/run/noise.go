package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

const (
	// quietFor is how long a load goes on before the last cluster becomes a bad neighbour.
	quietFor = time.Second
	// lateBy is how much later than otherwise the last cluster answers with the noise "late".
	lateBy = 2500 * time.Millisecond
	// dripEvery is the distance of the bytes of an answer with the noise "dripping".
	dripEvery = 20 * time.Millisecond
	// takenWithin bounds how long replicas may take to give up a cluster: its grace, and a drain.
	takenWithin = time.Minute
	// pileSuffix ends the name of the namespace of what comes due at once.
	pileSuffix = "-pile"
)

// unwatched are all verbs but watch: the requests that fail at an overloaded API server.
var unwatched = []string{"get", "list", "create", "update", "patch", "delete", "deletecollection"}

// faultOf is what makes a cluster a bad neighbour; ok is false where the noise isn't of its making.
func faultOf(n scenario.Noise) (rule faultproxy.Rule, ok bool) {
	rule = faultproxy.Rule{Match: faultproxy.Match{Verbs: unwatched}}
	switch n {
	case scenario.Late:
		rule.Fault, rule.Delay = faultproxy.Delay, lateBy
	case scenario.Silent:
		rule = faultproxy.Rule{Fault: faultproxy.Blackhole}
	case scenario.Failing:
		rule.Status = http.StatusInternalServerError
	case scenario.HalfThrottling:
		rule.Status, rule.RetryAfter, rule.Probability = http.StatusTooManyRequests, 1, 0.5
	case scenario.Throttling:
		rule.Status, rule.RetryAfter = http.StatusTooManyRequests, 1
	case scenario.Forbidding:
		rule.Status = http.StatusForbidden
	case scenario.Dripping:
		rule.Fault, rule.Delay = faultproxy.Drip, dripEvery
	case scenario.Resetting:
		rule = faultproxy.Rule{Fault: faultproxy.Reset}
	default:
		return rule, false
	}
	return rule, true
}

// ways are the noises that a fault makes.
func ways() []scenario.Noise {
	return slices.DeleteFunc(scenario.Noises(), func(n scenario.Noise) bool { _, ok := faultOf(n); return !ok })
}

// pile creates the Ats that fall due at once in the last cluster, and returns their due time.
func (f *fleet) pile(ctx context.Context, s scenario.Scenario, namespace string) (due time.Time, err error) {
	to := f.site.last()
	if err := f.site.addNamespace(ctx, to.Name, namespace+pileSuffix); err != nil {
		return time.Time{}, err
	}
	g := &load.Generator{
		Load: s.Load, Clusters: []*load.Cluster{to}, Namespace: namespace + pileSuffix, Expect: f.ledger.Expect,
		Sent: f.ledger.Sent,
	}
	return g.Pile(ctx, s.Backlog)
}

// lastToldIn is the namespace of the replicas that serve the last cluster.
func (f *fleet) lastToldIn() string {
	if f.as == scenario.Apart {
		return apartNamespace
	}
	return f.site.namespace
}

// takeLast takes the last cluster from the replicas that serve it, and waits until they have given it up.
func (f *fleet) takeLast(ctx context.Context) error {
	name, home := f.site.last().Name, f.site.admins[homeCluster]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.lastToldIn(), Name: name}}
	if err := home.Delete(ctx, secret); err != nil {
		return fmt.Errorf("taking cluster %s from the replicas: %w", name, err)
	}
	err := lab.Eventually(ctx, takenWithin, func() error {
		records := &tenurev1alpha1.ShardList{}
		err := home.List(ctx, records, client.InNamespace(secret.Namespace))
		if slices.ContainsFunc(records.Items, func(s tenurev1alpha1.Shard) bool {
			return s.Spec.Cluster == name && s.Status.Holder != ""
		}) {
			err = errors.New("a replica still holds a shard of it")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting until cluster %s is given up: %w", name, err)
	}
	return nil
}

// disturb makes the last clusters bad neighbours until the last arrival.
func (f *fleet) disturb(ctx context.Context, r *round, length time.Duration) error {
	if err := lab.Sleep(ctx, time.Until(r.start.Add(quietFor))); err != nil {
		return err
	}
	r.pausedFrom = time.Now()
	if r.noise == scenario.Added {
		if err := f.site.addSecret(ctx, f.lastToldIn(), f.site.last().Name); err != nil {
			return err
		}
	}
	injected := map[scenario.Noise][]*faultproxy.Injection{}
	for i, proxy := range f.site.noisy {
		noise := r.noise
		if noise == scenario.Mixed {
			noise = ways()[i%len(ways())]
		}
		if rule, ok := faultOf(noise); ok {
			fault := proxy.Inject(rule)
			defer fault.End()
			injected[noise] = append(injected[noise], fault)
		}
	}
	err := lab.Sleep(ctx, time.Until(r.start.Add(length)))
	r.pausedTo = time.Now()
	r.hits = map[scenario.Noise]int{}
	for noise, faults := range injected {
		for _, fault := range faults {
			r.hits[noise] += fault.Hits()
		}
	}
	return err
}

// judgeNoise returns a complaint if the noise can't have been felt: if one of its faults hit no request, or if none
// of the Ats that fall due at once became DONE after it began. Then it is no merit that the neighbours were calm.
func judgeNoise(noise scenario.Noise, hits map[scenario.Noise]int, piled int) string {
	_, faulty := faultOf(noise)
	if (faulty || noise == scenario.Mixed) && len(hits) == 0 {
		return fmt.Sprintf("no fault was injected for the noise %s", noise)
	}
	for _, way := range sortedKeys(hits) {
		if hits[way] == 0 {
			return fmt.Sprintf("the noise %s hit no request", way)
		}
	}
	if (noise == scenario.Backlog || noise == scenario.Added) && piled == 0 {
		return fmt.Sprintf("of the Ats that were due at once none became DONE since the noise %s began", noise)
	}
	return ""
}

// neighbours is what one noise did to the other clusters, and how many of the noisy one's own Ats were done.
type neighbours struct {
	others         stats.Latencies
	own            int
	begun, settled *float64 // nil while none was left when a noise ended
	rounds         []report.Round
}

// addNoise adds what a round with a noise showed: of the other clusters' Ats, and how many of the noisy one's were
// DONE while it was noisy.
func (t *tally) addNoise(r *round, others *stats.Latencies) {
	if r.noise == "" {
		return
	}
	n := t.noises[r.noise]
	if n == nil {
		n = &neighbours{}
		t.noises[r.noise] = n
	}
	n.others.Merge(others)
	piled := 0 // of what came due at once, how many were DONE since
	var dones []time.Time
	var last time.Time
	for _, namespace := range []string{r.namespace, r.namespace + pileSuffix} {
		own := t.fleet.ledger.Sum(namespace, func(a load.Arrival) bool { return t.fleet.site.disturbed(a.Cluster) }, keyOf)
		dones = append(dones, own.Dones...)
		if own.Last.After(last) {
			last = own.Last
		}
		if namespace != r.namespace {
			during, after := beside(own.Dones, r.pausedFrom, r.pausedTo)
			piled = during + len(after)
		}
	}
	during, after := beside(dones, r.pausedFrom, r.pausedTo)
	if n.own += during; len(after) > 0 {
		n.begun = longer(n.begun, slices.Min(after))
		n.settled = longer(n.settled, last.Sub(r.pausedTo))
	}
	if complaint := judgeNoise(r.noise, r.hits, piled); complaint != "" {
		t.missing = append(t.missing, fmt.Sprintf("%s: %s", r.namespace, complaint))
	}
	figures := map[string]float64{"own_per_s": pace(dones, r.pausedFrom, r.pausedTo, piled > 0)}
	quantilesOf(figures, "neighbour_ms", others)
	n.rounds = append(n.rounds, report.Round{Seconds: r.pausedTo.Sub(r.pausedFrom).Seconds(), Figures: figures})
}

// longer is the longer of two times in seconds, the first of which may be missing.
func longer(a *float64, b time.Duration) *float64 {
	seconds := b.Seconds()
	if a != nil {
		seconds = max(seconds, *a)
	}
	return &seconds
}

// pace returns how many of a noisy cluster's own Ats were DONE per second: while it was noisy, or, if the noise
// consists of Ats that fall due at once, until all of them were.
func pace(dones []time.Time, from, to time.Time, all bool) float64 {
	if all {
		if last := slices.MaxFunc(dones, time.Time.Compare); last.After(to) {
			to = last.Add(1)
		}
	}
	during, _ := beside(dones, from, to)
	return float64(during) / to.Sub(from).Seconds()
}

// beside divides Ats by when they were DONE: it counts those of the time of a noise, and returns how long after it
// the later ones were DONE.
func beside(dones []time.Time, from, to time.Time) (during int, after []time.Duration) {
	for _, done := range dones {
		switch {
		case !done.Before(to):
			after = append(after, done.Sub(to))
		case !done.Before(from):
			during++
		}
	}
	return during, after
}

// noiseResults returns what was added, by noise.
func (t *tally) noiseResults() map[string]report.Noisy {
	if len(t.noises) == 0 {
		return nil
	}
	out := map[string]report.Noisy{}
	for name, n := range t.noises {
		out[string(name)] = report.Noisy{Others: n.others.Quantiles(), OwnDone: n.own,
			OwnBegun: n.begun, OwnSettled: n.settled, Rounds: n.rounds}
	}
	return out
}
