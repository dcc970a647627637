package record

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

const namespace = "tenure-system"

var (
	west    = keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(2)[1]}
	ids     = cmpopts.EquateComparable(keyspace.ShardID{})
	instant = time.Date(2026, 11, 23, 6, 0, 0, 1000, time.UTC)
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, tenurev1alpha1.AddToScheme(scheme))
	return scheme
}

func newStore(t *testing.T) (*Store, client.Client) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithStatusSubresource(&tenurev1alpha1.Shard{}).Build()
	return NewStore(c, namespace, ""), c
}

// created makes the record, planned for a-1.
func created(t *testing.T, s *Store) ownership.Version {
	t.Helper()
	version, err := s.Create(t.Context(), ownership.CreateShard{ID: west, Assignee: "a-1", Floor: 129})
	must.Succeed(t, err)
	return version
}

func read(t *testing.T, s *Store) ownership.Shard {
	t.Helper()
	in, err := s.Read(t.Context(), west)
	must.Succeed(t, err)
	return in.(ownership.ShardSeen).Shard
}

func object(t *testing.T, c client.Client) *tenurev1alpha1.Shard {
	t.Helper()
	shard := &tenurev1alpha1.Shard{}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: west.RecordName("")}, shard))
	return shard
}

func TestANewRecordIsPlannedAndHeldByNobody(t *testing.T) {
	s, _ := newStore(t)
	version := created(t, s)
	want := ownership.Shard{ID: west, Assignee: "a-1", Floor: 129, Version: version}
	expect.Equal(t, "the record", want, read(t, s), ids)
	if _, err := s.Create(t.Context(), ownership.CreateShard{ID: west}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a record that is there is created: %v", err)
	}
}

func TestAStatusIsReadAsItWasWrittenAndAPlanLeavesItAsItIs(t *testing.T) {
	s, c := newStore(t)
	shard := ownership.Shard{
		ID: west, Assignee: "z-9", Holder: "a-1", Epoch: 130, Warm: "b-1", Load: 0.0125, Objects: 7, Pin: "z", Floor: 1,
		Version: created(t, s),
	}
	version, err := s.WriteStatus(t.Context(), ownership.WriteShard{Kind: ownership.Report, Shard: shard}, time.Time{})
	must.Succeed(t, err)
	shard.Assignee, shard.Pin, shard.Floor, shard.Version = "a-1", "", 129, version // which no status write changes
	shard.Load = 0.013                                                              // in thousandths
	expect.Equal(t, "the record, written and read", shard, read(t, s), ids)
	shard.Version, err = s.WriteAssignee(t.Context(),
		ownership.WriteAssignee{ID: west, Base: version, Assignee: "b-1"})
	must.Succeed(t, err)
	shard.Assignee = "b-1"
	expect.Equal(t, "after a plan", shard, read(t, s), ids)
	status := object(t, c).Status
	if status.LastMove != nil || status.HeldSince != nil {
		t.Errorf("a report tells of a move: %+v", status)
	}
}

func TestAMoveIsRecordedWithItsKindAndWhenTheOldTenureEnded(t *testing.T) {
	for _, c := range []struct {
		kind  ownership.WriteKind
		from  ownership.Incarnation
		ended time.Time
		want  *ownership.Move
	}{
		{ownership.ClaimFree, "", time.Time{}, &ownership.Move{Kind: protocol.Join, To: "b-1"}},
		{ownership.ClaimDead, "a-1", time.Time{}, &ownership.Move{Kind: protocol.Crash, From: "a-1", To: "b-1"}},
		{ownership.HandOff, "a-1", instant, &ownership.Move{Kind: protocol.Planned, From: "a-1", To: "b-1", At: instant}},
		{ownership.HandOffOnExit, "a-1", instant, &ownership.Move{Kind: protocol.Exit, From: "a-1", To: "b-1", At: instant}},
		{ownership.AnnounceWarm, "a-1", time.Time{}, nil},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			s, o := newStore(t)
			w := ownership.WriteShard{
				Kind: c.kind, From: c.from, Shard: ownership.Shard{ID: west, Holder: "b-1", Epoch: 130, Version: created(t, s)},
			}
			before := time.Now().Add(-time.Second)
			_, err := s.WriteStatus(t.Context(), w, c.ended)
			must.Succeed(t, err)
			got := read(t, s).Moved
			if got != nil && c.ended.IsZero() { // it is when it was written
				if got.At.Before(before) || got.At.After(time.Now()) {
					t.Errorf("it ended at %v", got.At)
				}
				got.At = time.Time{}
			}
			expect.Equal(t, "the move", c.want, got)
			if held := object(t, o).Status.HeldSince; (held != nil) != (c.want != nil) ||
				(held != nil && held.Time.Before(before)) {
				t.Errorf("held since %v", held)
			}
		})
	}
}

