package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // the profiles of --pprof-bind-address

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/bench/load"
)

// newFloor is the bare client that `bench run` compares with. It runs until SIGTERM.
func newFloor() *cobra.Command {
	var kubeconfigs []string
	var workers, part, of int
	var profiles string
	cmd := &cobra.Command{
		Use: "floor", Short: "the bare client that run compares with", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := clusterFiles(kubeconfigs)
			if err != nil {
				return err
			}
			if len(files) == 0 || workers < 1 || part < 0 || part >= of {
				return errors.New("want at least one --kubeconfig CLUSTER=FILE, --workers of 1 or more, and --part below --of")
			}
			if profiles != "" {
				listener, err := net.Listen("tcp", profiles)
				if err != nil {
					return fmt.Errorf("listening for --pprof-bind-address: %w", err)
				}
				go func() { _ = http.Serve(listener, nil) }() // until the process ends
			}
			f := &load.Floor{Workers: workers, Part: part, Of: of}
			for _, k := range files {
				config, err := clientcmd.BuildConfigFromFlags("", k.path)
				if err != nil {
					return fmt.Errorf("reading the kubeconfig of %s: %w", k.cluster, err)
				}
				config.UserAgent = "bench-floor"
				c, err := load.NewCluster(k.cluster, config)
				if err != nil {
					return err
				}
				f.Clusters = append(f.Clusters, c)
			}
			return f.Run(cmd.Context(), func() { fmt.Fprintln(cmd.OutOrStdout(), "ready") })
		},
	}
	cmd.Flags().StringArrayVar(&kubeconfigs, "kubeconfig", nil, "serve the Ats of a cluster, `CLUSTER=FILE`; repeatable")
	cmd.Flags().IntVar(&workers, "workers", 16, "how many Ats are worked on at a time")
	cmd.Flags().IntVar(&part, "part", 0, "which `part` of the Ats is served, from 0")
	cmd.Flags().IntVar(&of, "of", 1, "how many parts there are")
	cmd.Flags().StringVar(&profiles, "pprof-bind-address", "", "`address` of Go's profiles")
	return cmd
}
