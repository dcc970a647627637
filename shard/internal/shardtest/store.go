package shardtest

import (
	"slices"
	"strconv"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// stream is one kind of record. Each has a watch of its own, and no order between two of them is promised.
type stream int

const (
	leases stream = iota
	shards
	leads
	containers
	streams
)

func (s stream) String() string { return [...]string{"leases", "shards", "lead", "pods"}[s] }

// store is the home cluster: records under compare-and-swap with one version for all, as in etcd.
type store struct {
	records
	log  [streams][]ownership.Input // what a watch shows
	uids uint64                     // how many records were ever created
	// the versions of all histories; nil unless the schedule replaces the history
	used map[used]bool
}

// records is what the store holds at one moment.
type records struct {
	version ownership.Version
	leases  rows[ownership.Incarnation, ownership.Lease]
	shards  rows[keyspace.ShardID, ownership.Shard]
	layouts rows[keyspace.ClusterName, ownership.Layout]
	lead    ownership.Lead
}

func (r *records) clone() records {
	return records{r.version, r.leases.clone(), r.shards.clone(), r.layouts.clone(), r.lead}
}

// rows is the records of one kind, in the order of their creation. The keys are apart, because a search is faster so.
type rows[K comparable, T any] struct {
	keys []K
	all  []T
}

func (r *rows[K, T]) find(key K) *T {
	if i := slices.Index(r.keys, key); i >= 0 {
		return &r.all[i]
	}
	return nil
}

func (r *rows[K, T]) put(key K, record T) {
	if old := r.find(key); old != nil {
		*old = record
		return
	}
	r.keys, r.all = append(r.keys, key), append(r.all, record)
}

// delete reports whether there was such a record.
func (r *rows[K, T]) delete(key K) bool {
	i := slices.Index(r.keys, key)
	if i < 0 {
		return false
	}
	r.keys, r.all = slices.Delete(r.keys, i, i+1), slices.Delete(r.all, i, i+1)
	return true
}

func (r *rows[K, T]) clone() rows[K, T] { return rows[K, T]{slices.Clone(r.keys), slices.Clone(r.all)} }

// used is a version that a record had in any history.
type used struct {
	of      driver.Subject
	version ownership.Version
}

// next returns the version of a record's next write. It never gives a record a version that it had in another
// history, which is a case that schedules leave out.
func (s *store) next(of driver.Subject) ownership.Version {
	s.version++
	for s.used[used{of, s.version}] {
		s.version++
	}
	if s.used != nil {
		s.used[used{of, s.version}] = true
	}
	return s.version
}

func (s *store) reset() {
	s.records, s.uids, s.used = records{}, 0, nil
	for i := range s.log {
		clear(s.log[i])
		s.log[i] = s.log[i][:0]
	}
}

// newUID returns the UID of a record that is being created.
func (s *store) newUID() string {
	s.uids++
	return strconv.FormatUint(s.uids, 10)
}

// show adds an event to a stream.
func (s *store) show(on stream, what ownership.Input) {
	s.log[on] = append(s.log[on], what)
}

func (s *store) lease(id ownership.Incarnation) *ownership.Lease { return s.leases.find(id) }

func (s *store) putLease(l ownership.Lease) ownership.Version {
	l.Version = s.next(driver.Subject{Lease: l.ID})
	s.leases.put(l.ID, l)
	s.show(leases, ownership.LeaseSeen{Lease: l})
	return s.version
}

func (s *store) deleteLease(id ownership.Incarnation) {
	if s.leases.delete(id) {
		s.version++
		s.show(leases, ownership.LeaseGone{ID: id})
	}
}

func (s *store) shard(id keyspace.ShardID) *ownership.Shard { return s.shards.find(id) }

func (s *store) putShard(sh ownership.Shard) ownership.Version {
	sh.Version = s.next(driver.Subject{Shard: sh.ID})
	s.shards.put(sh.ID, sh)
	s.show(shards, ownership.ShardSeen{Shard: sh})
	return s.version
}

// deleteShard reports whether there was such a record.
func (s *store) deleteShard(id keyspace.ShardID) bool {
	if !s.shards.delete(id) {
		return false
	}
	s.version++
	s.show(shards, ownership.ShardGone{ID: id})
	return true
}

func (s *store) layout(c keyspace.ClusterName) *ownership.Layout { return s.layouts.find(c) }

// putLayout stores a layout and shows it in the stream of shards: they are of one resource, so one watch orders them.
func (s *store) putLayout(l ownership.Layout) ownership.Version {
	l.Version = s.next(driver.Subject{Layout: l.Cluster})
	s.layouts.put(l.Cluster, l)
	s.show(shards, ownership.LayoutSeen{Layout: l})
	return s.version
}

func (s *store) deleteLayout(c keyspace.ClusterName) {
	if s.layouts.delete(c) {
		s.version++
		s.show(shards, ownership.LayoutGone{Cluster: c})
	}
}

func (s *store) putLead(l ownership.Lead) ownership.Version {
	l.Version = s.next(driver.Subject{})
	s.lead = l
	s.show(leads, ownership.LeadSeen{Lead: l})
	return s.version
}

func (s *store) deleteLead() {
	if s.lead.Version != 0 {
		s.version++
		s.lead = ownership.Lead{}
		s.show(leads, ownership.LeadGone{})
	}
}

// putContainer shows a kubelet's report on a container.
func (s *store) putContainer(c ownership.ContainerSeen) {
	s.version++
	s.show(containers, c)
}

// listing returns what a list at an old position of a stream's log would have shown, in the log's order. gone adds
// the deletions, which a process finds by comparing the list with what it knew.
func (s *store) listing(stream stream, at int, gone bool) []ownership.Input {
	var list []ownership.Input
	seen := make([]object, 0, 16)
	for i := at - 1; i >= 0; i-- {
		in := s.log[stream][i]
		of, deleted := identity(in)
		if slices.Contains(seen, of) {
			continue
		}
		seen = append(seen, of)
		if !deleted || gone {
			list = append(list, in)
		}
	}
	slices.Reverse(list)
	return list
}

// object is a record or a container.
type object struct {
	driver.Subject
	container string
}

// identity names what a change is about.
func identity(what ownership.Input) (of object, deleted bool) {
	switch in := what.(type) {
	case ownership.LeaseSeen:
		of.Lease = in.Lease.ID
	case ownership.LeaseGone:
		of.Lease, deleted = in.ID, true
	case ownership.ShardSeen:
		of.Shard = in.Shard.ID
	case ownership.ShardGone:
		of.Shard, deleted = in.ID, true
	case ownership.ContainerSeen:
		of.container = in.Container
	case ownership.LeadGone:
		deleted = true
	case ownership.LayoutSeen:
		of.Layout = in.Layout.Cluster
	case ownership.LayoutGone:
		of.Layout, deleted = in.Cluster, true
	}
	return of, deleted
}

// apply carries out a write as an API server would: it is committed or rejected.
func (w *world) apply(req *request) (ownership.Outcome, ownership.Version) {
	s := &w.store
	switch e := req.effect.(type) {
	case ownership.WriteLease:
		old := s.lease(e.Lease.ID)
		if (old == nil) != (e.Base == 0) || (old != nil && old.Version != e.Base) {
			return ownership.Rejected, 0
		}
		w.checkLeaseWrite(old, e.Lease)
		return ownership.Committed, s.putLease(e.Lease)
	case ownership.SealLease:
		old := s.lease(e.ID)
		if (old == nil) != (e.Base == 0) || (old != nil && old.Version != e.Base) {
			return ownership.Rejected, 0
		}
		sealed := ownership.Lease{ID: e.ID}
		if old != nil {
			sealed = *old
		}
		sealed.Sealed = true
		w.checkLeaseWrite(old, sealed)
		if e.Ended {
			w.Proven++
		}
		return ownership.Committed, s.putLease(sealed)
	case ownership.DropLease:
		s.deleteLease(req.id)
	case ownership.ForgetLease:
		s.deleteLease(e.ID)
	case ownership.WriteLead:
		if s.lead.Version != e.Base {
			return ownership.Rejected, 0
		}
		w.checkLeadWrite(e.Lead)
		return ownership.Committed, s.putLead(e.Lead)
	}
	return w.applyShard(req)
}

// applyShard is apply for the records of shards, and for effects that write nothing.
func (w *world) applyShard(req *request) (ownership.Outcome, ownership.Version) {
	s := &w.store
	switch e := req.effect.(type) {
	case ownership.WriteLayout:
		old := s.layout(e.Layout.Cluster)
		if (old == nil) != (e.Base == 0) || (old != nil && old.Version != e.Base) {
			return ownership.Rejected, 0
		}
		if old != nil && !supersedes(*old, e.Layout) {
			w.fail(&w.nodes[req.node], "layout: writes one that the API server refuses: %+v after %+v", e.Layout, *old)
			return ownership.Rejected, 0
		}
		if !ownership.Divides(e.Layout.Prefixes) {
			w.fail(&w.nodes[req.node], "layout: writes one that leaves slots out: %+v", e.Layout)
		}
		return ownership.Committed, s.putLayout(e.Layout)
	case ownership.CreateShard:
		if s.shard(e.ID) != nil {
			return ownership.Rejected, 0
		}
		return ownership.Committed, s.putShard(ownership.Shard{
			ID: e.ID, Assignee: e.Assignee, Floor: e.Floor, UID: s.newUID(),
		})
	case ownership.WriteAssignee:
		old := s.shard(e.ID)
		if old == nil || old.Version != e.Base {
			return ownership.Rejected, 0
		}
		next := *old
		next.Assignee = e.Assignee
		if next == *old {
			return ownership.Committed, old.Version // an API server writes nothing if nothing changes
		}
		w.countWrite(req, *old, next)
		return ownership.Committed, s.putShard(next)
	case ownership.WriteShard:
		old := s.shard(e.Shard.ID)
		if old == nil || old.Version != e.Shard.Version || (old.Retired && !e.Shard.Retired) {
			return ownership.Rejected, 0
		}
		next := e.Shard
		// A status write can't change the spec.
		next.Assignee, next.Pin, next.Floor, next.UID, next.Moved = old.Assignee, old.Pin, old.Floor, old.UID, old.Moved
		if kind := e.Kind.Move(); kind != "" {
			next.Moved = &ownership.Move{Kind: kind, From: e.From, To: next.Holder}
		}
		if next == *old {
			return ownership.Committed, old.Version
		}
		w.checkShardWrite(req, *old, next)
		w.countWrite(req, *old, next)
		return ownership.Committed, s.putShard(next)
	}
	return ownership.Committed, 0
}

// supersedes reports whether the API server lets a layout follow another: see the schema.
func supersedes(old, next ownership.Layout) bool {
	return next.Generation > old.Generation || (next.Generation == old.Generation &&
		slices.Equal(next.Prefixes, old.Prefixes) && (old.UID == "" || old.UID == next.UID))
}

// snapshot returns what a read shows now.
func (w *world) snapshot(of driver.Subject) ownership.Input {
	s := &w.store
	switch {
	case of.All:
		return ownership.Listing{Leases: slices.Clone(s.leases.all), Lead: s.lead, Shards: slices.Clone(s.shards.all),
			Layouts: slices.Clone(s.layouts.all)}
	case of.Lease != "":
		if l := s.lease(of.Lease); l != nil {
			return ownership.LeaseSeen{Lease: *l}
		}
		return ownership.LeaseGone{ID: of.Lease}
	case of.Layout != "":
		read := ownership.LayoutRead{Cluster: of.Layout}
		if l := s.layout(of.Layout); l != nil {
			read.Layout = *l
		}
		return read
	case of.Shard == (keyspace.ShardID{}):
		if s.lead.Version == 0 {
			return ownership.LeadGone{}
		}
		return ownership.LeadSeen{Lead: s.lead}
	}
	if sh := s.shard(of.Shard); sh != nil {
		return ownership.ShardSeen{Shard: *sh}
	}
	return ownership.ShardGone{ID: of.Shard}
}

// commitLatency is the least time that the watches lag behind the store.
const commitLatency = time.Millisecond
