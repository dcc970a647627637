// Package virtual makes many small clusters of one API server, so that hundreds fit on one machine.
//
// A virtual cluster is a proxy on a loopback port of its own. It shows two namespaces of the API server, default and
// kube-system, whose names begin with the cluster's there, and no others:
//
//	host, err := virtual.NewHost(plane.RESTConfig())
//	defer host.Close()
//	v017, err := host.Add(ctx, "v017")
//	c, err := client.New(v017.RESTConfig(), client.Options{}) // namespace "default" here is "v017-default" there
//	kubeconfig, err := v017.Kubeconfig(theReplicasOwn)
//
// Its kube-system has a UID of its own, which is what tells clusters apart. Objects that have
// no namespace (nodes, kinds, roles) are those of the API server, the same in all its clusters.
//
// # Lists and watches of all namespaces
//
// They become those of default, with selectors (shardSelector too), pages and bookmarks: objects belong there, and no
// namespace can be added. Were they those of all namespaces of the API server, it would send what happens in one of
// hundreds of clusters to the watches of all.
//
// Lists and watches of Namespaces go through as they are, and what is of others is left out of the answer. A page may
// therefore have fewer of them than asked for, or none although another page follows, which the API allows; it doesn't
// tell how many remain.
//
// # Considerations
//
// Everything is JSON between the proxy and the API server, and to the client. Bodies that a client sends as protobuf
// are read as the kinds of client-go's scheme. Upgraded connections (exec, attach, port-forward) aren't supported, nor
// CBOR. A service account's token is passed on, so rights are those of the API server: a role that is bound in all
// namespaces holds in all virtual clusters. [Cluster.RESTConfig] is the admin's by a token that only this process
// knows.
package virtual
