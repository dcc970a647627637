package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/pkg/statuspage/door"
)

// newPage is the command that opens a replica's status page until it is interrupted.
func newPage(lookup func(string) (string, bool)) *cobra.Command {
	var o door.Options
	q := &homeFlags{}
	cmd := &cobra.Command{
		Use: "page", Short: "open the status page of a replica here, with your own credentials", Args: noArguments(""),
		Long: "Opens the status page of a replica on this machine, through the API server of the home cluster and with\n" +
			"your own token, prints its address, and keeps it open until Ctrl-C. See config/rbac/viewer_role.yaml for\n" +
			"the rights it takes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return usage(err)
			}
			home, err := q.home()
			if err != nil {
				return err
			}
			o.Namespace = q.homeNamespace
			out := cmd.OutOrStdout()
			return door.Open(cmd.Context(), home, o, func(pod, address string) {
				fmt.Fprintf(out, "The page of %s is at\n\n  %s\n\nuntil Ctrl-C.\n", pod, address)
			})
		},
	}
	q.declareHome(cmd, "context", lookup)
	fs := cmd.Flags()
	fs.StringVar(&o.Pod, "pod", "", "`pod` whose page it is (default: any replica that is ready)")
	fs.StringVar(&o.Selector, "selector", replicaLabels,
		"`labels` of the replicas' Pods; another fleet's, or a library's, have others")
	fs.IntVar(&o.Port, "metrics-port", 8080, "`port` of the replicas' metrics and page")
	fs.BoolVar(&o.Plain, "plain", false, "the replicas run with --metrics-secure=false")
	fs.StringVar(&o.ServiceAccount, "service-account", "",
		"look as this service account of the replicas' namespace, by `name`, "+
			"instead of as yourself; takes the right to create its tokens")
	fs.StringVar(&o.Listen, "listen", "127.0.0.1:0", "loopback `address` to open it at")
	refuseEmpty(cmd, "pod", "service-account")
	return cmd
}
