package shard

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// verdict is what becomes of a connection that the provider offers for a cluster that has one.
type verdict uint8

const (
	// later: it can't be told yet, since the cluster doesn't answer. The connection in use stays, and it is asked again.
	later verdict = iota
	// refuse: it doesn't work, or can do less than the one in use, which stays. It is asked again, since rights come late.
	refuse
	// replace: the same cluster behind the same server. The credentials and TLS of the connection in use are replaced, and
	// nothing else notices.
	replace
	// beside: the same cluster behind another server. Each shard fills caches over the new connection beside those that it
	// has, and goes over when they are full. No record is written.
	beside
	// another: another cluster under the same name. The shards of the one in use are given up first.
	another
)

// evidence is what a verdict on an offer is made of.
type evidence struct {
	sameServer bool
	inUse      types.UID // of the cluster in use, "" if it isn't known
	offered    types.UID // of the one that is offered
	err        error     // why that isn't known
	lost       bool      // the credentials in use are refused by now
}

// judge decides what becomes of an offer.
func judge(e evidence) verdict {
	switch {
	case e.err == nil && e.offered == e.inUse && e.sameServer, e.err == nil && e.inUse == "" && e.sameServer:
		return replace
	case e.err == nil && e.offered == e.inUse:
		return beside
	case e.err == nil:
		return another
	case apierrors.IsForbidden(e.err), apierrors.IsNotFound(e.err):
		// they are good for something, but it doesn't say who it is
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

// The time between two questions to a cluster that didn't say who it is.
const (
	firstAskPause = 250 * time.Millisecond
	lastAskPause  = 10 * time.Second
	// refusedAskPause is for one that is served though it doesn't say: the right to ask may come late.
	refusedAskPause = time.Minute
)

// ask finds out which cluster a connection leads to, beside the caller, and does what follows from it.
func (f *fleet) ask(name keyspace.ClusterName, way uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx := f.ctx
	if ctx == nil {
		return // start asks
	}
	f.spawn(func() {
		for pause := firstAskPause; ; pause *= 2 {
			longest := f.askOnce(ctx, name, way)
			if longest == 0 {
				return
			}
			pause = min(pause, longest)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// askOnce returns the longest pause before the next question; 0 if there is nothing left to ask.
func (f *fleet) askOnce(ctx context.Context, name keyspace.ClusterName, way uint64) (longest time.Duration) {
	f.mu.Lock()
	s := f.clusters[name]
	if s == nil || s.given != way { // it went, or another was given since
		f.mu.Unlock()
		return 0
	}
	inUse, offered := s.connection, s.offer
	f.mu.Unlock()
	if offered == nil {
		uid, err := inUse.via.Identify(ctx)
		return f.identified(name, way, uid, err)
	}
	if offered.ctx.Err() != nil { // the grace decides
		return 0
	}
	e := evidence{sameServer: inUse.via.SameServer(offered.via), inUse: inUse.uid}
	if e.inUse == "" && !e.sameServer {
		e.inUse, _ = inUse.via.Identify(ctx)
	}
	e.offered, e.err = offered.via.Identify(ctx)
	if apierrors.IsForbidden(e.err) && e.inUse != "" {
		_, err := inUse.via.Identify(ctx)
		e.lost = apierrors.IsUnauthorized(err)
	}
	switch done := f.decide(name, offered, inUse.way, e); {
	case !done:
		return lastAskPause
	case e.err != nil: // in use from now on, and it didn't say
		return refusedAskPause
	}
	return 0
}

// identified notes which cluster the connection in use leads to. It returns the longest pause before the next question.
// A cluster that refuses to say is served without being known.
func (f *fleet) identified(name keyspace.ClusterName, way uint64, uid types.UID, err error) (longest time.Duration) {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		longest = refusedAskPause
	case err != nil:
		return lastAskPause
	}
	f.mu.Lock()
	s := f.clusters[name]
	current := s != nil && s.given == way && s.offer == nil
	news := current && (!s.identified || err == nil && s.uid != uid)
	if news {
		s.uid, s.identified = uid, true
	}
	f.mu.Unlock()
	if news {
		f.tell()
	}
	return longest
}

// decide acts on what was found out about an offer, if that and the connection in use are still the same.
func (f *fleet) decide(name keyspace.ClusterName, offered *offer, inUse uint64, e evidence) (done bool) {
	v := judge(e)
	log := f.log.WithValues("cluster", string(name), "server", offered.via.Config().Host)
	f.mu.Lock()
	s := f.clusters[name]
	if s == nil || s.offer != offered || s.way != inUse {
		f.mu.Unlock()
		return s == nil || s.offer != offered
	}
	c := offered.connection
	c.uid, c.identified = e.offered, true
	switch v {
	case later, refuse:
		first := s.refused == ""
		if v == refuse {
			s.refused = text.Line(e.err.Error(), text.Note/2)
		}
		why := s.refused
		f.mu.Unlock()
		if first && v == refuse {
			log.Info("new credentials of the cluster are refused; the last that worked stay in use", "error", why)
		}
		return false
	case replace:
		s.via.Replace(offered.via)
		c.via, c.number, c.way = s.via, s.number, s.way
		if c.uid == "" {
			c.uid = s.uid
		}
	case beside:
		c.number = s.number
	case another:
	}
	s.connection, s.offer, s.refused = c, nil, ""
	breaker := &f.trafficOf(name).Breaker
	if _, why := breaker.Open(); v != replace || why == engage.Unauthorized {
		breaker.Reset() // what the server before refused, or these credentials did
	}
	f.mu.Unlock()
	switch v {
	case replace:
		log.Info("cluster's credentials replaced")
	case beside:
		log.Info("cluster is reached by another server: shards go over when their caches are full")
	case another:
		log.Info("another cluster has this name now: the shards of the one before are given up")
	}
	f.tell()
	return true
}
