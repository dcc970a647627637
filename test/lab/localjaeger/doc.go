// Package localjaeger runs the real Jaeger on loopback, for tests and the demo.
//
// # Setup
//
// `make jaeger` builds it from source: minutes the first time. FindBinary says where it is looked for; TENURE_JAEGER
// names another one, such as an official binary, which has the web page that the one built here lacks (upstream's Go
// module doesn't carry it; the API is complete in both).
//
// # Usage
//
//	jaeger, err := localjaeger.Start(ctx, localjaeger.Config{})
//	if err != nil { ... }
//	defer jaeger.Stop()
//	replica.Env = append(replica.Env, jaeger.Environment()...)        // for programs that send spans
//	cluster.ExtraAPIServerArgs = append(cluster.ExtraAPIServerArgs, jaeger.APIServerArgs()...)
//
// # Considerations
//
// Only the newest traces are kept, in memory. It ends when this process does, however that ends.
package localjaeger