// A merge patch leaves what it doesn't name as it was.
func TestAnUnheldRecordSaysNothingOfWhoHeldItBefore(t *testing.T) {
	s, o := newStore(t)
	shard := ownership.Shard{ID: west, Epoch: 130, Version: created(t, s)}
	for _, c := range []struct {
		kind         ownership.WriteKind
		from, holder ownership.Incarnation
	}{{ownership.HandOffOnExit, "a-1", "b-1"}, {ownership.Release, "b-1", ""}, {ownership.ClaimFree, "", "c-1"}} {
		shard.Holder = c.holder
		w := ownership.WriteShard{Kind: c.kind, From: c.from, Shard: shard}
		var err error
		shard.Version, err = s.WriteStatus(t.Context(), w, instant)
		must.Succeed(t, err)
		if since := object(t, o).Status.HeldSince; (since == nil) != (c.holder == "") {
			t.Errorf("after %v it is held since %v", c.kind, since)
		}
	}
	want := &ownership.Move{Kind: protocol.Join, To: "c-1", At: instant}
	expect.Equal(t, "the move", want, read(t, s).Moved)
}

// The API server refuses other prefixes of the same generation, and one that a person wrote may list them in any order.
func TestALayoutThatGetsItsUIDKeepsItsPrefixesAsTheyAre(t *testing.T) {
	s, c := newStore(t)
	object := s.named(keyspace.LayoutName("", "west"))
	byHand := []string{"1", "0"}
	object.Spec = tenurev1alpha1.ShardSpec{
		Cluster: "west", Generation: 1, Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: byHand},
	}
	must.Succeed(t, c.Create(t.Context(), object))
	l, err := Layout("", object)
	must.Succeed(t, err)
	l.UID = "u1"
	_, err = s.WriteLayout(t.Context(), ownership.WriteLayout{Base: l.Version, Layout: l, OnlyUID: true})
	must.Succeed(t, err)
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	want := &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: byHand, ClusterUID: "u1"}
	expect.Equal(t, "the layout", want, object.Spec.Layout)
}

func TestThePhaseSumsUpWhoHoldsAndWhoIsWarm(t *testing.T) {
	for want, shard := range map[tenurev1alpha1.ShardPhase]ownership.Shard{
		tenurev1alpha1.ShardPending: {Warm: "b-1"},
		tenurev1alpha1.ShardHeld:    {Holder: "a-1"},
		tenurev1alpha1.ShardMoving:  {Holder: "a-1", Warm: "b-1"},
	} {
		if got := phase(shard); got != want {
			t.Errorf("%+v is %s, want %s", shard, got, want)
		}
	}
}

