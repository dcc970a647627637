// Package virtual makes many small clusters of one API server, so that hundreds fit on one machine.
//
// A virtual cluster is a proxy on a loopback port of its own. It shows the namespaces of the API server whose names
// begin with the cluster's, without that part, and no others:
//
//	host, err := virtual.NewHost(plane.RESTConfig())
//	defer host.Close()
//	v017, err := host.Add(ctx, "v017", "")
//	c, err := client.New(v017.RESTConfig(), client.Options{}) // namespace "shop" here is "v017-shop" there
//	kubeconfig, err := v017.Kubeconfig(theReplicasOwn)
//
// Its kube-system is a namespace of its own too, and so its UID, which is what tells clusters apart. Objects that have
// no namespace (nodes, kinds, roles) are those of the API server, the same in all its clusters.
//
// # Lists and watches of all namespaces
//
// They go through as they are, with selectors (shardSelector too), pages and bookmarks, and what is in the namespaces
// of others is left out of the answer. A page may therefore have fewer objects than asked for, or none although another
// page follows, which the API allows; it doesn't tell how many objects remain. With hundreds of clusters that is too
// much work, since the API server sends what happens in one of them to the watches of all: give such a cluster its only
// namespace by name, and lists and watches of all namespaces become those of that one.
//
// # Considerations
//
// Everything is JSON between the proxy and the API server, and to the client. Bodies that a client sends as protobuf
// are read as the kinds of client-go's scheme. Upgraded connections (exec, attach, port-forward) aren't supported, nor
// CBOR. A service account's token is passed on, so rights are those of the API server: a role that is bound in all
// namespaces holds in all virtual clusters. [Cluster.RESTConfig] is the admin's by a token that only this process
// knows.
package virtual
