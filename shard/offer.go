package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// offerVerdict says what to do with a connection that the provider offers for a cluster that has one.
type offerVerdict uint8

const (
	// later: undecided, since the offered connection's cluster doesn't answer. The connection in use stays, and the
	// offer is asked again.
	later offerVerdict = iota
	// refuse: the offer doesn't work, or can do less than the connection in use, which stays. The offer is asked
	// again, since rights may be granted later.
	refuse
	// replace: the same cluster behind the same server. The credentials and TLS of the connection in use are
	// replaced; nothing else changes.
	replace
	// beside: the same cluster behind another server. Each shard fills caches over the new connection beside those
	// that it has, and changes over when they are full. No record is written.
	beside
	// another: another cluster under the same name. The shards of the one in use are given up first.
	another
)

// evidence is what a verdict on an offer is based on.
type evidence struct {
	sameServer bool
	inUse      types.UID // of the cluster in use, "" if it isn't known
	offered    types.UID // of the one that is offered
	err        error     // why offered isn't known, or can do less than the one in use
	lost       bool      // the credentials in use are refused by now
}

// judgeOffer decides what becomes of an offer.
func judgeOffer(e evidence) offerVerdict {
	switch {
	case e.err == nil && e.offered == e.inUse && e.sameServer, e.err == nil && e.inUse == "" && e.sameServer:
		return replace
	case e.err == nil && e.offered == e.inUse:
		return beside
	case e.err == nil:
		return another
	case cas.ByProxy(e.err): // no API server has said that
	case apierrors.IsForbidden(e.err), apierrors.IsNotFound(e.err):
		// the credentials are accepted, but may not do enough: ask which cluster it is, or list what is divided
		switch {
		case e.inUse != "" && !e.lost:
			return refuse
		case e.sameServer:
			return replace
		}
		return another
	case apierrors.IsUnauthorized(e.err):
		return refuse
	}
	return later
}

// Pauses between two attempts to identify a cluster.
const (
	firstAskPause = 250 * time.Millisecond
	lastAskPause  = 10 * time.Second
	// refusedAskPause is for a cluster that is served although it refuses to identify itself: the right to ask may be
	// granted later.
	refusedAskPause = time.Minute
	// proxyPatience is for how long the refusals of a proxy count as no answer: an ingress that reloads answers 404 to
	// everything for a moment. One that goes on may be the only way to the cluster.
	proxyPatience = time.Minute
)

// identify finds out which cluster a connection leads to, concurrently, and acts on the result.
func (cs *clusterSet) identify(name keyspace.ClusterName, connection uint64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	ctx := cs.ctx
	if ctx == nil {
		return // start will ask
	}
	cs.spawn(func() {
		var since refusedSince
		for pause := firstAskPause; ; pause *= 2 {
			longest := cs.identifyOnce(ctx, name, connection, &since)
			if longest == 0 {
				return
			}
			pause = min(pause, longest)
			if !sleep(ctx, pause) {
				return
			}
		}
	})
}

// refusedSince is since when a proxy has refused each question, without any other answer; zero if it hasn't.
type refusedSince struct{ inUse, offered time.Time }

// whose asks a connection which cluster it leads to. For proxyPatience, a proxy's refusal is no answer.
func whose(ctx context.Context, via *engage.Connection, refusing *time.Time) (types.UID, error) {
	uid, err := via.Identify(ctx)
	switch {
	case err == nil || !cas.ByProxy(err):
		*refusing = time.Time{}
		return uid, err
	case refusing.IsZero():
		*refusing = time.Now()
	}
	if time.Since(*refusing) < proxyPatience {
		err = errors.New(err.Error()) // without the code, which is the proxy's
	}
	return "", err
}

// doesLess returns why an offered connection may not list kinds that the one in use may list; nil if it may, if neither
// may, or if the credentials in use are refused by now.
func doesLess(ctx context.Context, kinds []client.Object, offered, inUse *engage.Connection) error {
	_, err := offered.Count(ctx, kinds)
	if !apierrors.IsForbidden(err) || cas.ByProxy(err) {
		return nil
	}
	if _, before := inUse.Count(ctx, kinds); apierrors.IsForbidden(before) || apierrors.IsUnauthorized(before) {
		return nil
	}
	return err
}

