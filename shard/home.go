package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// homeClient carries out the driver's writes and reads at the home cluster, for one incarnation. Each runs beside the
// loop and is answered by an event.
type homeClient struct {
	id       protocol.Incarnation
	fleet    keyspace.Fleet
	log      logr.Logger
	failures *homeFailures
	observer Observer
	client   client.Client
	members  *member.Store
	records  *record.Store
	mail     *mailbox[driver.Event]
	clock    clock
	spawn    func(func())
	again    bool            // the process had an incarnation before
	ctx      context.Context // bounds the requests in flight
	cancel   context.CancelFunc
}

// coordinating returns the configuration of a client of the home cluster. by adds to the User-Agent.
func coordinating(rc *rest.Config, cfg Config, by string) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.QPS = -1 // no client-side limit: renewals must never wait for one, and the driver bounds the requests in flight
	rc.UserAgent = fmt.Sprintf("%s (coordination%s)", cfg.agent(), by)
	return rc
}

// newClient returns a client of the home cluster that sends requests by what over makes. It sends nothing itself.
func newClient(rc *rest.Config, scheme *runtime.Scheme,
	over func(*rest.Config) (*http.Client, error)) (c client.Client, err error) {
	by, err := over(rc)
	if err == nil {
		c, err = client.New(rc, client.Options{Scheme: scheme, Mapper: recordMapper(), HTTPClient: by})
	}
	if err != nil {
		return nil, fmt.Errorf("building the client of the home cluster: %w", err)
	}
	return c, nil
}

// newHomeClient returns an incarnation's client of the home cluster. It sends nothing.
func (l *loop) newHomeClient(id protocol.Incarnation, log logr.Logger) (*homeClient, error) {
	rc := coordinating(l.homeConfig, l.cfg, "; incarnation="+string(id))
	rc.Wrap(engage.Obedient)
	// A renewal mustn't wait for a dead server. Nor must a new incarnation wait for the server that its predecessor
	// waited for.
	c, err := newClient(rc, l.scheme, engage.Redialing)
	if err != nil {
		return nil, err
	}
	h := &homeClient{
		id: id, fleet: l.cfg.Fleet, log: log, failures: l.failures, observer: l.cfg.Observer, mail: l.mail, clock: l.clock,
		spawn: l.beside.Go, again: l.homeClient != nil, client: c,
		members: member.NewStore(c, l.cfg.Namespace, l.cfg.Fleet), records: record.NewStore(c, l.cfg.Namespace, l.cfg.Fleet),
	}
	h.members.Say = l.say
	if h.again { // the last incarnation's requests have ended, but for one that seals its Lease: that must go on
		h.ctx, h.cancel = l.homeClient.ctx, l.homeClient.cancel
	} else {
		h.restart(l.ctx)
	}
	return h, nil
}

