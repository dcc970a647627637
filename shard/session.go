package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// session is one incarnation of this process, from its first Lease to its lapse or its leaving. One loop owns the
// protocol's state machine and everything that isn't marked as shared.
type session struct {
	node    *Node
	id      protocol.Incarnation
	log     logr.Logger
	machine *ownership.Replica
	cache   cache.Cache // of the records
	members *member.Store
	records *record.Store
	mail    *mailbox[message]
	writes  chan struct{} // bounds concurrent record writes

	ctx      context.Context // ends with the session
	cancel   context.CancelFunc
	wg       sync.WaitGroup // all goroutines of the session
	shards   map[keyspace.ShardID]*engagement
	leftAt   time.Time // when leaving began, zero before
	ended    error     // why the loop is to end, with done set
	done     bool
	measured time.Time
	// The status is published when something was done, and now and then for what is counted.
	news      bool
	published time.Time
	load      map[keyspace.ShardID]loadSample
	// What the last survey found; the maps are never changed, only replaced.
	unserved, moving map[keyspace.ShardID]time.Time
	claims           map[keyspace.ShardID]ownership.WriteShard // claims sent, for the log of what became of them
	announced        map[keyspace.ShardID]protocol.Epoch       // the latest tenure that was announced, by shard

	complaints sync.Mutex           // guards complained
	complained map[string]time.Time // when a failing write was last logged, by what it writes

	validUntil atomic.Pointer[ownership.Instant] // shared with every gate; nil while not a member
}

// message is one thing for the loop to do or to feed to the machine.
type message struct {
	input ownership.Input
	from  *engagement // the input counts only while this engagement is the shard's
	do    func()      // run by the loop, before the input
}

// newSession prepares an incarnation, with the memory of the one before; nothing is written or started before run.
func newSession(n *Node, scheme *runtime.Scheme, records cache.Cache, memory ownership.Memory) (*session, error) {
	id := n.newIncarnation()
	config := rest.CopyConfig(n.home)
	config.QPS = -1 // renewals must never wait for a client-side limit
	config.UserAgent = fmt.Sprintf("%s (coordination; incarnation=%s)", n.agent(), id)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: recordMapper()})
	if err != nil {
		return nil, fmt.Errorf("building the client of the home cluster: %w", err)
	}
	cfg := ownership.DefaultConfig(id, n.cfg.Replica, n.cfg.LeaseDuration)
	cfg.Build, cfg.Weight = n.cfg.Version, n.cfg.Weight
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("timings of the protocol: %w", err)
	}
	return &session{
		node: n, id: id, log: n.log.WithValues("incarnation", string(id)), machine: ownership.New(cfg, memory), cache: records,
		members: member.NewStore(c, n.cfg.Namespace), records: record.NewStore(c, n.cfg.Namespace),
		mail: newMailbox[message](), writes: make(chan struct{}, 64),
		shards: map[keyspace.ShardID]*engagement{}, load: map[keyspace.ShardID]loadSample{},
		claims:     map[keyspace.ShardID]ownership.WriteShard{},
		announced:  map[keyspace.ShardID]protocol.Epoch{},
		complained: map[string]time.Time{},
	}, nil
}

// run takes part until the incarnation lapses (errLapsed), has left in order (nil), or must be given up for good.
func (s *session) run(ctx context.Context) error {
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.wg.Wait()
	defer s.cancel()
	defer s.closeAll()
	unwatch, err := s.watch()
	if err != nil {
		return err
	}
	defer unwatch()
	s.node.fleet.notify(func() { s.mail.put(message{do: s.feedClusters}) })
	defer s.node.fleet.notify(nil)
	s.feedClusters()
	s.spawn(func() { s.sealStopped(s.ctx) })
	s.log.Info("taking part", "namespace", s.node.cfg.Namespace, "leaseDuration", s.node.cfg.LeaseDuration.String())
	s.step(ownership.Tick{})
	return s.loop()
}

// loop feeds the machine until the session is over.
func (s *session) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	leaving := s.node.leaving
	for !s.done {
		s.node.turned.Store(int64(s.node.now().Mono))
		timer.Reset(max(0, s.machine.Wake()-s.node.now().Mono))
		select {
		case <-s.mail.ready:
			for _, m := range s.mail.take() {
				s.handle(m)
			}
		case <-timer.C:
			s.measure()
			s.overstayed()
			s.step(ownership.Tick{})
		case <-leaving:
			leaving = nil
			s.leftAt = time.Now()
			s.log.Info("leaving: handing shards off")
			s.step(ownership.Leave{})
		case <-s.ctx.Done():
			return nil // the process is torn down without notice: peers will find our Lease standing still
		}
		if s.news || time.Since(s.published) > time.Second {
			s.publish()
		}
	}
	return s.ended
}

// handle takes one message, unless the session ended while it waited.
func (s *session) handle(m message) {
	if s.done {
		return
	}
	if m.do != nil {
		m.do()
	}
	if m.input == nil || s.done || (m.from != nil && s.shards[m.from.id] != m.from) {
		return
	}
	s.step(m.input)
}

// step feeds one input and does what follows from it.
func (s *session) step(in ownership.Input) {
	now := s.node.now()
	effects := s.machine.Step(now, in)
	if s.machine.Valid(now) {
		until := s.machine.ValidUntil()
		s.validUntil.Store(&until)
	}
	for _, e := range effects {
		s.news = true
		s.perform(e)
	}
}

// end makes the loop return.
func (s *session) end(err error) {
	if !s.done {
		s.done, s.ended = true, err
	}
}

// valid reports whether the incarnation may act at this very moment; gates ask it at every passage.
func (s *session) valid() bool {
	until := s.validUntil.Load()
	if until == nil {
		return false
	}
	now := s.node.now()
	return now.Mono < until.Mono && now.Wall < until.Wall
}

