package keyspace_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/must"
)

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawShard(t, "")
		slot := keyspace.Slot(rapid.Byte().Draw(t, "slot"))

		if got, err := keyspace.ParseShardID(id.String()); err != nil || got != id {
			t.Errorf("ParseShardID(%q) = %v, %v", id.String(), got, err)
		}
		if got, err := keyspace.ParsePrefix(id.Prefix.String()); err != nil || got != id.Prefix {
			t.Errorf("ParsePrefix(%q) = %v, %v", id.Prefix.String(), got, err)
		}
		if got, err := keyspace.ParseSlot(slot.String()); err != nil || got != slot {
			t.Errorf("ParseSlot(%q) = %v, %v", slot.String(), got, err)
		}
	})
}

func TestParsersRefuseWhatIsNeverWrittenAndNameIt(t *testing.T) {
	parsers := map[string]func(string) error{
		"prefix": func(text string) error { _, err := keyspace.ParsePrefix(text); return err },
		"shard":  func(text string) error { _, err := keyspace.ParseShardID(text); return err },
		"slot":   func(text string) error { _, err := keyspace.ParseSlot(text); return err },
	}
	for kind, texts := range map[string][]string{
		"prefix": {"2", "0x1", "010101010", "01 ", "٠"},
		"shard": {"", "west", "/01", "/", "west/2", "west/010101010", "west/01/x", "west/01@1", "west/01@02", "west/01@",
			"west/01@1000000000"},
		"slot": {"", "0", "000", "0A", "0x", "g0", "0g"},
	} {
		for _, text := range texts {
			err := parsers[kind](text)
			if err == nil {
				t.Errorf("%s %q was accepted", kind, text)
				continue
			}
			if !strings.Contains(err.Error(), `"`+text+`"`) {
				t.Errorf("the error about %s %q doesn't show it: %v", kind, text, err)
			}
		}
	}
}

func TestRecordNamesReadWellAndNeverMeet(t *testing.T) {
	long := strings.Repeat("a", 253)
	tests := map[string]string{
		"west/":             "west.p",
		"west/01":           "west.p01",
		"west-01/":          "west-01.p",
		"west.01/":          "west.01.p",
		"west.p01/":         "west.p01.p",
		"West/1":            "41a6741e9a0faee34fec1fce082d6c63.x1",
		long + "/1":         long[:210] + "-32859a3ab65ac52932e16fad60606536.x1",
		"multi#west/01":     "403325cf93530fbdfe74c798a1969a14.x01",
		"west/@2":           "west.p-g2",
		"west/01@999999999": "west.p01-g999999999",
		long + "/1@2":       long[:135] + "-32859a3ab65ac52932e16fad60606536.x1-g2",
	}
	seen := map[string]string{}
	for text, want := range tests {
		id, err := keyspace.ParseShardID(text)
		must.Succeed(t, err)
		got := id.RecordName("")
		if got != want {
			t.Errorf("record name of %s = %q, want %q", text, got, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s are both called %q", text, other, got)
		}
		seen[got] = text
	}
}

func TestRecordsOfAnotherFleetAndLayoutsHaveNamesOfTheirOwn(t *testing.T) {
	west := keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(2)[1]}
	multi := keyspace.ShardID{Cluster: "multi#west", Prefix: west.Prefix, Generation: 3}
	for got, want := range map[string]string{
		west.RecordName("blue"):                   "west.blue.f01",
		multi.RecordName("blue"):                  "403325cf93530fbdfe74c798a1969a14.blue.y01-g3",
		keyspace.LayoutName("", "west"):           "west.layout",
		keyspace.LayoutName("", "multi#west"):     "403325cf93530fbdfe74c798a1969a14.xlayout",
		keyspace.LayoutName("blue", "west"):       "west.blue.flayout",
		keyspace.LayoutName("blue", "multi#west"): "403325cf93530fbdfe74c798a1969a14.blue.ylayout",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDifferentRecordsHaveDifferentNames(t *testing.T) {
	fleets := rapid.SampledFrom([]keyspace.Fleet{"", "blue", "p01", "layout"})
	name := func(fleet keyspace.Fleet, id keyspace.ShardID, layout bool) string {
		if layout {
			return keyspace.LayoutName(fleet, id.Cluster)
		}
		return id.RecordName(fleet)
	}
	rapid.Check(t, func(t *rapid.T) {
		one, fleet, layout := drawShard(t, ""), fleets.Draw(t, "fleet"), rapid.Bool().Draw(t, "layout")
		// The likeliest to collide: a cluster that is called as the other's record
		// is, whole or in part.
		first := name(fleet, one, layout)
		cut := rapid.IntRange(1, len(first)).Draw(t, "cut")
		other, rival, otherLayout := drawShard(t, "other "), fleets.Draw(t, "other fleet"),
			rapid.Bool().Draw(t, "other layout")
		other.Cluster = rapid.SampledFrom([]keyspace.ClusterName{
			keyspace.ClusterName(first), keyspace.ClusterName(first[:cut]), one.Cluster, other.Cluster,
		}).Draw(t, "rival")
		if layout && otherLayout {
			other.Prefix, other.Generation = one.Prefix, one.Generation
		}
		same := one == other && fleet == rival && layout == otherLayout
		if !same && first == name(rival, other, otherLayout) {
			t.Fatalf("%s in %q and %s in %q are both called %q", one, fleet, other, rival, first)
		}
	})
}

func drawShard(t *rapid.T, which string) keyspace.ShardID {
	id := keyspace.ShardID{Cluster: drawCluster(t, which+"cluster"), Prefix: drawPrefix(t, which+"prefix")}
	if rapid.Bool().Draw(t, which+"later") {
		id.Generation = rapid.Uint32Range(2, keyspace.MaxGeneration).Draw(t, which+"generation")
	}
	return id
}

// fuzzParse checks that whatever is read is written as it was.
func fuzzParse[T fmt.Stringer](f *testing.F, parse func(string) (T, error), seeds ...string) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parse(text); err == nil && got.String() != text {
			t.Errorf("%q reads back as %q", text, got)
		}
	})
}

func FuzzParseShardID(f *testing.F) {
	fuzzParse(f, keyspace.ParseShardID, "west/01", "west/", "a/b/0", "/", "", "west/2", "west/01@2", "west/@12", "west/@1",
		"west/@02")
}

func FuzzParsePrefix(f *testing.F) {
	fuzzParse(f, keyspace.ParsePrefix, "", "0", "01", "11111111", "111111111", "2")
}

func FuzzParseSlot(f *testing.F) {
	fuzzParse(f, keyspace.ParseSlot, "00", "ff", "FF", "0", "0g")
}
