package main

import (
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/pkg/statuspage"
	"github.com/tenure-dev/tenure/shard"
)

// addStatusPage serves the fleet's state beside the metrics.
func (o *options) addStatusPage(mgr *shard.Manager) error {
	page := statuspage.New(statuspage.Config{Replica: o.replica, Namespace: o.namespace, Records: mgr.Records,
		Metrics: metrics.Registry})
	return page.SetupWithManager(mgr.GetLocalManager())
}