// restart cancels all requests in flight. Later requests aren't affected.
func (h *homeClient) restart(ctx context.Context) {
	if h.cancel != nil {
		h.cancel()
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
}

// write makes one write, within its timeout, and puts its result.
func (h *homeClient) write(w driver.Write) {
	h.announce(w)
	step, isStep := stepOf(w, h.id)
	bound := h.ctx
	h.spawn(func() {
		ctx, cancel := context.WithTimeout(bound, w.Patience)
		defer cancel()
		ctx, asked := engage.Obeying(ctx)
		var version ownership.Version
		err := h.readable(ctx, w)
		if err == nil {
			step.Start = time.Now()
			version, err = h.send(ctx, w)
		}
		at := h.clock.now()
		what, outcome := driver.What(w.Effect), cas.Outcome(err)
		if isStep {
			step.Outcome = outcome
			step.done(h.observer)
		}
		h.observer.Wrote(what, outcome)
		cause := cas.Cause(err)
		switch {
		case err == nil:
		case bound.Err() != nil || cause == ownership.Conflict:
			// cancelled, or another replica was faster: both are normal
			h.log.V(1).Info("record not written", "what", what, "outcome", outcome.String(), "error", err.Error())
		default:
			h.failures.report(what, err)
		}
		if w.Number == 0 {
			return
		}
		put := h.mail.put
		if _, renewal := w.Effect.(ownership.WriteLease); renewal {
			put = h.mail.putUrgent // the incarnation lapses if that waits for long
		}
		put(driver.Written{Number: w.Number, Outcome: outcome, Version: version, Cause: cause, After: asked.Wait(nil),
			At: at})
	})
}

// readable reports why a process that has lapsed mustn't take part again: while it can't read home, peers would leave
// shards to it, and it wouldn't see that.
func (h *homeClient) readable(ctx context.Context, w driver.Write) error {
	if e, ok := w.Effect.(ownership.WriteLease); !ok || e.Base != 0 || !h.again {
		return nil
	}
	if err := h.records.Readable(ctx); err != nil {
		return fmt.Errorf("taking part again: %w", err)
	}
	return nil
}

// announce logs important writes before their outcome is known.
func (h *homeClient) announce(w driver.Write) {
	switch e := w.Effect.(type) {
	case ownership.SealLease:
		if e.Seq != 0 {
			why := "peer stood still for its whole lease: sealing it"
			if e.Ended {
				why = "peer's container has ended: sealing it"
			}
			h.log.Info(why, "peer", string(e.ID))
		}
	case ownership.WriteLayout:
		h.log.Info("dividing cluster", "cluster", string(e.Layout.Cluster), "generation", e.Layout.Generation,
			"shards", len(e.Layout.Prefixes), "clusterUID", e.Layout.UID)
	case ownership.WriteAssignee:
		h.log.Info("moving shard", "shard", e.ID.String(), "to", string(e.Assignee))
	}
}

// send sends a write's request.
func (h *homeClient) send(ctx context.Context, w driver.Write) (ownership.Version, error) {
	switch e := w.Effect.(type) {
	case ownership.WriteLease:
		return h.members.Write(ctx, e.Base, e.Lease, time.Now())
	case ownership.SealLease:
		return h.members.Seal(ctx, e.Base, e.ID, h.id)
	case ownership.ForgetLease:
		return 0, h.members.Drop(ctx, e.ID)
	case ownership.DropLease:
		return 0, h.members.Drop(ctx, h.id)
	case ownership.WriteLead:
		return h.members.WriteLead(ctx, e.Base, e.Lead, time.Now())
	case ownership.WriteLayout:
		return h.records.WriteLayout(ctx, e)
	case ownership.CreateShard:
		return h.records.Create(ctx, e)
	case ownership.WriteAssignee:
		return h.records.WriteAssignee(ctx, e)
	case ownership.WriteShard:
		var ended time.Time
		if w.Of != nil {
			ended = w.Of.Ended
		}
		return h.records.WriteStatus(ctx, e, ended)
	}
	return 0, fmt.Errorf("%T writes no record", w.Effect)
}

// read reads one record live, within its timeout.
func (h *homeClient) read(r driver.Read) {
	bound := h.ctx
	h.spawn(func() {
		ctx, cancel := context.WithTimeout(bound, r.Patience)
		defer cancel()
		in, err := h.reading(ctx, r.Of)
		at := h.clock.now()
		if err != nil && bound.Err() == nil {
			h.failures.report("Read", err)
		}
		put := h.mail.put
		if r.Of.Lease == h.id {
			put = h.mail.putUrgent // if it waits for long, it allows nothing any more
		}
		put(driver.Found{Number: r.Number, What: in, At: at})
	})
}

func (h *homeClient) reading(ctx context.Context, of driver.Subject) (ownership.Input, error) {
	switch {
	case of.All:
		return h.list(ctx)
	case of.Lease != "":
		return h.members.Read(ctx, string(of.Lease))
	case of.Layout != "":
		return h.records.ReadLayout(ctx, of.Layout)
	case of.Shard != (keyspace.ShardID{}):
		return h.records.Read(ctx, of.Shard)
	}
	return h.members.Read(ctx, tenurev1alpha1.CoordinatorLease(string(h.fleet)))
}

// A list that home has no room for is repeated after a time that doubles.
const (
	listPause     = 100 * time.Millisecond
	listPauseMost = time.Second
)

// list reads all records live, by a list of Leases and one of Shards. While there is time, each of the two is repeated
// separately if home has no room for it: where home refuses half of all requests, it would hardly ever answer both at
// once, and this replica would lapse.
func (h *homeClient) list(ctx context.Context) (ownership.Input, error) {
	var all, members ownership.Listing
	var leases, shards error
	var both sync.WaitGroup
	both.Go(func() {
		h.patiently(ctx, func() error {
			members.Leases, members.Lead, leases = h.members.List(ctx)
			return leases
		})
	})
	both.Go(func() {
		h.patiently(ctx, func() error {
			all, shards = h.records.List(ctx)
			return shards
		})
	})
	both.Wait()
	if err := errors.Join(leases, shards); err != nil {
		return nil, err
	}
	all.Leases, all.Lead = members.Leases, members.Lead
	return all, nil
}

// patiently repeats a list for as long as home has no room for it. The log tells of each refusal: the last may be cut
// off by a lapse.
func (h *homeClient) patiently(ctx context.Context, list func() error) {
	retry(ctx, listPause, listPauseMost, func() bool {
		err := list()
		full := apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
		if full {
			h.failures.report("Read", err)
		}
		return !full
	})
}
