package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// kubeconfigFlags are what kubeconfigs from Secrets may do and reach.
type kubeconfigFlags struct {
	allow, servers []string
}

func (k *kubeconfigFlags) declare(fs *pflag.FlagSet) {
	fs.StringSliceVar(&k.allow, "kubeconfig-allow", nil, "`what` kubeconfigs from Secrets may do beyond reaching a server over "+
		"TLS: "+strings.Join(kubeconfig.Words(), ", ")+"; exec and files give who may write such Secrets what this replica has")
	fs.StringSliceVar(&k.servers, "kubeconfig-servers", nil, "`servers` that kubeconfigs from Secrets may name, such as "+
		"*.example.com:6443 or 10.0.0.0/8 (default: all)")
}

func (k *kubeconfigFlags) policy() (kubeconfig.Policy, error) {
	return kubeconfig.ParsePolicy(k.allow, k.servers)
}
