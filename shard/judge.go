package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	// probeTimeout is how long an API server may take for the small answer that shows that it can be used. A slow one
	// isn't an unusable one.
	probeTimeout = 3 * time.Second
	// againAfter is when a probe that failed at once is repeated, before anything is concluded.
	againAfter = 500 * time.Millisecond
	// restsAfter is how many intervals (clusterJudge.every) pass until connections that are idle are closed, for a
	// cluster without shards here.
	restsAfter = 4
	// troubleKept is for how long the verdict on a cluster that can't be used outlives it. If the cluster comes back at
	// once, the driver may not see that it was gone, and only another probe tells it that the cluster can be used.
	troubleKept = time.Minute
	// heardOf is by when the driver knows that a cluster is gone. If the cluster is back by then, the driver may never
	// have missed it, and wait for an answer to its question.
	heardOf = 2 * time.Second
	// idleFactor is how many intervals (clusterJudge.every) pass between probes of a cluster that answers them, while
	// nothing else has requests for it. Such probes are a large part of an idle replica's processor time.
	idleFactor = 2
	// probesPerSecond bounds how often this process probes all clusters together. With more clusters than that allows,
	// each is probed less often.
	probesPerSecond = 50
)

// clusterJudge decides which workload clusters can be used from this process. There is one judgement per cluster. It
// is made from what the shards' requests show (the cluster's breaker) and, where they show nothing, from requests of
// its own, called probes. It probes clusters that have shards here and clusters that can't be used. It probes others
// only when asked, and keeps no connection open to them. It is safe for concurrent use.
type clusterJudge struct {
	clusters *clusterSet
	roster   *roster
	log      logr.Logger
	every    time.Duration // within which a cluster must answer something, while shards have requests for it
	put      func(driver.Event)
	spawn    func(func())

	mu       sync.Mutex // guards all below
	verdicts map[keyspace.ClusterName]*clusterVerdict
	watched  int // how many clusters are probed regularly
}

// clusterVerdict is what is known of one cluster.
type clusterVerdict struct {
	probing    bool
	probed     time.Time // when it was last probed, zero if it wasn't
	connection uint64    // the connection that was probed last, 0 for none
	next       time.Time // when it is probed next over that, unless it answers something before
	rested     time.Time // when connections that aren't in use were last closed
	there      time.Time // when the cluster was last there
	trouble    error     // why it can't be used, nil if it can
}

func newJudge(clusters *clusterSet, roster *roster, lease time.Duration, log logr.Logger, put func(driver.Event),
	spawn func(func())) *clusterJudge {
	return &clusterJudge{
		clusters: clusters, roster: roster, log: log.WithName("judge"), put: put, spawn: spawn,
		every: min(max(lease/2, time.Second), 5*time.Second), verdicts: map[keyspace.ClusterName]*clusterVerdict{},
	}
}

// run probes clusters until the context ends.
func (j *clusterJudge) run(ctx context.Context) {
	tick := time.NewTicker(j.every / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, name := range j.due(time.Now()) {
			j.probe(ctx, name)
		}
	}
}

// due returns the clusters to probe now.
func (j *clusterJudge) due(now time.Time) (names []keyspace.ClusterName) {
	var resting []*engage.Connection
	j.mu.Lock()
	j.watched = 0
	j.clusters.each(func(name keyspace.ClusterName, c *realCluster, traffic *engage.Traffic) {
		v := j.verdict(name)
		v.there = now
		here := j.roster.engages(name)
		if !here && now.Sub(v.rested) >= restsAfter*j.every {
			v.rested = now
			resting = append(resting, c.via)
		}
		if !here && v.trouble == nil {
			return
		}
		j.watched++
		if v.probing {
			return
		}
		heard := traffic.Breaker.LastUsable()
		due := now.After(v.next) || v.connection != c.connection
		fails := v.trouble == nil && unexplained(&traffic.Breaker, due)
		if fails || (due && now.Sub(heard) >= j.every) || (v.trouble != nil && heard.After(v.probed)) {
			names = append(names, name)
		}
	})
	maps.DeleteFunc(j.verdicts, func(_ keyspace.ClusterName, v *clusterVerdict) bool {
		return v.there != now && (v.trouble == nil || now.Sub(v.there) >= troubleKept)
	})
	j.mu.Unlock()
	for _, via := range resting {
		via.Rest() // probes, and other occasional requests, leave a connection open
	}
	return names
}

