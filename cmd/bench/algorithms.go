package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/tenure-dev/tenure/bench/algorithms"
)

// numbers is a flag value such as 1,2,5.
type numbers struct{ to *[]int }

func (n numbers) String() string {
	if n.to == nil {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*n.to), " ", ","), "[]")
}

func (n numbers) Set(text string) error {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		v, err := strconv.Atoi(part)
		if err != nil {
			return fmt.Errorf("%q is no number", part)
		}
		list = append(list, v)
	}
	*n.to = list
	return nil
}

// runAlgorithms compares the planner with other algorithms, without a cluster.
func runAlgorithms(args []string, stdout, _ io.Writer) error {
	config := algorithms.DefaultConfig()
	fs := flag.NewFlagSet("algorithms", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(numbers{&config.Replicas}, "replicas", "`numbers` of replicas, as in 1,10,100")
	fs.Var(numbers{&config.Clusters}, "clusters", "`numbers` of clusters")
	fs.IntVar(&config.PrefixBits, "prefix-bits", config.PrefixBits, "2^`n` shards per cluster")
	fs.StringVar((*string)(&config.Names), "names", string(config.Names), "replicas' names: sequential or random")
	fs.Uint64Var(&config.Seed, "seed", config.Seed, "of random names")
	fs.IntVar(&config.Runs, "runs", config.Runs, "how often each call is timed")
	jsonFile := fs.String("json", "", "also write the table as JSON to this `file`")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, "usage: bench algorithms [flags]\n\n")
			fs.SetOutput(stdout)
			fs.PrintDefaults()
		}
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	table, err := algorithms.Run(ctx, config)
	if err != nil {
		return err
	}
	if *jsonFile != "" {
		data, err := json.MarshalIndent(table, "", " ")
		if err != nil {
			return fmt.Errorf("writing the comparison: %w", err)
		}
		if err := os.WriteFile(*jsonFile, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("writing the comparison: %w", err)
		}
	}
	return table.WriteText(stdout)
}
