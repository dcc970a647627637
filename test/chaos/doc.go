// Command chaos injects faults into a running fleet and judges from the API servers' audit logs whether any invariant
// broke.
//
//	go run ./test/chaos [--for 25m] [--faults 300] [--moves 1000] [--untidy 50] [--seed N]
//		[--scenario calm,storm,moves,untidy,handoff]
//
// It starts a home cluster and two workload clusters, whose kubelets it simulates itself, and replicas as processes
// with the permissions that config/ ships (in the storm behind fault proxies). It applies an open-loop load of Ats.
// Then it kills, pauses, restarts and partitions, one scenario after the other:
//
//   - calm: one fault of a process at a time, and nothing else. A replica that ended is started again when everything
//     is at rest. The gaps are measured here.
//   - storm: faults of processes, API servers and the network, three at a time, chosen by the seed.
//   - moves: shards are moved around by pins, until there were enough moves.
//   - untidy: faults other than crashes. Home is restored from a snapshot, answers late or refuses writes, or one of
//     its two API servers lags; a replica can't read home, or its watches there stand still; a replica, or all of them,
//     can't use a cluster; Secrets change; a cluster gets a second name; people apply, edit and delete records, layouts
//     and Leases. One kind after another, each until everything is at rest. --kinds selects some.
//   - handoff: shards of thousands of objects move, leave and crash under load. The figures of a handoff are measured
//     here.
//
// At the end the fleet is left alone until it is at rest. Then the audit logs are judged (package witness), and so is
// the account of the run. The exit code is 0 only if
//
//   - no invariant broke, no At was lost or run twice, every shard was held and the counts were balanced,
//   - the quotas of faults, moves and Ats were reached; every fault, seen from outside, took effect: a partition hit a
//     request, a paused process stood still, a server that was restarted is another process; only such faults count,
//   - no key waited longer than its bound: a lease duration and 3 s in calm, 150 s in a storm,
//   - in calm, no replica lapsed or ended, and the targets were measured and met (except with --lenient),
//   - a fault explains every error line in the logs, by its victim and its time; in calm there are none.
//
// On a failure it keeps the folder with all logs, and prints its name.
//
// The seed decides which faults hit which victims, in which order and for how long. Processes and networks have timing
// of their own, so a seed gives the same schedule, not the same run.
//
//	go run ./test/chaos gates [--only EXPRESSION]
//
// plants one fault after another: in replicas that are built with -tags lab (package test/hooks), in the control's
// audit logs, and in demo and bench. It fails unless each fault is caught and each control passes.
package main
