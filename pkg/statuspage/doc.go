// Package statuspage serves a small read-only page that shows the whole fleet, live: who serves which part of which
// cluster, handoffs as they happen, how long keys wait, and what is wrong.
//
// # Setup
//
//	page := statuspage.New(statuspage.Config{
//		Replica: name, Namespace: ns, Records: mgr.Records, Metrics: metrics.Registry,
//	})
//	err := page.SetupWithManager(mgr.GetLocalManager())
//
// It is at [Path] of the metrics server, to which / redirects, behind the same authentication and authorization. All of
// it is in the binary, and the page makes no request to anywhere else.
//
// # Considerations
//
// Every replica shows the same fleet, judged by package console from the records that it watches anyway, so a page
// costs the API servers nothing. Leases are judged by the changes that the page saw, on this replica's clock. The
// queues, and which clusters can be reached, are those of this replica alone, and the page says so.
//
// Nothing is computed without a viewer. With viewers, one view is made for all of them, at most once a second, and
// less often if making it takes long. A very large fleet is shown in part ([maxShards]).
//
// The streams are closed when the manager begins to stop. Otherwise they would delay its end.
package statuspage