// identifyOnce returns the longest pause before the next question; 0 if there is nothing left to ask.
func (cs *clusterSet) identifyOnce(ctx context.Context, name keyspace.ClusterName, connection uint64,
	since *refusedSince) (longest time.Duration) {
	cs.mu.Lock()
	s := cs.clusters[name]
	if s == nil || s.given != connection { // it went, or another was given since
		cs.mu.Unlock()
		return 0
	}
	inUse, offered := s.realCluster, s.offer
	cs.mu.Unlock()
	if offered != nil && offered.ctx.Err() != nil { // takeBack decides, after the grace
		return 0
	}
	if offered == nil || inUse.uid == "" { // whatever becomes of the offer, this one is in use
		uid, err := whose(ctx, inUse.via, &since.inUse)
		pause := cs.identified(name, inUse.connection, connection, uid, err)
		if offered == nil {
			return pause
		}
		inUse.uid = uid
	}
	e := evidence{sameServer: inUse.via.SameServer(offered.via), inUse: inUse.uid}
	e.offered, e.err = whose(ctx, offered.via, &since.offered)
	if e.err == nil && e.offered == e.inUse {
		e.err = doesLess(ctx, cs.primary(name), offered.via, inUse.via)
	}
	if apierrors.IsForbidden(e.err) && e.inUse != "" {
		_, err := inUse.via.Identify(ctx)
		e.lost = apierrors.IsUnauthorized(err)
	}
	switch done := cs.decide(name, offered, inUse.connection, e); {
	case !done:
		return lastAskPause
	case e.err != nil: // the offer is in use from now on, but its cluster isn't identified
		return refusedAskPause
	}
	return 0
}

// identified records which cluster the connection in use leads to, unless that or the last that was given has changed
// since it was asked. It returns the longest pause before the next attempt. A cluster that refuses to identify itself
// is served without being known.
func (cs *clusterSet) identified(name keyspace.ClusterName, connection, given uint64, uid types.UID,
	err error) (longest time.Duration) {
	cs.mu.Lock()
	s := cs.clusters[name]
	current := s != nil && s.connection == connection && s.given == given
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		longest = refusedAskPause
	case err != nil:
		if current && !s.identified {
			s.unknown = fmt.Errorf("it isn't served until it says which cluster it is: GET namespace kube-system: %w", err)
		}
		cs.mu.Unlock()
		return lastAskPause
	}
	news := current && (!s.identified || err == nil && s.uid != uid)
	if news {
		s.uid, s.identified, s.unknown = uid, true, nil
	}
	cs.mu.Unlock()
	if news {
		cs.notify()
	}
	return longest
}

// decide acts on the evidence about an offer, unless the offer or the connection in use has changed meanwhile. done
// is false if the offer must be asked again.
func (cs *clusterSet) decide(name keyspace.ClusterName, offered *offer, inUse uint64, e evidence) (done bool) {
	v := judgeOffer(e)
	log := cs.log.WithValues("cluster", string(name), "server", offered.via.Config().Host)
	cs.mu.Lock()
	s := cs.clusters[name]
	if over := s == nil || s.offer != offered; over || s.connection != inUse {
		cs.mu.Unlock()
		return over
	}
	c := offered.realCluster
	c.uid, c.identified = e.offered, true
	switch v {
	case later, refuse:
		first := s.refused == ""
		if v == refuse {
			s.refused = text.Line(e.err.Error(), text.Note/2)
		}
		why := s.refused
		cs.mu.Unlock()
		if first && v == refuse {
			log.Info("new credentials of the cluster are refused; the last that worked stay in use", "error", why)
		}
		return false
	case replace:
		s.via.Replace(offered.via)
		c.via, c.clusterNo, c.connection = s.via, s.clusterNo, s.connection
		if c.uid == "" {
			c.uid = s.uid
		}
	case beside:
		c.clusterNo = s.clusterNo
	case another:
	}
	news := v != replace || !s.identified || c.uid != s.uid
	s.realCluster, s.offer = c, nil
	breaker := &cs.trafficOf(name).Breaker
	if _, why := breaker.Open(); v != replace || why == engage.Unauthorized {
		breaker.Reset() // what it holds against the old server, or the old credentials, is void
	}
	cs.mu.Unlock()
	switch v {
	case replace:
		log.Info("cluster's credentials replaced")
	case beside:
		log.Info("cluster is reached by another server: shards go over when their caches are full")
	case another:
		log.Info("another cluster has this name now: the shards of the one before are given up")
	}
	if news {
		cs.notify()
	}
	return true
}
