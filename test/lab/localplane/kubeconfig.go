package localplane

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is the life of a service account's token: a day outlasts every test, demo and bench.
const tokenSeconds = 24 * 60 * 60

// writeKubeconfig writes a kubeconfig that stands alone: everything it needs is inside.
func (p *Plane) writeKubeconfig(file, user string, credentials clientcmdapi.AuthInfo) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[p.config.Name] = &clientcmdapi.Cluster{Server: p.url(), CertificateAuthorityData: p.pki.ca()}
	config.AuthInfos[user] = &credentials
	config.Contexts[p.config.Name] = &clientcmdapi.Context{Cluster: p.config.Name, AuthInfo: user}
	config.CurrentContext = p.config.Name
	path := filepath.Join(p.dir, file)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the kubeconfig %s: %w", path, withHint(err))
	}
	return path, nil
}

// writeKubeconfigs writes the kubeconfigs of the admin and of the components.
func (p *Plane) writeKubeconfigs() error {
	for file, who := range map[string]struct {
		user string
		identity
	}{
		adminKubeconfig:                 {"tenure-admin", p.pki.admin},
		"controller-manager.kubeconfig": {"system:kube-controller-manager", p.pki.manager},
		"scheduler.kubeconfig":          {"system:kube-scheduler", p.pki.scheduler},
		"kwok.kubeconfig":               {"kwok", p.pki.kubelet},
	} {
		credentials := clientcmdapi.AuthInfo{ClientCertificateData: who.cert, ClientKeyData: who.key}
		if _, err := p.writeKubeconfig(file, who.user, credentials); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig is the path of the admin's kubeconfig (group system:masters).
func (p *Plane) Kubeconfig() string { return filepath.Join(p.dir, adminKubeconfig) }

// RESTConfig returns the admin's client configuration, without client-side rate limit. Each call returns a new one,
// the caller's to change.
func (p *Plane) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:            p.url(),
		TLSClientConfig: rest.TLSClientConfig{CAData: p.pki.ca(), CertData: p.pki.admin.cert, KeyData: p.pki.admin.key},
		QPS:             -1,
	}
}

// ServiceAccountKubeconfig writes a kubeconfig for an existing service account, with a token of a day's life, and
// returns its path. It is for programs that are to run with exactly the rights they ship with.
func (p *Plane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(p.RESTConfig())
	if err != nil {
		return "", fmt.Errorf("making a client for cluster %s: %w", p.config.Name, err)
	}
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token for service account %s/%s in cluster %s: %w", namespace, name,
			p.config.Name, err)
	}
	credentials := clientcmdapi.AuthInfo{Token: answer.Status.Token}
	return p.writeKubeconfig("sa-"+namespace+"-"+name+".kubeconfig", name, credentials)
}

// UserKubeconfig writes a kubeconfig for a user in some groups, who proves that with a client certificate, and returns
// its path. That makes groups possible that no token of a service account is in: API servers hang their spans only
// below requests of system:monitoring (KEP-647).
func (p *Plane) UserKubeconfig(user string, groups ...string) (string, error) {
	who, err := p.pki.client(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return "", fmt.Errorf("making a certificate for user %s in cluster %s: %w", user, p.config.Name, err)
	}
	file := "user-" + strings.ReplaceAll(user, ":", "-") + ".kubeconfig"
	return p.writeKubeconfig(file, user, clientcmdapi.AuthInfo{ClientCertificateData: who.cert, ClientKeyData: who.key})
}