func TestEveryWriteReplacesTheVersionThatItNames(t *testing.T) {
	for name, write := range map[string]func(*Store, ownership.Version) (ownership.Version, error){
		"plan": func(s *Store, base ownership.Version) (ownership.Version, error) {
			return s.WriteAssignee(t.Context(), ownership.WriteAssignee{ID: west, Base: base, Assignee: "b-1"})
		},
		"status": func(s *Store, base ownership.Version) (ownership.Version, error) {
			w := ownership.WriteShard{Kind: ownership.ClaimFree, Shard: ownership.Shard{ID: west, Holder: "b-1", Version: base}}
			return s.WriteStatus(t.Context(), w, time.Time{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			if _, err := write(s, 7); !apierrors.IsNotFound(err) {
				t.Errorf("a record that isn't there is written: %v", err)
			}
			first := created(t, s)
			second, err := write(s, first)
			if err != nil || second <= first {
				t.Fatalf("version %d follows %d (%v)", second, first, err)
			}
			if _, err := write(s, first); !apierrors.IsConflict(err) {
				t.Errorf("a version that isn't the newest is replaced: %v", err)
			}
		})
	}
}

func TestARecordThatIsGoneIsTold(t *testing.T) {
	s, _ := newStore(t)
	in, err := s.Read(t.Context(), west)
	if err != nil || in != (ownership.ShardGone{ID: west}) {
		t.Errorf("it is read as %+v (%v)", in, err)
	}
	s = NewStore(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(), namespace, "") // knows no Shards
	if in, err := s.Read(t.Context(), west); err == nil || in != nil {
		t.Errorf("a read that fails tells %+v", in)
	}
}

func TestARecordThatMakesNoSenseIsRefused(t *testing.T) {
	good := func() *tenurev1alpha1.Shard {
		return &tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: west.RecordName(""), ResourceVersion: "5", UID: "u",
				Annotations: map[string]string{
					tenurev1alpha1.PinAnnotation: "a", tenurev1alpha1.FloorAnnotation: "3"}},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: west.Prefix.String()},
		}
	}
	want := ownership.Shard{ID: west, Pin: "a", Floor: 3, UID: "u", Version: 5}
	if in, err := Seen("", good()); err != nil ||
		cmp.Diff(ownership.Input(ownership.ShardSeen{Shard: want}), in, ids) != "" {
		t.Fatalf("a record by hand is read as %+v (%v)", in, err)
	}
	for name, spoil := range map[string]func(*tenurev1alpha1.Shard){
		"another shard's name":      func(s *tenurev1alpha1.Shard) { s.Name = "west.p00" },
		"a prefix of other figures": func(s *tenurev1alpha1.Shard) { s.Spec.Prefix = "012" },
		"a version of other kind":   func(s *tenurev1alpha1.Shard) { s.ResourceVersion = "v5" },
		"a layout": func(s *tenurev1alpha1.Shard) {
			s.Spec.Layout = &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{""}}
		},
	} {
		shard := good()
		spoil(shard)
		if in, err := Seen("", shard); err == nil || in != nil {
			t.Errorf("%s: it is read as %+v", name, in)
		}
	}
	want.Floor = 0
	for name, floor := range map[string]string{
		"of other kind": "high", "beside a space": "3 ", "that epochs would overflow above": "9223372036854775807",
		"below which there is nothing": "-9223372036854775808",
	} {
		shard := good()
		shard.Annotations[tenurev1alpha1.FloorAnnotation] = floor
		in, err := Seen("", shard)
		if diff := cmp.Diff(ownership.Input(ownership.ShardSeen{Shard: want}), in, ids); err != nil || diff != "" {
			t.Errorf("a floor %s counts as none, and nobody else can take the shard over (%v):\n%s", name, err, diff)
		}
	}
}

// A list tells what isn't there from what can't be read: the one was deleted.
func TestAListSaysWhichRecordsAreThereAndCannotBeRead(t *testing.T) {
	shard := func(name, uid string, spec tenurev1alpha1.ShardSpec) *tenurev1alpha1.Shard {
		return &tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}, Spec: spec,
		}
	}
	layout := func(cluster string, prefixes ...string) tenurev1alpha1.ShardSpec {
		return tenurev1alpha1.ShardSpec{
			Cluster: cluster, Generation: 1, Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: prefixes},
		}
	}
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(
		shard("west.p0", "u1", tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: "00"}),
		shard(west.RecordName(""), "u2", tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: west.Prefix.String()}),
		shard("east.layout", "u3", layout("east", "0")), // which leaves half of the slots out
		shard("west.layout", "u4", layout("west", "0", "1")),
		pruned(shard("south.layout", "u5", layout("south", ""))),
	).Build()
	l, err := NewStore(c, namespace, "").List(t.Context())
	must.Succeed(t, err)
	if len(l.Shards) != 1 || l.Shards[0].ID != west || len(l.Layouts) != 1 || l.Layouts[0].Cluster != "west" {
		t.Errorf("it shows %+v and %+v, want the record of %v and the layout of west", l.Shards, l.Layouts, west)
	}
	expect.Equal(t, "can't be read", map[string]bool{"u1": true, "u3": true, "u5": true}, l.Unreadable)
	expect.Equal(t, "layouts that can't be read", map[keyspace.ClusterName]bool{"east": true, "south": true},
		l.UnreadableLayouts)
}

func TestAListIsReadPageByPage(t *testing.T) {
	var asked []string
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(newScheme(t)).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			asked = append(asked, o.Continue)
			page := list.(*tenurev1alpha1.ShardList)
			of := keyspace.ShardID{Cluster: keyspace.ClusterName("c" + o.Continue)}
			page.Items = []tenurev1alpha1.Shard{{ObjectMeta: metav1.ObjectMeta{Name: of.RecordName(""), ResourceVersion: "1"},
				Spec: tenurev1alpha1.ShardSpec{Cluster: string(of.Cluster)}}}
			if len(asked) < 3 {
				page.Continue = strconv.Itoa(len(asked))
			}
			if o.Limit == 0 {
				t.Error("a page has no limit")
			}
			return nil
		},
	})
	l, err := NewStore(c, namespace, "").List(t.Context())
	if err != nil || len(l.Shards) != 3 || !slices.Equal(asked, []string{"", "1", "2"}) {
		t.Errorf("asked for %q, got %+v, %v", asked, l.Shards, err)
	}
}
