package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	// lookTimeout is how long an API server may take for the small answer that shows that it can be used. A slow one isn't
	// an unusable one.
	lookTimeout = 3 * time.Second
	// againAfter is when a look that failed at once is repeated, before anything is concluded.
	againAfter = 500 * time.Millisecond
	// restsAfter is for how long a connection to a cluster of which nothing is held may be idle, in times that are between
	// two signs of life of one of which something is.
	restsAfter = 4
	// looksPerSecond bounds how often this process looks at all clusters together. With more clusters than that allows,
	// each is looked at less often.
	looksPerSecond = 50
)

// clusterJudge says which workload clusters can be used from this process: one judgement per cluster, by what the shards'
// requests show (the cluster's breaker) and, where they show nothing, by looks of its own. It looks at the clusters of
// which something is held or warmed here and at those that can't be used, and at others only when asked; to those it keeps
// no connection open. It is safe for concurrent use.
type clusterJudge struct {
	clusters *fleet
	roster   *roster
	log      logr.Logger
	every    time.Duration // between two signs of life of a cluster, at the least
	put      func(driver.Event)
	spawn    func(func())

	mu       sync.Mutex // guards all below
	verdicts map[keyspace.ClusterName]*clusterVerdict
}

// clusterVerdict is what is known of one cluster.
type clusterVerdict struct {
	way     uint64 // that it is about
	looking bool
	looked  time.Time // when it was last looked at
	next    time.Time // when it is looked at next, unless it is heard of
	rested  time.Time // when connections that aren't in use were last closed
	known   bool
	trouble string // why it can't be used, "" if it can
	since   time.Time
}

func newJudge(clusters *fleet, roster *roster, lease time.Duration, log logr.Logger, put func(driver.Event), spawn func(func())) *clusterJudge {
	return &clusterJudge{
		clusters: clusters, roster: roster, log: log, put: put, spawn: spawn,
		every: min(max(lease/4, time.Second), 5*time.Second), verdicts: map[keyspace.ClusterName]*clusterVerdict{},
	}
}

// run looks at clusters until the context ends.
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
			j.look(ctx, name)
		}
	}
}

// due returns the clusters that it is time to look at.
func (j *clusterJudge) due(now time.Time) (names []keyspace.ClusterName) {
	here := map[keyspace.ClusterName]bool{}
	for _, e := range j.roster.all() {
		here[e.id.Cluster] = true
	}
	all := j.clusters.all()
	j.mu.Lock()
	defer j.mu.Unlock()
	for name := range j.verdicts {
		if _, there := all[name]; !there {
			delete(j.verdicts, name)
		}
	}
	for name, c := range all {
		v := j.verdict(name, c.way)
		if !here[name] && now.Sub(v.rested) >= restsAfter*j.every {
			v.rested = now
			c.via.Rest() // looks, and whoever else asks now and then, leave a connection open
		}
		if v.looking || (!here[name] && v.trouble == "") {
			continue
		}
		_, traffic := j.clusters.get(name)
		heard := traffic.Breaker.LastAnswer()
		fails := traffic.Breaker.Silent() && v.trouble == "" // requests fail, and that isn't explained yet
		if fails || (now.After(v.next) && now.Sub(heard) >= j.every) || (v.trouble != "" && heard.After(v.looked)) {
			names = append(names, name)
		}
	}
	return names
}

// verdict returns what is known of a cluster. Another way to it is looked at soon. Call it with the lock held.
func (j *clusterJudge) verdict(name keyspace.ClusterName, way uint64) *clusterVerdict {
	v := j.verdicts[name]
	if v == nil {
		v = &clusterVerdict{way: way, rested: time.Now()}
		j.verdicts[name] = v
	}
	if v.way != way {
		v.way, v.next = way, time.Time{}
	}
	return v
}

// look asks a cluster beside its caller, and tells the driver what comes of it.
func (j *clusterJudge) look(ctx context.Context, name keyspace.ClusterName) {
	c, traffic := j.clusters.get(name)
	if c.Cluster == nil {
		return // the driver knows
	}
	j.mu.Lock()
	v := j.verdict(name, c.way)
	busy := v.looking
	v.looking = true
	j.mu.Unlock()
	if busy {
		return
	}
	j.spawn(func() {
		trouble := ask(ctx, c, &traffic.Breaker)
		if ctx.Err() == nil {
			j.conclude(name, c.way, trouble)
		}
	})
}

// conclude takes a look's result.
func (j *clusterJudge) conclude(name keyspace.ClusterName, way uint64, trouble string) {
	now := time.Now()
	j.mu.Lock()
	v := j.verdict(name, way)
	changed := !v.known || (v.trouble == "") != (trouble == "")
	if changed {
		v.since = now
	}
	was := v.trouble
	v.looking, v.known, v.trouble, v.looked = false, true, trouble, now
	pause := max(j.every, time.Duration(len(j.verdicts))*time.Second/looksPerSecond)
	v.next = now.Add(pause - pause/8 + rand.N(pause/4)) // so that replicas don't look all at once
	j.mu.Unlock()
	switch {
	case trouble != "" && changed:
		j.log.Info("cluster can't be used from here; its shards go to replicas that can use it", "cluster", string(name), "error", trouble)
	case trouble == "" && was != "":
		j.log.Info("cluster can be used from here again", "cluster", string(name))
	}
	j.put(driver.Health{Cluster: name, Usable: trouble == ""})
}

// trouble returns why a cluster can't be used from here, and since when; "" where it can, or nothing is known.
func (j *clusterJudge) trouble(name keyspace.ClusterName) (why string, since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if v := j.verdicts[name]; v != nil && v.trouble != "" {
		return v.trouble, v.since
	}
	return "", time.Time{}
}

// ask finds out whether a cluster can be used: it must give some answer in time. One that fails at once is asked again,
// since one lost connection is no outage. It returns why not.
func ask(ctx context.Context, c connection, breaker *engage.Breaker) (trouble string) {
	for try := 0; ; try++ {
		sent := time.Now()
		err := askOnce(ctx, c)
		switch {
		case err == nil:
			return ""
		case breaker.LastAnswer().After(sent) && !errors.Is(err, errRefused): // others were answered meanwhile
			return ""
		case try > 0 || time.Since(sent) > time.Second || errors.Is(err, errRefused):
			return err.Error()
		}
		select {
		case <-ctx.Done():
			return ctx.Err().Error()
		case <-time.After(againAfter):
		}
	}
}

// errRefused says that an API server doesn't accept who we are.
var errRefused = errors.New("the credentials are refused")

func askOnce(ctx context.Context, c connection) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, engage.ErrStalled)
	defer cancel()
	config := c.via.Config()
	config.UserAgent = "tenure (health)"
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/version", nil)
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("asking for the version: %w", err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return errRefused
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("asking for the version: %s", res.Status)
	}
	return nil
}
