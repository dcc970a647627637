package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// kubeconfigFlags say what the kubeconfigs of clusters may do and reach, and where there are more of them than in
// Secrets.
type kubeconfigFlags struct {
	allow, servers []string
	folder         string
}

func (k *kubeconfigFlags) declare(fs *pflag.FlagSet) {
	fs.StringSliceVar(&k.allow, "kubeconfig-allow", nil,
		"`what` kubeconfigs of clusters may do beyond reaching a server over "+
			"TLS: "+strings.Join(kubeconfig.Words(), ", ")+
			"; with exec or files, anyone who may write such a Secret or file gets all that this replica can read and do")
	fs.StringSliceVar(&k.servers, "kubeconfig-servers", nil, "`servers` that kubeconfigs of clusters may name, such as "+
		"*.example.com:6443 or 10.0.0.0/8 (default: all)")
	fs.StringVar(&k.folder, "kubeconfig-folder", "",
		"`folder` whose files are clusters beside those of Secrets: NAME, NAME.yaml or "+
			"NAME.kubeconfig is the cluster NAME; watched, and the same for all replicas (default: none)")
}

// validate refuses a folder that isn't there, since the replica would take all its clusters for removed. It also
// refuses an empty list of servers, since that is hardly meant to allow all.
func (k *kubeconfigFlags) validate() error {
	if k.servers != nil && len(k.servers) == 0 {
		return errors.New("--kubeconfig-servers: names no server: name some, or leave out the flag and its variable to " +
			"allow all")
	}
	if k.folder == "" {
		return nil
	}
	info, err := os.Stat(k.folder)
	if err == nil && !info.IsDir() {
		err = errors.New("is a file")
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig-folder %q: must be a folder that this process can read: %w; create or mount it, "+
			"or leave the flag out", k.folder, err)
	}
	return nil
}

// join returns the manager for readers of cluster Secrets. To them, the files of the folder are clusters, too.
func (k *kubeconfigFlags) join(mgr mcmanager.Manager, namespace string, log logr.Logger) (mcmanager.Manager, error) {
	if k.folder == "" {
		return mgr, nil
	}
	folder, err := kubeconfig.OpenFolder(k.folder, namespace, log)
	if err != nil {
		return nil, usagef("--kubeconfig-folder: %v", err)
	}
	return folder.Join(mgr)
}

func (k *kubeconfigFlags) policy() (kubeconfig.Policy, error) {
	return kubeconfig.ParsePolicy(k.allow, k.servers)
}
