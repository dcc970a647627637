package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

func TestViewsAreSaidWhereThereIsSomethingToSay(t *testing.T) {
	well := []ClusterView{{Cluster: "a", State: "closed", Running: 16, Ready: 3, WaitSeconds: 0.9,
		Limits: "1 writes at a time", Writes: 1}}
	if said := EncodeViews(well); said != "" {
		t.Errorf("said although all is well: %s", said)
	}
	var many []ClusterView
	for i := range 100 {
		v := ClusterView{Cluster: keyspace.ClusterName(fmt.Sprintf("%s%02d", strings.Repeat("c", 200), i)), State: "limited",
			Cause: "throttling", WaitSeconds: float64(i)}
		for n := range 20 {
			v.Namespaces = append(v.Namespaces, Waiting{Namespace: fmt.Sprintf("%s%02d", strings.Repeat("n", 61), n),
				Keys: 1e6, WaitSeconds: 1e5})
		}
		many = append(many, v)
	}
	many[7].State = "open"
	said := EncodeViews(many)
	got := decodeViews(said)
	if len(got) != MaxViews || got[0].State != "open" || got[1].WaitSeconds != 99 ||
		len(got[maxDetailed-1].Namespaces) != MaxWaiting || len(got[maxDetailed].Namespaces) != 0 || len(said) > maxSaid*3/4 {
		t.Errorf("%d views in %d bytes, the first %+v", len(got), len(said), got[:min(2, len(got))])
	}
	if len(many[0].Namespaces) != 20 {
		t.Error("the caller's views were changed")
	}
}

func TestWhatNoReplicaWouldSayIsNothing(t *testing.T) {
	for _, said := range []string{"", "[", "{}", `"x"`, strings.Repeat(" ", maxSaid+1),
		"[" + strings.Repeat(`{"cluster":"a"},`, MaxViews) + `{"cluster":"b"}]`} {
		if got := decodeViews(said); len(got) > 0 {
			t.Errorf("%.40q is read as %v", said, got)
		}
	}
	if got := decodeViews(`[{"cluster":"a","state":"\u001b[2J","waitSeconds":2}]`); len(got) != 1 ||
		strings.Contains(string(got[0].State), "\x1b") {
		t.Errorf("it can steer a terminal: %v", got)
	}
}

func TestNamespacesThatWaitLongestComeFirst(t *testing.T) {
	var all []Waiting
	for _, w := range []Waiting{{"a", 1, 1}, {"b", 1, 3}, {"c", 1, 2}, {"a", 2, 9}} {
		all = AddWaiting(all, w)
	}
	expect.Equal(t, "waiting", []Waiting{{"a", 3, 9}, {"b", 1, 3}, {"c", 1, 2}}, all)
}