// unexplained reports whether requests to a cluster fail in a way that a probe can explain. A cluster that refuses
// the credentials keeps doing so, which causes no probe before one is due anyway.
func unexplained(b *engage.Breaker, due bool) bool {
	open, cause := b.Open()
	return open && (cause == engage.Silence || cause == engage.Unauthorized && due)
}

// verdict returns what is known of a cluster. Call it with the lock held.
func (j *clusterJudge) verdict(name keyspace.ClusterName) *clusterVerdict {
	v := j.verdicts[name]
	if v == nil {
		now := time.Now()
		v = &clusterVerdict{rested: now, there: now}
		j.verdicts[name] = v
	}
	return v
}

// probe asks a cluster concurrently, unless a probe is under way, and reports the result to the driver. One that isn't
// there is asked after heardOf, if it is back by then.
func (j *clusterJudge) probe(ctx context.Context, name keyspace.ClusterName) {
	c, traffic := j.clusters.get(name)
	if c.Cluster == nil {
		j.spawn(func() {
			if !sleep(ctx, heardOf) {
				return
			}
			if back, _ := j.clusters.known(name); back.Cluster != nil {
				j.probe(ctx, name)
			}
		})
		return
	}
	j.mu.Lock()
	v := j.verdict(name)
	busy := v.probing
	v.probing = true
	j.mu.Unlock()
	if busy {
		return
	}
	j.spawn(func() {
		trouble := ask(ctx, c, &traffic.Breaker)
		if ctx.Err() == nil && !j.conclude(name, c.connection, trouble) {
			j.probe(ctx, name)
		}
	})
}

// conclude records a probe's result and puts it. It does neither if the cluster is reached over another connection by
// now, or is gone: current is false then.
func (j *clusterJudge) conclude(name keyspace.ClusterName, connection uint64, trouble error) (current bool) {
	now := time.Now()
	c, _ := j.clusters.known(name)
	j.mu.Lock()
	v := j.verdict(name)
	v.probing = false
	if c.connection != connection {
		j.mu.Unlock()
		return false
	}
	was := v.trouble
	v.trouble, v.connection, v.probed = trouble, connection, now
	pause := j.every
	if trouble == nil {
		pause *= idleFactor
	}
	pause = max(pause, time.Duration(j.watched)*time.Second/probesPerSecond)
	v.next = now.Add(pause - pause/8 + rand.N(pause/4)) // so that replicas don't probe all at once
	j.mu.Unlock()
	switch {
	case trouble != nil && was == nil:
		j.log.Info("cluster can't be used from here; its shards go to replicas that can use it", "cluster", string(name),
			"error", trouble.Error())
	case trouble == nil && was != nil:
		j.log.Info("cluster can be used from here again", "cluster", string(name))
	}
	j.put(driver.Health{Cluster: name, Usable: trouble == nil})
	return true
}

// trouble returns why a cluster can't be used from here; nil where it can, or nothing is known. What was found over
// another connection than that of now says nothing: it may lead to another cluster, which has the name now.
func (j *clusterJudge) trouble(name keyspace.ClusterName) error {
	c, _ := j.clusters.known(name)
	j.mu.Lock()
	defer j.mu.Unlock()
	if v := j.verdicts[name]; v != nil && (c.Cluster == nil || c.connection == v.connection) {
		return v.trouble
	}
	return nil
}

// unusable is trouble, or else why it isn't known which cluster this is, without which it isn't served.
func (j *clusterJudge) unusable(name keyspace.ClusterName) error {
	if why := j.trouble(name); why != nil {
		return why
	}
	c, _ := j.clusters.known(name)
	return c.unknown
}

