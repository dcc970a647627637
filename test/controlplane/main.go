// Command controlplane is a whole Kubernetes control plane in one multi-call binary: the first argument names the
// component, the rest are that component's own flags. The components are the unmodified upstream programs; this
// file only dispatches to them.
//
// It lives in a module of its own so that Kubernetes' dependency graph never reaches Tenure's. Tests, the demo and
// the bench execute it; nothing imports it.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	_ "time/tzdata" // CronJob time zones, as in the upstream mains

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of the components
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

// components maps the first argument to the program it runs. Each returns the process's exit code.
var components = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"etcdctl":                 func() int { ctlv3.MustStart(); return 0 },
	"etcdutl":                 runEtcdutl,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 func() int { return cli.Run(kubectl.NewDefaultKubectlCommand()) },
	"kwok":                    runKwok,
}

func main() {
	if len(os.Args) > 1 {
		if run, ok := components[os.Args[1]]; ok {
			// Every component reads os.Args itself: drop our own argument and show it the name it expects.
			os.Args = append([]string{os.Args[1]}, os.Args[2:]...)
			os.Exit(run())
		}
	}
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: controlplane %s [flags]\n", strings.Join(names, "|"))
	os.Exit(2)
}

// runEtcdutl has etcdutl's command "snapshot" alone, which restores what etcdctl's saved.
func runEtcdutl() int {
	command := &cobra.Command{Use: "etcdutl"}
	command.AddCommand(etcdutl.NewSnapshotCommand())
	if command.Execute() != nil { // cobra has said why
		return 1
	}
	return 0
}

// runKwok repeats what kwok's own main does: it reads its global flags before cobra sees the rest.
func runKwok() int {
	// Kubernetes' packages declare a global --version that isn't a boolean; cobra would hand it to kwok and fail.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err == nil {
		command := kwok.NewCommand(ctx)
		command.PersistentFlags().AddFlagSet(flags)
		err = command.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kwok: %v\n", err)
		return 1
	}
	return 0
}
