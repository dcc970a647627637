// Command chaos hurts a running fleet and judges from the API servers' audit logs whether any invariant broke.
//
//	go run ./test/chaos [--for 15m] [--faults 300] [--moves 1000] [--seed N] [--scenario calm,storm,moves,handoff]
//
// It starts a home cluster and two workload clusters, whose kubelets it plays itself, replicas as processes with the
// rights that config/ ships (in the storm behind fault proxies), and an open-loop load of Ats. Then it kills, pauses,
// restarts and partitions, one scenario after the other:
//
//   - calm: one fault of a process at a time, nothing else; what ended is started when all is at rest. The gaps are
//     measured here.
//   - storm: faults of processes, API servers and the network, three at a time, chosen by the seed.
//   - moves: shards are sent around by pins, until enough have moved.
//   - handoff: shards of thousands of objects move, leave and crash under load. The figures of a handoff come from here.
//
// At the end everything is left alone until it comes to rest; then the audit logs are judged (package witness), and the
// exit code is 0 only if no invariant broke, no At was lost, late for good or run twice, every shard is held and the
// counts are balanced. On a violation the folder with all logs is kept and named.
//
// The seed decides which faults hit whom, in which order and for how long. Processes and networks have timing of their
// own, so a seed gives the same schedule, not the same run.
package main
