package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplicasDoNotInheritTheirFlags(t *testing.T) {
	got := ReplicaEnvironment([]string{"PATH=/bin", "TENURE_SHARDING=off", "OTEL_TRACES_SAMPLER=always_off", "KUBECONFIG=/home", "HOME=/"})
	if diff := cmp.Diff([]string{"PATH=/bin", "HOME=/"}, got); diff != "" {
		t.Error("environment (-want +got):\n" + diff)
	}
}
