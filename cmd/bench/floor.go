package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
)

// runFloor is the bare client that `bench run` compares with. It runs until SIGTERM.
func runFloor(args []string, stdout, stderr io.Writer) error {
	var kubeconfigs named
	fs := flag.NewFlagSet("floor", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Var(&kubeconfigs, "kubeconfig", "serve the Ats of a cluster, `CLUSTER=FILE`; repeatable")
	workers := fs.Int("workers", 16, "how many Ats are worked on at a time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if len(kubeconfigs) == 0 || *workers < 1 {
		return errors.New("want at least one --kubeconfig CLUSTER=FILE, and --workers of 1 or more")
	}
	f := &load.Floor{Workers: *workers, Feeds: map[string]*feed.Client{}}
	for _, k := range kubeconfigs {
		config, err := clientcmd.BuildConfigFromFlags("", k.value)
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of %s: %w", k.cluster, err)
		}
		config.UserAgent = "bench-floor"
		c, err := load.NewCluster(k.cluster, config)
		if err != nil {
			return err
		}
		f.Clusters = append(f.Clusters, c)
		if f.Feeds[k.cluster], err = feed.NewClient(config); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return f.Run(ctx, func() { fmt.Fprintln(stdout, "ready") })
}
