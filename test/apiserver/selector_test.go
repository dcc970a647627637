// Package apiserver holds shard selectors against the code with which API servers read them.
package apiserver

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/sharding"
	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

func TestTheAPIServerReadsEverySelectorAsThePrefixesRange(t *testing.T) {
	for bits := range keyspace.MaxBits + 1 {
		for _, prefix := range keyspace.Partition(bits) {
			selector, err := sharding.Parse(prefix.Selector())
			if err != nil {
				t.Fatalf("the API server refuses %s: %v", prefix.Selector(), err)
			}
			lo, hi := prefix.Range()
			want := []apisharding.ShardRangeRequirement{{
				Key:   "object.metadata.uid",
				Start: fmt.Sprintf("0x%016x", lo),
				End:   fmt.Sprintf("0x%016x", hi),
			}}
			if hi == 0 {
				want[0].End = "0x10000000000000000"
			}
			expect.Equal(t, "requirements of "+prefix.Selector(), want, selector.Requirements())
		}
	}
}

func TestTheAPIServerFiltersExactlyWhatThePrefixContains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefixes := keyspace.Partition(rapid.IntRange(0, keyspace.MaxBits).Draw(t, "bits"))
		prefix := rapid.SampledFrom(prefixes).Draw(t, "prefix")
		uid := rapid.String().Draw(t, "uid")
		selector, err := sharding.Parse(prefix.Selector())
		if err != nil {
			t.Fatal(err)
		}
		want, err := selector.Matches(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := prefix.Contains(keyspace.Hash(uid)); got != want {
			t.Fatalf("prefix %q contains UID %q: %t, the API server says %t", prefix, uid, got, want)
		}
	})
}
