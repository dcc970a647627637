package record

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Store reads and writes the Shard records of a fleet in one namespace. It is safe for concurrent use.
type Store struct {
	client    client.Client // uncached
	namespace string
	fleet     keyspace.Fleet
}

// NewStore returns the store of a fleet's records in a namespace. The client must read live.
func NewStore(c client.Client, namespace string, fleet keyspace.Fleet) *Store {
	return &Store{client: c, namespace: namespace, fleet: fleet}
}

// Create makes a record without a holder.
func (s *Store) Create(ctx context.Context, c ownership.CreateShard) (ownership.Version, error) {
	shard := s.object(c.ID)
	shard.Annotations = map[string]string{tenurev1alpha1.FloorAnnotation: strconv.FormatInt(int64(c.Floor), 10)}
	shard.Spec = tenurev1alpha1.ShardSpec{
		Cluster: string(c.ID.Cluster), Prefix: c.ID.Prefix.String(), Generation: int64(max(1, c.ID.Generation)),
		Assignee: string(c.Assignee),
	}
	if err := s.client.Create(ctx, shard); err != nil {
		return 0, fmt.Errorf("creating the record of shard %s: %w", c.ID, err)
	}
	return cas.Version(shard.ResourceVersion)
}

// WriteAssignee changes the assignee of a shard.
func (s *Store) WriteAssignee(ctx context.Context, w ownership.WriteAssignee) (ownership.Version, error) {
	shard, spec := s.object(w.ID), map[string]any{"assignee": w.Assignee}
	err := s.client.Patch(ctx, shard, cas.Merge(w.Base, map[string]any{"spec": spec}))
	return written(shard, w.ID, err)
}

// WriteStatus writes holder, epoch, warm, phase, size and load. ended is when the old tenure's last work ended, for the
// record of the move; zero if that isn't known.
func (s *Store) WriteStatus(ctx context.Context, w ownership.WriteShard, ended time.Time) (ownership.Version, error) {
	sh := w.Shard
	status := map[string]any{
		"holder": sh.Holder, "epoch": sh.Epoch, "warm": sh.Warm, "phase": phase(sh),
		"objects": sh.Objects, "loadMilli": int64(math.Round(sh.Load * 1000)),
	}
	if sh.Holder == "" {
		status["heldSince"] = nil
	}
	if kind := w.Kind.Move(); kind != "" {
		now := metav1.NowMicro()
		status["heldSince"] = now
		if ended.IsZero() {
			ended = now.Time
		}
		status["lastMove"] = map[string]any{ // no struct: a field that it leaves out when empty would stay as it was
			"kind": kind, "from": w.From, "to": sh.Holder, "time": metav1.NewMicroTime(ended),
		}
	}
	shard := s.object(sh.ID)
	err := s.client.Status().Patch(ctx, shard, cas.Merge(sh.Version, map[string]any{"status": status}))
	return written(shard, sh.ID, err)
}

func phase(s ownership.Shard) tenurev1alpha1.ShardPhase {
	switch {
	case s.Retired:
		return tenurev1alpha1.ShardRetired
	case s.Holder == "":
		return tenurev1alpha1.ShardPending
	case s.Warm != "":
		return tenurev1alpha1.ShardMoving
	}
	return tenurev1alpha1.ShardHeld
}

// Read reads a record live and returns it as an input to the protocol.
func (s *Store) Read(ctx context.Context, id keyspace.ShardID) (ownership.Input, error) {
	shard := s.object(id)
	err := s.client.Get(ctx, client.ObjectKeyFromObject(shard), shard)
	if cas.NotFound(err) {
		return ownership.ShardGone{ID: id}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of shard %s: %w", id, err)
	}
	return Seen(s.fleet, shard)
}

// Readable returns the error of a small live read.
func (s *Store) Readable(ctx context.Context) error {
	list := &tenurev1alpha1.ShardList{}
	if err := s.client.List(ctx, list, client.InNamespace(s.namespace), client.Limit(1)); err != nil {
		return fmt.Errorf("reading a record: %w", err)
	}
	return nil
}

// pageSize bounds how many records are in memory at a time as the API server sends them. Large pages take less time.
const pageSize = 5000

// List reads all records and layouts live, as of one moment. Those that can't be parsed are listed as unreadable.
func (s *Store) List(ctx context.Context) (ownership.Listing, error) {
	l := ownership.Listing{Unreadable: map[string]bool{}, UnreadableLayouts: map[keyspace.ClusterName]bool{}}
	for next := ""; ; {
		page := &tenurev1alpha1.ShardList{}
		if err := s.client.List(ctx, page, client.InNamespace(s.namespace), client.Limit(pageSize),
			client.Continue(next)); err != nil {
			return ownership.Listing{}, fmt.Errorf("listing the records of shards: %w", err)
		}
		s.read(page, &l)
		if next = page.Continue; next == "" {
			return l, nil
		}
	}
}

// read adds the records of a page to a listing.
func (s *Store) read(page *tenurev1alpha1.ShardList, l *ownership.Listing) {
	for i := range page.Items {
		shard := &page.Items[i]
		in, err := Seen(s.fleet, shard)
		if err != nil {
			l.Unreadable[string(shard.UID)] = true
			cluster := keyspace.ClusterName(shard.Spec.Cluster)
			if shard.Name == keyspace.LayoutName(s.fleet, cluster) { // also one that an older CRD has emptied
				l.UnreadableLayouts[cluster] = true
			}
			continue
		}
		switch seen := in.(type) {
		case ownership.ShardSeen:
			l.Shards = append(l.Shards, seen.Shard)
		case ownership.LayoutSeen:
			l.Layouts = append(l.Layouts, seen.Layout)
		}
	}
}

