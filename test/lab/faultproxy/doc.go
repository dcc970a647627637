// Package faultproxy stands between a Kubernetes client and an API server, and does to their conversation what
// networks, load balancers and overloaded servers do.
//
// It understands requests: a [Rule] picks them by verb, resource, name and User-Agent, and says what happens to them
// with which probability and for how long. Requests that no rule picks pass as if the proxy weren't there.
//
//	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: plane.RESTConfig()})
//	defer proxy.Close()
//	kubeconfig, err := proxy.Kubeconfig(theReplicasOwn)
//	fault := proxy.Inject(faultproxy.Rule{
//		Match: faultproxy.Match{Verbs: []string{"create"}, Resources: []string{"pods"}},
//		Fault: faultproxy.LoseReply, Probability: 0.5,
//	})
//	...
//	fault.End()
//
// # How it works
//
// The proxy ends TLS with a certificate of its own, speaks HTTP/2 or HTTP/1.1 with the client as the client likes
// (client-go takes HTTP/2), and HTTP/2 with the API server. The client's Authorization header is passed through, so
// the API server sees the client's own service account. A client certificate can't be passed on.
//
// Answers to watches are streamed piece by piece. While a rule freezes or delays a watch, pieces are kept in memory and
// delivered later, in order, so a client sees a server that lags, not one that forgets.
//
// # Considerations
//
// A rule acts on requests that arrive while it is in force; those that freeze or delay watches, and partitions, act on
// open watches too. What was held back when a partition ends is not delivered: the exchange is cut, as with a real
// network after a long silence. A cut stream over HTTP/2 is a reset stream, over HTTP/1.1 a closed connection.
package faultproxy
