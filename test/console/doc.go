// Package console tests what the person on call uses, against real replicas and a real home cluster: the subcommands of
// tenure, the status page, the metrics that dashboard and alerts are made of, and the runbook's way back from a backup.
package console