// mostLoad bounds what is believed of a load, in thousandths: a larger one couldn't be written back.
const mostLoad = 1 << 40

// Seen returns the protocol's input for a fleet's record or layout that was read or watched.
func Seen(fleet keyspace.Fleet, shard *tenurev1alpha1.Shard) (ownership.Input, error) {
	if shard.Spec.Layout != nil {
		l, err := Layout(fleet, shard)
		if err != nil {
			return nil, err
		}
		return ownership.LayoutSeen{Layout: l}, nil
	}
	id, err := ID(fleet, shard)
	if err != nil {
		return nil, err
	}
	version, err := cas.Version(shard.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", shard.Name, err)
	}
	floor, _ := Floor(shard) // a mistyped one counts as none: else nobody could take the shard over
	return ownership.ShardSeen{Shard: ownership.Shard{
		ID:       id,
		Assignee: ownership.Incarnation(shard.Spec.Assignee),
		Holder:   ownership.Incarnation(shard.Status.Holder),
		Epoch:    ownership.Epoch(shard.Status.Epoch),
		Warm:     ownership.Incarnation(shard.Status.Warm),
		Load:     float64(min(shard.Status.LoadMilli, mostLoad)) / 1000,
		Objects:  shard.Status.Objects,
		Floor:    floor,
		Pin:      shard.Annotations[tenurev1alpha1.PinAnnotation],
		Retired:  shard.Status.Phase == tenurev1alpha1.ShardRetired,
		UID:      string(shard.UID),
		Moved:    moved(shard.Status.LastMove),
		Version:  version,
	}}, nil
}

// Floor returns the lowest epoch that a record's annotation allows, 0 without one.
func Floor(shard *tenurev1alpha1.Shard) (ownership.Epoch, error) {
	floor, err := cas.Floor(shard.Annotations[tenurev1alpha1.FloorAnnotation])
	if err != nil {
		return 0, fmt.Errorf("record %s: annotation %s: %w; correct it", shard.Name, tenurev1alpha1.FloorAnnotation, err)
	}
	return floor, nil
}

func moved(m *tenurev1alpha1.ShardMove) *ownership.Move {
	if m == nil {
		return nil
	}
	return &ownership.Move{
		Kind: protocol.MoveKind(m.Kind), From: ownership.Incarnation(m.From),
		To: ownership.Incarnation(m.To), At: m.Time.Time,
	}
}

// ID returns the shard that a fleet's record is about. It refuses a record whose name isn't the one for its shard,
// since two records of one shard would allow two holders.
func ID(fleet keyspace.Fleet, shard *tenurev1alpha1.Shard) (keyspace.ShardID, error) {
	prefix, err := keyspace.ParsePrefix(shard.Spec.Prefix)
	if err != nil {
		return keyspace.ShardID{}, fmt.Errorf("record %s: spec.prefix: %w", shard.Name, err)
	}
	id := keyspace.ShardID{Cluster: keyspace.ClusterName(shard.Spec.Cluster), Prefix: prefix}
	if g := shard.Spec.Generation; g < 0 || g > keyspace.MaxGeneration {
		return keyspace.ShardID{}, fmt.Errorf("record %s: spec.generation %d: must be 1 to %d; delete it", shard.Name, g,
			keyspace.MaxGeneration)
	} else if g > 1 {
		id.Generation = uint32(g)
	}
	if want := id.RecordName(fleet); shard.Name != want {
		if shard.Spec.Generation == 0 { // an API server that knows the field fills it in
			return keyspace.ShardID{}, fmt.Errorf("record %s: can't be read under the home cluster's CRD of Shards, which is "+
				"older than "+
				"this program: apply config/crd", shard.Name)
		}
		return keyspace.ShardID{}, fmt.Errorf("record %s: is about shard %s, whose record is %s; delete it",
			shard.Name, id, want)
	}
	return id, nil
}

// OfAnother reports whether a record or a layout belongs to another fleet: its name is right for the fleet in its
// label.
func OfAnother(fleet keyspace.Fleet, shard *tenurev1alpha1.Shard) bool {
	other := keyspace.Fleet(shard.Labels[tenurev1alpha1.FleetLabel])
	if other == fleet {
		return false
	}
	if shard.Spec.Layout != nil {
		return shard.Name == keyspace.LayoutName(other, keyspace.ClusterName(shard.Spec.Cluster))
	}
	_, err := ID(other, shard)
	return err == nil
}

func (s *Store) object(id keyspace.ShardID) *tenurev1alpha1.Shard {
	return s.named(id.RecordName(s.fleet))
}

func (s *Store) named(name string) *tenurev1alpha1.Shard {
	shard := &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if s.fleet != "" {
		shard.Labels = map[string]string{tenurev1alpha1.FleetLabel: string(s.fleet)}
	}
	return shard
}

// written returns the version that a write of a record made.
func written(shard *tenurev1alpha1.Shard, id keyspace.ShardID, err error) (ownership.Version, error) {
	if err != nil {
		return 0, fmt.Errorf("writing the record of shard %s: %w", id, err)
	}
	return cas.Version(shard.ResourceVersion)
}
