// Command oldest is the control plane of the oldest Kubernetes version that Tenure supports, in place of the program
// controlplane: what test/deploy and others check on the version of today is checked on this one, too. The components
// are the unmodified upstream programs. What isn't Kubernetes' own, such as etcd, is left to the program controlplane
// in the same folder.
//
// It lives in a module of its own, since its dependencies are as old.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // as in the upstream mains

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of the components
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: %s COMPONENT [flags]", os.Args[0]))
	}
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	os.Args = slices.DeleteFunc(os.Args[1:], isUnknown)
	switch os.Args[0] {
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	}
	today := filepath.Join(filepath.Dir(self), "controlplane")
	fail(syscall.Exec(today, append([]string{today}, os.Args...), os.Environ()))
}

// isUnknown reports whether a flag is one that this version doesn't know: its servers have no filtered watches
// (KEP-5866), and all tests ask for them.
func isUnknown(flag string) bool {
	return strings.HasPrefix(flag, "--feature-gates=ShardedListAndWatch=")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "oldest:", err)
	os.Exit(1)
}