// usable returns why a cluster can't be used from here, nil if it can. If a probe has failed, or the cluster has
// answered lately, it sends no request.
func (j *clusterJudge) usable(ctx context.Context, name keyspace.ClusterName) error {
	c, traffic := j.clusters.known(name)
	if c.Cluster == nil {
		return fmt.Errorf("cluster %s: %w", name, multicluster.ErrClusterNotFound)
	}
	if why := j.unusable(name); why != nil || j.answered(name, c.connection, &traffic.Breaker) {
		return why
	}
	return ask(ctx, c, &traffic.Breaker)
}

// proven reports whether usable would return nil without a request.
func (j *clusterJudge) proven(name keyspace.ClusterName) bool {
	c, traffic := j.clusters.known(name)
	return c.Cluster != nil && j.unusable(name) == nil && j.answered(name, c.connection, &traffic.Breaker)
}

// answered reports whether the cluster has answered shards, or a probe over this connection, lately.
func (j *clusterJudge) answered(name keyspace.ClusterName, connection uint64, breaker *engage.Breaker) bool {
	if open, _ := breaker.Open(); open {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.verdicts[name]
	lately := (idleFactor + 1) * j.every
	if j.roster.engages(name) { // half as long again as the pause in conclude: until then the next probe has an answer
		lately = max(lately, time.Duration(j.watched)*time.Second/probesPerSecond*3/2)
	}
	return time.Since(breaker.LastUsable()) < lately ||
		v != nil && v.connection == connection && time.Since(v.probed) < lately
}

// verdictOn adds to a cluster's status what probes found. A cluster that can't be used counts as open even if no
// request of a shard has shown it: there may be none.
func (j *clusterJudge) verdictOn(name keyspace.ClusterName, c *ClusterStatus) {
	why := j.unusable(name)
	if why == nil {
		return
	}
	c.Unusable = why.Error()
	if c.State == protocol.ClusterOpen || c.State == protocol.ClusterHalfOpen {
		return
	}
	c.State, c.Cause = protocol.ClusterOpen, string(engage.Silence)
	switch {
	case apierrors.IsUnauthorized(why):
		c.Cause = string(engage.Unauthorized)
	case apierrors.IsTooManyRequests(why):
		c.Cause = string(engage.Throttling)
	case apierrors.IsInternalError(why):
		c.Cause = string(engage.Failing)
	case errors.Is(why, errUnavailable), apierrors.ReasonForError(why) != metav1.StatusReasonUnknown:
		c.Cause = string(engage.Unavailable)
	}
}

// ask checks whether a cluster can be used: it must give some answer in time. A request that fails at once is
// repeated, since one lost connection is no outage. Where nothing answers over a connection, another is opened: behind
// the same address there may be a server that is alive. It returns why the cluster can't be used, nil if it can.
func ask(ctx context.Context, c realCluster, breaker *engage.Breaker) (trouble error) {
	if open, why := breaker.Open(); open && why == engage.Silence {
		c.via.Redial()
	}
	for try := 0; ; try++ {
		sent := time.Now()
		err := askOnce(ctx, c)
		if errors.Is(err, context.DeadlineExceeded) {
			c.via.Redial() // for the next time
		}
		switch {
		case err == nil:
			return nil
		case breaker.LastUsable().After(sent) && !apierrors.IsUnauthorized(err): // another request was answered
			return nil
		case try > 0 || time.Since(sent) > time.Second || apierrors.IsUnauthorized(err):
			return err
		}
		if !sleep(ctx, againAfter) {
			return ctx.Err()
		}
	}
}

// errUnavailable says that an API server, or a proxy before it, can't serve anything now.
var errUnavailable = errors.New("it can't serve anything now")

func askOnce(ctx context.Context, c realCluster) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, engage.ErrStalled)
	defer cancel()
	status, err := kubeconfig.Ask(ctx, c.via.Config(), false)
	switch {
	case err != nil:
		return err
	case status == http.StatusUnauthorized:
		return apierrors.NewUnauthorized("the credentials are refused")
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout,
		status == http.StatusNotFound, status >= 300 && status < 400: // an API server has this path, and doesn't redirect
		return fmt.Errorf("asking for the version: %w: %d %s", errUnavailable, status, http.StatusText(status))
	}
	return nil
}
