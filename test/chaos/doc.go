// Command chaos hurts a running fleet and judges from the API servers' audit logs whether any invariant broke.
//
//	go run ./test/chaos [--for 15m] [--faults 300] [--moves 1000] [--untidy 38] [--seed N] [--scenario calm,storm,moves,untidy,handoff]
//
// It starts a home cluster and two workload clusters, whose kubelets it plays itself, replicas as processes with the
// rights that config/ ships (in the storm behind fault proxies), and an open-loop load of Ats. Then it kills, pauses,
// restarts and partitions, one scenario after the other:
//
//   - calm: one fault of a process at a time, nothing else; what ended is started when all is at rest. The gaps are
//     measured here.
//   - storm: faults of processes, API servers and the network, three at a time, chosen by the seed.
//   - moves: shards are sent around by pins, until enough have moved.
//   - untidy: what isn't a crash. Home goes back to a snapshot, answers late or refuses writes, one of its two API servers
//     lags; a replica, or all, can't reach a cluster; Secrets change; people apply and delete records and Leases. One
//     kind after another, each until all is at rest. --kinds picks some.
//   - handoff: shards of thousands of objects move, leave and crash under load. The figures of a handoff come from here.
//
// At the end everything is left alone until it comes to rest; then the audit logs are judged (package witness), and so
// is the account of the run. The exit code is 0 only if
//
//   - no invariant broke, no At was lost or run twice, every shard was held and the counts were balanced,
//   - everything was done that was to be done, and every fault of the network hit a request,
//   - no key waited longer than its bound: a lease duration and 3 s in calm, 150 s in a storm,
//   - in calm, no replica lapsed or ended, and the targets were met (but for --lenient),
//   - every error line has a fault that explains it, with that victim and at that time; in calm none does.
//
// On a failure the folder with all logs is kept and named.
//
// The seed decides which faults hit whom, in which order and for how long. Processes and networks have timing of their
// own, so a seed gives the same schedule, not the same run.
//
//	go run ./test/chaos gates [--only EXPRESSION]
//
// plants one fault after another in replicas that are built with -tags lab (package test/hooks), in the control's audit
// logs, and below demo and bench, and fails unless each is caught and each control is clean.
package main
