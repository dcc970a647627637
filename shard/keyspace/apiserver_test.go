package keyspace_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// These tests hold the package against the code that API servers share with their clients. What only the API server
// has, test/apiserver asks.

func TestSlotSelectorsSelectTheSlotsOfThePrefixAndNoObjectWithoutASlot(t *testing.T) {
	for bits := range keyspace.MaxBits + 1 {
		for _, prefix := range keyspace.Partition(bits) {
			selector, err := labels.Parse(prefix.SlotSelector())
			if err != nil {
				t.Fatalf("parsing %s: %v", prefix.SlotSelector(), err)
			}
			if selector.Matches(labels.Set{"app": "web"}) {
				t.Errorf("%s selects an object without a slot", prefix.SlotSelector())
			}
			for slot := range 256 {
				slot := keyspace.Slot(slot)
				got := selector.Matches(labels.Set{keyspace.SlotLabel: slot.String()})
				if want := prefix.ContainsSlot(slot); got != want {
					t.Errorf("%s selects slot %s: %t, want %t", prefix.SlotSelector(), slot, got, want)
				}
			}
		}
	}
}

func TestSlotLabelIsAValidLabel(t *testing.T) {
	if faults := validation.IsQualifiedName(keyspace.SlotLabel); len(faults) > 0 {
		t.Errorf("label key: %v", faults)
	}
	if faults := validation.IsValidLabelValue(keyspace.Slot(0xa0).String()); len(faults) > 0 {
		t.Errorf("label value: %v", faults)
	}
}

func TestRecordNamesAreValidObjectNames(t *testing.T) {
	longest := keyspace.Fleet(strings.Repeat("f", 63))
	rapid.Check(t, func(t *rapid.T) {
		id, fleet := drawShard(t, ""), rapid.SampledFrom([]keyspace.Fleet{"", "blue", longest}).Draw(t, "fleet")
		for _, name := range []string{id.RecordName(fleet), keyspace.LayoutName(fleet, id.Cluster)} {
			if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
				t.Fatalf("record name %q of %s: %v", name, id, faults)
			}
		}
	})
}
