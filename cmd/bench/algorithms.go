package main

import (
	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/bench/algorithms"
	"github.com/tenure-dev/tenure/bench/report"
)

// newAlgorithms compares the planner with other algorithms, without a cluster.
func newAlgorithms() *cobra.Command {
	config := algorithms.DefaultConfig()
	var jsonFile string
	cmd := &cobra.Command{
		Use: "algorithms", Short: "the planner beside other algorithms, without a cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := algorithms.Run(cmd.Context(), config)
			if err != nil {
				return err
			}
			if err := report.WriteJSON(jsonFile, "the comparison", table); err != nil {
				return err
			}
			return table.WriteText(cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.IntSliceVar(&config.Replicas, "replicas", config.Replicas, "`numbers` of replicas, as in 1,10,100")
	fs.IntSliceVar(&config.Clusters, "clusters", config.Clusters, "`numbers` of clusters")
	fs.IntVar(&config.PrefixBits, "prefix-bits", config.PrefixBits, "2^`n` shards per cluster")
	fs.StringVar((*string)(&config.Names), "names", string(config.Names), "replicas' names: sequential or random")
	fs.Uint64Var(&config.Seed, "seed", config.Seed, "of random names")
	fs.IntVar(&config.Runs, "runs", config.Runs, "how often each call is timed")
	fs.StringVar(&jsonFile, "json", "", "also write the table as JSON to this `file`")
	return cmd
}
