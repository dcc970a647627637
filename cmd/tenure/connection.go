package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// homeConfig finds the home cluster: by the flag, by $KUBECONFIG, or, as controller-runtime does, the cluster that this
// process runs in, or that of kubectl if it runs in none. (controller-runtime's own function logs an error before it
// returns one.)
func homeConfig(o *options) (*rest.Config, error) {
	var home *rest.Config
	var err error
	if o.namesHome() {
		home, err = connection(o.homeKubeconfig, "", "")
	} else if home, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		home, err = connection("", "", "")
	} else if err == nil && home.CAFile == "" { // otherwise the system's authorities would be taken for good
		return nil, fmt.Errorf("configuration of the home cluster: ca.crt beside %s holds no certificate (yet): it is the "+
			"kubelet's", home.BearerTokenFile)
	}
	if err != nil {
		return nil, usagef("configuration of the home cluster (see --home-kubeconfig): %v", err)
	}
	return home, tune(home)
}

// namesHome reports whether a kubeconfig is named that leads to home.
func (o *options) namesHome() bool {
	return o.homeKubeconfig != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != ""
}

// connection returns the connection that kubectl would make. But a file that is given, also by $KUBECONFIG, and leads
// nowhere is an error: kubectl would take the cluster that it runs in. contextFlag is the flag that names a context; ""
// if there is none.
func connection(kubeconfig, context, contextFlag string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if err := readable(rules); err != nil {
		return nil, err
	}
	all, err := rules.Load()
	if err != nil {
		return nil, err
	}
	from := origin{kubeconfig: kubeconfig, variable: os.Getenv(clientcmd.RecommendedConfigPathEnvVar)}
	wayOut := "correct it there"
	if contextFlag != "" {
		wayOut += ", or name another context by --" + contextFlag
	}
	nothing := kubeconfig == "" && len(all.Contexts) == 0
	if chosen := cmp.Or(context, all.CurrentContext); chosen != "" && all.Contexts[chosen] == nil && !nothing {
		what := "its current-context"
		if context != "" {
			what = "the one of --" + contextFlag
		}
		there := strings.Join(slices.Sorted(maps.Keys(all.Contexts)), ", ")
		return nil, fmt.Errorf("file %s has no context %q, %s; there are: %s: %s", from.file(), chosen, what,
			cmp.Or(there, "none"), wayOut)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if kubeconfig != "" || from.variable != "" {
		loading = clientcmd.NewNonInteractiveClientConfig(*all, context, overrides, rules)
	}
	config, err := loading.ClientConfig()
	if err != nil && (clientcmd.IsEmptyConfig(err) || nothing) {
		return nil, from.empty(wayOut)
	}
	if err == nil {
		err = usable(config)
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", from.file(), err)
	}
	config.UserAgent = "tenure/" + version + " (console)"
	return config, nil
}

// origin says where a connection is from: a file that was given, else $KUBECONFIG, else the default places.
type origin struct{ kubeconfig, variable string }

// file names the file for a person.
func (o origin) file() string {
	switch {
	case o.kubeconfig != "":
		return o.kubeconfig
	case o.variable != "":
		return fmt.Sprintf("$%s=%s", clientcmd.RecommendedConfigPathEnvVar, o.variable)
	}
	return clientcmd.RecommendedHomeFile
}

// empty is the error where no cluster is named.
func (o origin) empty(wayOut string) error {
	switch {
	case o.kubeconfig != "":
		return fmt.Errorf("file %s has no current-context, or it leads to no cluster: %s", o.kubeconfig, wayOut)
	case o.variable != "":
		return fmt.Errorf("$%s is %q: there is no such file, or it has no current-context: correct it, or give the "+
			"file by the flag", clientcmd.RecommendedConfigPathEnvVar, o.variable)
	}
	return fmt.Errorf("$%s isn't set, %s doesn't exist or has no current-context, and this isn't a Pod: give the "+
		"file by the flag", clientcmd.RecommendedConfigPathEnvVar, clientcmd.RecommendedHomeFile)
}

// mostKubeconfig bounds the kubeconfig files of the command line, in bytes. Those of thousands of clusters have less.
const mostKubeconfig = 64 << 20

// readable refuses files that client-go would read until the memory is full.
func readable(rules *clientcmd.ClientConfigLoadingRules) error {
	for _, path := range rules.GetLoadingPrecedence() {
		info, err := os.Stat(path)
		if err != nil || path == os.DevNull {
			continue // client-go says what is wrong, or does without the file
		}
		if info.Mode()&os.ModeDevice != 0 || info.Size() > mostKubeconfig {
			return fmt.Errorf("file %s is no kubeconfig: it is a device, or has more than %d MiB", path, mostKubeconfig>>20)
		}
	}
	return nil
}

// usable refuses a configuration with which no request could ever be sent. client-go would say so with each request,
// and not name the field.
func usable(config *rest.Config) error {
	to, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil || to.Scheme != "https" && to.Scheme != "http" {
		return fmt.Errorf("server %q: must be a URL such as https://10.0.0.1:6443: correct it in the kubeconfig",
			config.Host)
	}
	for _, c := range []struct {
		fields string
		tls    rest.TLSClientConfig
	}{
		{"certificate-authority-data", rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile}},
		{"client-certificate-data, client-key-data or insecure-skip-tls-verify", config.TLSClientConfig},
	} {
		if _, err := rest.TLSConfigFor(&rest.Config{Host: config.Host, TLSClientConfig: c.tls}); err != nil {
			return fmt.Errorf("%s can't be used: %w: correct it in the kubeconfig", c.fields, err)
		}
	}
	return nil
}
