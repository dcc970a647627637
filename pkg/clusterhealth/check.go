package clusterhealth

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

// CheckConfig refuses a connection that would run a program or read a local file: whoever can write a Secret in the
// home cluster must not be able to make the controller do either. The error names the field of the kubeconfig and the
// way out, and no secret.
func CheckConfig(c *rest.Config) error {
	var errs []error
	refuse := func(is bool, field, instead string) {
		if is {
			errs = append(errs, fmt.Errorf("kubeconfig: %s isn't allowed in a Secret: use %s", field, instead))
		}
	}
	refuse(c.ExecProvider != nil, "users[].user.exec", "a token or client-certificate-data")
	refuse(c.AuthProvider != nil, "users[].user.auth-provider", "a token or client-certificate-data")
	refuse(c.BearerTokenFile != "", "users[].user.tokenFile", "users[].user.token")
	refuse(c.CAFile != "", "clusters[].cluster.certificate-authority", "certificate-authority-data")
	refuse(c.CertFile != "", "users[].user.client-certificate", "client-certificate-data")
	refuse(c.KeyFile != "", "users[].user.client-key", "client-key-data")
	return errors.Join(errs...)
}

// ConfigOf reads the connection out of a kubeconfig Secret, and checks it.
func ConfigOf(secret *corev1.Secret) (*rest.Config, error) {
	data := secret.Data[kubeconfig.DefaultKubeconfigSecretKey]
	if len(data) == 0 {
		return nil, fmt.Errorf("the Secret has no key %q: put the kubeconfig there", kubeconfig.DefaultKubeconfigSecretKey)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		// The parser's message can quote the file, tokens included.
		return nil, errors.New("the kubeconfig can't be read: check it with kubectl --kubeconfig FILE config view")
	}
	return cfg, CheckConfig(cfg)
}