// overstayed ends a leaving that takes longer than drains may: what is left is found by the peers as after a crash.
func (s *session) overstayed() {
	limit := s.node.cfg.DrainTimeout + s.node.cfg.LeaseDuration
	if !s.leftAt.IsZero() && time.Since(s.leftAt) > limit {
		s.end(fmt.Errorf("leaving took longer than %v: shards are left to be taken over", limit))
	}
}

// feedClusters tells the machine which clusters exist. A cluster whose connection was replaced counts as gone until
// the last shard over the old connection is closed; then it comes back.
func (s *session) feedClusters() {
	all := s.node.fleet.all()
	bits := make(map[keyspace.ClusterName]int, len(all))
	for name := range all {
		if s.node.sharded(name) {
			bits[name] = s.node.cfg.ShardBits
		}
	}
	for id, e := range s.shards {
		if over := e.over(); over != nil && over != all[id.Cluster] {
			delete(bits, id.Cluster)
		}
	}
	s.step(ownership.Clusters{Bits: bits})
	for _, e := range s.shards {
		s.reach(e)
	}
}

// watch feeds every version of the records to the loop. The returned function ends that.
func (s *session) watch() (func(), error) {
	leases, err := s.follow(&coordinationv1.Lease{}, func(obj client.Object) (ownership.Input, error) {
		return member.Seen(obj.(*coordinationv1.Lease))
	}, func(obj client.Object) {
		s.mail.put(message{input: ownership.LeaseGone{ID: protocol.Incarnation(obj.GetName())}})
	})
	if err != nil {
		return nil, err
	}
	shards, err := s.follow(&tenurev1alpha1.Shard{}, func(obj client.Object) (ownership.Input, error) {
		return record.Seen(obj.(*tenurev1alpha1.Shard))
	}, s.shardDeleted)
	if err != nil {
		leases.remove()
		return nil, err
	}
	s.spawn(func() {
		for _, f := range []*follower{leases, shards} {
			select {
			case <-f.registration.HasSyncedChecker().Done():
			case <-s.ctx.Done():
				return
			}
		}
		s.mail.put(message{input: ownership.Synced{}})
	})
	return func() { leases.remove(); shards.remove() }, nil
}

// follower is one registered handler.
type follower struct {
	informer     cache.Informer
	registration toolscache.ResourceEventHandlerRegistration
}

func (f *follower) remove() { _ = f.informer.RemoveEventHandler(f.registration) }

func (s *session) follow(obj client.Object, seen func(client.Object) (ownership.Input, error), gone func(client.Object)) (*follower, error) {
	informer, err := s.cache.GetInformer(s.ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %T in the home cluster: %w", obj, err)
	}
	put := func(obj any) {
		in, err := seen(obj.(client.Object))
		if err != nil {
			s.log.Error(err, "record is ignored")
			return
		}
		s.mail.put(message{input: in})
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, obj any) { put(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			gone(obj.(client.Object))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching %T in the home cluster: %w", obj, err)
	}
	return &follower{informer, registration}, nil
}

// shardDeleted confirms the deletion of a record live before it is believed: it makes a holder stop.
func (s *session) shardDeleted(obj client.Object) {
	id, err := record.ID(obj.(*tenurev1alpha1.Shard))
	if err != nil {
		return // was never a record of ours
	}
	s.spawn(func() {
		for s.ctx.Err() == nil {
			in, err := s.readShard(s.ctx, id)
			if err == nil {
				s.mail.put(message{input: in})
				return
			}
			s.log.Error(err, "can't confirm that a record was deleted")
			select {
			case <-time.After(time.Second):
			case <-s.ctx.Done():
			}
		}
	})
}

// spawn runs a function beside the loop; the session waits for it at its end.
func (s *session) spawn(f func()) { s.wg.Go(f) }

// closeAll shuts whatever is still engaged when the session ends, and makes sure that nothing of it writes any more.
func (s *session) closeAll() {
	quiet := true
	for _, e := range s.shards {
		e.shut()
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 2*time.Second)
	defer cancel()
	for id, e := range s.shards {
		if err := e.gate.Drain(deadline, 0, time.Second); err != nil {
			quiet = false
		}
		s.node.setEngaged(e.name(), nil)
		delete(s.shards, id)
	}
	if member := s.validUntil.Load() != nil; member && quiet && errors.Is(s.ended, errLapsed) {
		s.node.setStopped(s.id, true)
		s.sealStopped(deadline)
	}
	s.publish()
}

// sealStopped tells the peers that incarnations of this process which have stopped for certain are over, so that they
// need not wait for their Leases to run out. It tries until it has or the context ends: an incarnation that lapses as the
// home cluster is away leaves that to the next. (A renewal of it may yet arrive, and let its Lease look alive.)
func (s *session) sealStopped(ctx context.Context) {
	for _, id := range s.node.allStopped() {
		for err := s.seal(ctx, id); err != nil; err = s.seal(ctx, id) {
			select {
			case <-time.After(s.timeout() / 2):
			case <-ctx.Done():
				s.log.Info("couldn't tell peers that an incarnation is over", "over", string(id), "error", err.Error())
				return
			}
		}
		s.node.setStopped(id, false)
	}
}

// seal seals an incarnation's Lease, if it is there and isn't sealed.
func (s *session) seal(ctx context.Context, id protocol.Incarnation) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	in, err := s.members.Read(ctx, string(id))
	if seen, ok := in.(ownership.LeaseSeen); err == nil && ok && !seen.Lease.Sealed {
		_, err = s.members.Seal(ctx, seen.Lease.Version, id, s.id)
	}
	return err
}
