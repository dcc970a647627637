package sharding

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/test/must"
)

// pin pins all shards whose names begin with the given text to a replica; "" takes the pins away.
func (r *rig) pin(shards, to string) {
	r.t.Helper()
	must.Succeed(r.t, r.Pin(r.t.Context(), shards, func(int) string { return to }))
}

// heldBy waits until a replica serves all shards whose names begin with the given text; "" is none.
func (r *rig) heldBy(shards, replica string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("all of %s is held by %q", shards, replica), func() error {
		for name, now := range r.holders() {
			if strings.HasPrefix(name, shards) && now.replica != replica {
				return fmt.Errorf("%s is held by %q", name, now.replica)
			}
		}
		if replica == "" {
			return nil
		}
		return r.Inactive(r.t.Context())
	})
}

// podsMade checks in the API server's log how many Pods of the test were made.
func (r *rig) podsMade(cluster string, want int) {
	r.t.Helper()
	n, cutShort := 0, 0
	for _, e := range r.audited(cluster) {
		switch {
		case e.Namespace != r.namespace || !e.IsPod() || e.What() != "create pods":
		case e.Code == 201:
			n++
		case e.Outcome() == audit.Unknown: // by a lapse, or since nothing was answered for seconds: it may have been made
			cutShort++
		}
	}
	if n > want || n+cutShort < want {
		r.t.Errorf("%s: %d Pods were made for %d Ats", cluster, n, want)
	}
	list := &corev1.PodList{}
	must.Succeed(r.t, r.Client(cluster).List(r.t.Context(), list, client.InNamespace(r.namespace)))
	if len(list.Items) > want {
		r.t.Errorf("%s: %d Pods exist for %d Ats", cluster, len(list.Items), want)
	}
}
