package keyspace_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// drawPrefix draws from all 511 prefixes.
func drawPrefix(t *rapid.T, label string) keyspace.Prefix {
	prefixes := keyspace.Partition(rapid.IntRange(0, keyspace.MaxBits).Draw(t, label+" bits"))
	return rapid.SampledFrom(prefixes).Draw(t, label)
}

// drawCluster draws names of every kind: object names, long ones, names that
// look like record names, and names no Kubernetes object can have.
func drawCluster(t *rapid.T, label string) keyspace.ClusterName {
	return keyspace.ClusterName(rapid.OneOf(
		rapid.StringMatching(`[a-z0-9]{1,3}(-[a-z0-9]{1,3})?(\.[px][01]{0,8})?`),
		rapid.StringMatching(`[a-z]{200,253}[-.]?[a-z0-9]{0,60}`),
		rapid.StringN(1, 40, 300),
	).Draw(t, label))
}

func TestHashKeepsItsGoldenVectors(t *testing.T) {
	// The first three are from the FNV reference code's test suite, the others
	// from k8s.io/apimachinery. Where an object belongs must not change
	// between releases: two of them run side by side during a rollout.
	tests := map[string]struct {
		hash uint64
		slot string
	}{
		"":                                     {0xcbf29ce484222325, "cb"},
		"a":                                    {0xaf63dc4c8601ec8c, "af"},
		"foobar":                               {0x85944171f73967e8, "85"},
		"00000000-0000-0000-0000-000000000000": {0x7c384c6218f299f1, "7c"},
		"aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee": {0x93754b7248a00eb9, "93"},
		"7c1f3c1e-9d57-4f0e-9a55-0c0f3f2f1d11": {0x33684409d1de9aef, "33"},
		"d9b2d63d-a233-4123-847a-76838bf2413a": {0x1f08f51fab78685d, "1f"},
	}
	for uid, want := range tests {
		if got := keyspace.Hash(uid); got != want.hash {
			t.Errorf("Hash(%q) = %#016x, want %#016x", uid, got, want.hash)
		}
		if got := keyspace.SlotOf(uid).String(); got != want.slot {
			t.Errorf("SlotOf(%q) = %s, want %s", uid, got, want.slot)
		}
	}
}

func TestSelectorsKeepTheirGoldenText(t *testing.T) {
	type selectors struct{ Shard, Slot string }
	got := map[string]selectors{}
	for _, text := range []string{"", "0", "1", "01", "111111", "11111111"} {
		prefix := mustPrefix(t, text)
		got[text] = selectors{prefix.Selector(), prefix.SlotSelector()}
	}
	slots := func(first, last int) string {
		var values []string
		for slot := first; slot <= last; slot++ {
			values = append(values, keyspace.Slot(slot).String())
		}
		return "tenure.dev/slot in (" + strings.Join(values, ",") + ")"
	}
	want := map[string]selectors{
		"":   {"shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')", "tenure.dev/slot"},
		"0":  {"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')", slots(0, 127)},
		"1":  {"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')", slots(128, 255)},
		"01": {"shardRange(object.metadata.uid, '0x4000000000000000', '0x8000000000000000')", slots(64, 127)},
		"111111": {"shardRange(object.metadata.uid, '0xfc00000000000000', '0x10000000000000000')",
			"tenure.dev/slot in (fc,fd,fe,ff)"},
		"11111111": {"shardRange(object.metadata.uid, '0xff00000000000000', '0x10000000000000000')",
			"tenure.dev/slot in (ff)"},
	}
	expect.Equal(t, "selectors", want, got)
}

func mustPrefix(t *testing.T, text string) keyspace.Prefix {
	t.Helper()
	prefix, err := keyspace.ParsePrefix(text)
	must.Succeed(t, err)
	return prefix
}

func TestAPartitionHoldsEveryHashExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Uint64().Draw(t, "hash")
		partition := keyspace.Partition(rapid.IntRange(0, keyspace.MaxBits).Draw(t, "bits"))
		// Any sequence of splits must keep it a partition.
		for range rapid.IntRange(0, 20).Draw(t, "splits") {
			i := rapid.IntRange(0, len(partition)-1).Draw(t, "split")
			if lower, upper, err := partition[i].Split(); err == nil {
				partition = slices.Replace(partition, i, i+1, lower, upper)
			}
		}
		var owners []string
		for _, prefix := range partition {
			if prefix.Contains(hash) {
				owners = append(owners, prefix.String())
			}
		}
		if len(owners) != 1 {
			t.Fatalf("hash %#x is in %q, want exactly one", hash, owners)
		}
		if !slices.IsSortedFunc(partition, keyspace.Prefix.Compare) {
			t.Fatalf("splitting in place left %v out of order", partition)
		}
	})
}

func TestContainsRangeAndSlotsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := drawPrefix(t, "prefix")
		lo, hi := prefix.Range()
		hash := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{lo, lo - 1, hi, hi - 1})).Draw(t, "hash")
		uid := rapid.StringN(0, 40, 40).Draw(t, "uid")
		slot := keyspace.Slot(hash >> 56)
		first, last := prefix.Slots()

		contains := prefix.Contains(hash)
		if inRange := lo <= hash && (hash < hi || hi == 0); contains != inRange {
			t.Errorf("prefix %q contains %#x: %t, its range says %t", prefix, hash, contains, inRange)
		}
		if inSlots := first <= slot && slot <= last; contains != inSlots {
			t.Errorf("prefix %q contains %#x: %t, its slots say %t", prefix, hash, contains, inSlots)
		}
		id := keyspace.ShardID{Cluster: "west", Prefix: prefix}
		if id.Contains(uid) != prefix.ContainsSlot(keyspace.SlotOf(uid)) {
			t.Errorf("shard %s and slot %s disagree about UID %q", id, keyspace.SlotOf(uid), uid)
		}
	})
}

func TestSplitAddsABit(t *testing.T) {
	for bits := range keyspace.MaxBits {
		for _, prefix := range keyspace.Partition(bits) {
			lower, upper, err := prefix.Split()
			if err != nil {
				t.Fatalf("splitting %q: %v", prefix, err)
			}
			got := []string{lower.String(), upper.String()}
			expect.Equal(t, fmt.Sprintf("children of %q", prefix), []string{prefix.String() + "0", prefix.String() + "1"}, got)
		}
	}
}

func TestASlotIsNotSplit(t *testing.T) {
	if lower, upper, err := mustPrefix(t, "01010101").Split(); err == nil {
		t.Errorf("one slot was split into %q and %q", lower, upper)
	}
}

func TestPartitionRefusesWhatIsNoPrefixLength(t *testing.T) {
	for _, bits := range []int{-1, 9} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Partition(%d) did not panic", bits)
				}
			}()
			keyspace.Partition(bits)
		}()
	}
}

func TestShardsSortByClusterThenByHashWithParentsFirst(t *testing.T) {
	want := []string{"east/", "east/0", "east/00", "east/01", "east/1", "east/10", "west/0", "west-2/"}
	var ids []keyspace.ShardID
	for _, text := range []string{"west-2/", "east/10", "east/01", "west/0", "east/", "east/1", "east/00", "east/0"} {
		id, err := keyspace.ParseShardID(text)
		must.Succeed(t, err)
		ids = append(ids, id)
	}
	slices.SortFunc(ids, keyspace.ShardID.Compare)
	var got []string
	for _, id := range ids {
		got = append(got, id.String())
	}
	expect.Equal(t, "order", want, got)
}

func TestShardsShowAsTheirTextInJSONAndLogs(t *testing.T) {
	id := keyspace.ShardID{Cluster: "west", Prefix: mustPrefix(t, "01")}
	type moved struct {
		Shard keyspace.ShardID
		Holds map[keyspace.ShardID]keyspace.Prefix
	}
	in := moved{id, map[keyspace.ShardID]keyspace.Prefix{id: id.Prefix}}
	encoded, err := json.Marshal(in)
	must.Succeed(t, err)
	if want := `{"Shard":"west/01","Holds":{"west/01":"01"}}`; string(encoded) != want {
		t.Errorf("JSON = %s, want %s", encoded, want)
	}
	var out moved
	must.Succeed(t, json.Unmarshal(encoded, &out))
	if out.Shard != in.Shard || out.Holds[id] != id.Prefix {
		t.Errorf("read back %v, want %v", out, in)
	}
	if err := json.Unmarshal([]byte(`{"Shard":"west/2"}`), &out); err == nil {
		t.Error("JSON with a bad prefix was accepted")
	}
	if err := json.Unmarshal([]byte(`{"Holds":{"west/":"2"}}`), &out); err == nil {
		t.Error("JSON with a bad prefix was accepted")
	}

	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Info("handed off", "shard", id)
	if !strings.Contains(line.String(), `"shard":"west/01"`) {
		t.Errorf("log line %s doesn't name the shard", line.String())
	}
}

var uids = []string{"7c1f3c1e-9d57-4f0e-9a55-0c0f3f2f1d11", "d9b2d63d-a233-4123-847a-76838bf2413a"}

func TestTheOwnershipCheckDoesNotAllocate(t *testing.T) {
	id := keyspace.ShardID{Cluster: "west", Prefix: mustPrefix(t, "01")}
	var inside int
	calls := map[string]func(){
		"Hash":     func() { inside += int(keyspace.Hash(uids[0]) & 1) },
		"SlotOf":   func() { inside += int(keyspace.SlotOf(uids[1])) },
		"Contains": func() { inside += map[bool]int{true: 1}[id.Contains(uids[0])] },
	}
	for name, call := range calls {
		if allocs := testing.AllocsPerRun(1000, call); allocs != 0 {
			t.Errorf("%s: %v allocations, want none", name, allocs)
		}
	}
}

func BenchmarkContains(b *testing.B) {
	id := keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(3)[2]}
	b.ReportAllocs()
	var inside int
	for i := 0; b.Loop(); i++ {
		if id.Contains(uids[i&1]) {
			inside++
		}
	}
	_ = inside
}

func BenchmarkSlotOf(b *testing.B) {
	b.ReportAllocs()
	var sum int
	for i := 0; b.Loop(); i++ {
		sum += int(keyspace.SlotOf(uids[i&1]))
	}
	_ = sum
}
