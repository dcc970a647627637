package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	provider "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

// Bounds of what is inspected. A kubeconfig of one cluster has a few KiB, one of a cloud's many clusters some tens.
const (
	maxText    = 128 << 10 // bytes
	maxEntries = 128       // contexts, clusters, users: each
	maxDepth   = 32        // of the YAML; what is used of a kubeconfig has 8
	maxField   = 1 << 10   // bytes of a name or an address
	maxToken   = 16 << 10
	maxPEM     = 64 << 10 // of certificates
	maxKey     = 16 << 10
	maxFile    = 1 << 20 // bytes of a file that is named; one of all public authorities has a fifth of that
	maxValues  = 64      // entries of a list or map in a user: groups, arguments
)

// Label marks the Secrets of clusters. Key is the key of their data that holds the kubeconfig. UIDAnnotation is the UID
// of the cluster's namespace kube-system, which tells it from all others.
const (
	Label         = provider.DefaultKubeconfigSecretLabel
	Key           = provider.DefaultKubeconfigSecretKey
	UIDAnnotation = "tenure.dev/cluster-uid"
)

// Access is what a kubeconfig gives access to, as far as it was inspected and allowed.
type Access struct{ config *clientcmdapi.Config }

// OfSecret inspects the kubeconfig in a Secret, which may stand for a file ([FileOf]). All errors are a *Refused.
func OfSecret(secret *corev1.Secret, policy Policy) (*Access, error) {
	text := secret.Data[Key]
	path, isFile := FileOf(secret.UID)
	switch problem := secret.Annotations[problemAnnotation]; {
	case isFile && problem != "":
		return nil, &Refused{Reasons: []string{problem}, File: path}
	case isFile && len(text) == 0:
		return nil, &Refused{Reasons: []string{"the file is empty: put the kubeconfig there"}, File: path}
	case !isFile && secret.Name == HomeName:
		return nil, refused(fmt.Sprintf("the Secret's name %q is what replicas call the home cluster: give it another name",
			HomeName))
	case len(text) == 0:
		return nil, refused(fmt.Sprintf("the Secret has no key %q, or it is empty: put the kubeconfig there", Key))
	}
	access, err := inspect(text, policy, path)
	if r := (*Refused)(nil); errors.As(err, &r) {
		r.File = path
	}
	return access, err
}

// Inspect reads a kubeconfig and keeps what the policy allows of its current context. Nothing that it names is opened,
// run or asked, but for files where the policy allows them. All errors are a *Refused.
func Inspect(text []byte, policy Policy) (*Access, error) { return inspect(text, policy, "") }

// inspect inspects a kubeconfig that is in the file at path; "" for one that isn't in a file.
func inspect(text []byte, policy Policy, path string) (*Access, error) {
	if err := plain(text); err != nil {
		return nil, refused(err.Error())
	}
	all, err := clientcmd.Load(text)
	if err != nil { // not wrapped: it can quote the text, tokens included
		return nil, refused("it isn't one, or a field has the wrong type: check it with kubectl --kubeconfig FILE config " +
			"view")
	}
	i := &inspection{policy: policy, path: path}
	access := i.access(all)
	if len(i.refused) > 0 {
		return nil, &Refused{Reasons: i.refused, allowable: len(i.refused) == i.allowable,
			passing: len(i.refused) == i.passing}
	}
	// This finds what is left: fields that contradict each other.
	config, err := access.REST()
	if err != nil {
		return nil, &Refused{Reasons: []string{err.Error()}, passing: access.namesFiles()}
	}
	if _, err := rest.TLSConfigFor(config); err != nil { // not wrapped: it can quote the text, too
		return nil, &Refused{Reasons: []string{"its credentials can't be used: check exec.apiVersion, and that certificate " +
			"and key belong together"}, passing: access.namesFiles()}
	}
	return access, nil
}

// plain refuses a text that costs more to parse than its size promises. A YAML alias stands for another part of the
// text, so a few KiB could expand to gigabytes.
func plain(text []byte) error {
	if len(text) > maxText {
		return fmt.Errorf("it has more than %d bytes: leave out what the current context doesn't need", maxText)
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := documents.Decode(&first); err != nil {
		return errors.New("it isn't YAML: check it with kubectl --kubeconfig FILE config view")
	}
	if err := simple(&first, 0); err != nil {
		return err
	}
	if err := documents.Decode(&second); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one document (---): leave one, and give each other cluster a Secret or file " +
			"of its own")
	}
	return nil
}

func simple(node *yaml.Node, depth int) error {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return errors.New("YAML's anchors and aliases (&name, *name) aren't followed: write out what they stand for")
	case depth > maxDepth:
		return fmt.Errorf("it is nested more than %d levels deep: leave out what the current context doesn't need", maxDepth)
	}
	for _, child := range node.Content {
		if err := simple(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// inspection collects what is refused.
type inspection struct {
	policy    Policy
	path      string // of the file that holds the kubeconfig, "" if none does
	refused   []string
	allowable int // how many of them another policy would allow
	passing   int // how many of them are about the content of files, which may change
}

func (i *inspection) refuse(format string, args ...any) {
	i.refused = append(i.refused, fmt.Sprintf(format, args...))
}

func (i *inspection) refuseIf(bad bool, format string, args ...any) {
	if bad {
		i.refuse(format, args...)
	}
}

// only refuses a field that is set unless the policy allows what it asks for.
func (i *inspection) only(allowed, set bool, field, instead, word string) {
	if set && !allowed {
		i.allowable++
		i.refuse("%s isn't allowed: %s, or start the replicas with --kubeconfig-allow=%s", field, instead, word)
	}
}

// bounded refuses a text that is too long.
func (i *inspection) bounded(field string, length, most int) {
	i.refuseIf(length > most, "%s has %d bytes, at most %d are read", field, length, most)
}

func (i *inspection) access(all *clientcmdapi.Config) *Access {
	for _, list := range []struct {
		field string
		n     int
	}{{"contexts", len(all.Contexts)}, {"clusters", len(all.Clusters)}, {"users", len(all.AuthInfos)}} {
		i.refuseIf(list.n > maxEntries, "%s has %d entries, at most %d are read: leave out what the current context doesn't "+
			"need",
			list.field, list.n, maxEntries)
	}
	if len(i.refused) > 0 {
		return nil
	}
	current := all.Contexts[all.CurrentContext]
	if all.CurrentContext == "" || current == nil {
		i.refuse("current-context must name one of contexts: kubectl --kubeconfig FILE config use-context NAME sets it")
		return nil
	}
	cluster, user := all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo]
	i.refuseIf(cluster == nil, "the current context's cluster must be one of clusters")
	i.refuseIf(user == nil, "the current context's user must be one of users")
	if len(i.refused) > 0 {
		return nil
	}
	a := &Access{config: clientcmdapi.NewConfig()}
	const name = "cluster" // of all entries: the original names may be anything
	a.config.Clusters[name] = i.cluster(cluster)
	a.config.AuthInfos[name] = i.user(user)
	a.config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	a.config.CurrentContext = name
	if user.Exec != nil && i.policy.Exec {
		a.config.Clusters[name].Extensions = cluster.Extensions // an exec plugin may have settings there
	}
	return a
}

// cluster inspects how the API server is reached.
func (i *inspection) cluster(c *clientcmdapi.Cluster) *clientcmdapi.Cluster {
	const prefix = "clusters[].cluster."
	server := i.server(prefix+"server", c.Server, "https", "http")
	if server != nil && server.Scheme == "http" {
		i.only(i.policy.Insecure, true, "an http address in "+prefix+"server", "use https", allowInsecure)
	}
	i.only(i.policy.Insecure, c.InsecureSkipTLSVerify, prefix+"insecure-skip-tls-verify",
		"use certificate-authority-data", allowInsecure)
	authority, content := i.file(prefix+"certificate-authority", c.CertificateAuthority, "use certificate-authority-data")
	if content != nil && !isAuthority(content) {
		i.passing++
		i.refuse("%scertificate-authority names a file that holds no certificate (PEM)", prefix)
	}
	i.only(i.policy.Proxy, c.ProxyURL != "", prefix+"proxy-url", "leave it out", allowProxy)
	if c.ProxyURL != "" && i.policy.Proxy {
		i.server(prefix+"proxy-url", c.ProxyURL, "https", "http", "socks5")
	}
	if c.TLSServerName != "" {
		i.refuseIf(!isHost(c.TLSServerName), "%stls-server-name isn't a host name or an address", prefix)
		// If many servers share one address, this name chooses among them.
		i.refuseIf(!i.policy.reaches(c.TLSServerName, portOf(server)),
			"%stls-server-name isn't one of --kubeconfig-servers: name one of them, or add it to that flag", prefix)
	}
	i.bounded(prefix+"certificate-authority-data", len(c.CertificateAuthorityData), maxPEM)
	i.refuseIf(len(c.CertificateAuthorityData) > 0 && len(c.CertificateAuthorityData) <= maxPEM &&
		!isAuthority(c.CertificateAuthorityData),
		"%scertificate-authority-data holds no certificate (PEM, in base64)", prefix)
	i.refuseIf(c.InsecureSkipTLSVerify && (len(c.CertificateAuthorityData) > 0 || c.CertificateAuthority != ""),
		"%sinsecure-skip-tls-verify and a certificate authority contradict each other: leave one out", prefix)
	fresh := clientcmdapi.NewCluster()
	if server != nil {
		fresh.Server = server.String()
	}
	fresh.TLSServerName, fresh.InsecureSkipTLSVerify = c.TLSServerName, c.InsecureSkipTLSVerify
	fresh.CertificateAuthority, fresh.CertificateAuthorityData = authority, c.CertificateAuthorityData
	fresh.ProxyURL, fresh.DisableCompression = c.ProxyURL, c.DisableCompression
	return fresh
}

// user inspects the credentials.
func (i *inspection) user(u *clientcmdapi.AuthInfo) *clientcmdapi.AuthInfo {
	const prefix = "users[].user."
	i.only(i.policy.Exec, u.Exec != nil, prefix+"exec", "use token or client-certificate-data", allowExec)
	i.refuseIf(u.AuthProvider != nil, "%sauth-provider isn't supported: use token or client-certificate-data", prefix)
	tokenFile, _ := i.file(prefix+"tokenFile", u.TokenFile, "use token")
	certificate, _ := i.file(prefix+"client-certificate", u.ClientCertificate, "use client-certificate-data")
	key, _ := i.file(prefix+"client-key", u.ClientKey, "use client-key-data")
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"as", u.Impersonate != ""}, {"as-uid", u.ImpersonateUID != ""}, {"as-groups", len(u.ImpersonateGroups) > 0},
		{"as-user-extra", len(u.ImpersonateUserExtra) > 0},
	} {
		i.only(i.policy.Impersonation, f.set, prefix+f.field, "use the credentials of the user that is meant",
			allowImpersonation)
	}
	for _, f := range []struct{ field, value string }{
		{"username", u.Username}, {"password", u.Password}, {"as", u.Impersonate}, {"as-uid", u.ImpersonateUID},
	} {
		i.bounded(prefix+f.field, len(f.value), maxField)
	}
	i.refuseIf(u.Token != "" && u.Username+u.Password != "",
		"%stoken and username or password are two ways to log in: leave one out", prefix)
	i.bounded(prefix+"token", len(u.Token), maxToken)
	i.refuseIf(!isPrintable(u.Token), "%stoken has white space or characters that no token has: a line break at its end, "+
		"perhaps", prefix)
	i.certificate(prefix, u)
	i.lists(prefix, u)
	fresh := clientcmdapi.NewAuthInfo()
	fresh.Token, fresh.Username, fresh.Password = u.Token, u.Username, u.Password
	fresh.ClientCertificateData, fresh.ClientKeyData = u.ClientCertificateData, u.ClientKeyData
	fresh.TokenFile, fresh.ClientCertificate, fresh.ClientKey = tokenFile, certificate, key
	fresh.Impersonate, fresh.ImpersonateUID = u.Impersonate, u.ImpersonateUID
	fresh.ImpersonateGroups, fresh.ImpersonateUserExtra = u.ImpersonateGroups, u.ImpersonateUserExtra
	if u.Exec != nil {
		fresh.Exec = u.Exec.DeepCopy()
		if strings.ContainsRune(u.Exec.Command, filepath.Separator) { // else it is looked for in $PATH
			fresh.Exec.Command, _ = i.beside(u.Exec.Command)
		}
		fresh.Exec.InteractiveMode = clientcmdapi.NeverExecInteractiveMode // no person can answer
		fresh.Exec.InstallHint = ""
	}
	return fresh
}

// certificate inspects a client's certificate and key.
func (i *inspection) certificate(prefix string, u *clientcmdapi.AuthInfo) {
	certificate, key := u.ClientCertificateData, u.ClientKeyData
	i.bounded(prefix+"client-certificate-data", len(certificate), maxPEM)
	i.bounded(prefix+"client-key-data", len(key), maxKey)
	if len(certificate) > maxPEM || len(key) > maxKey || u.ClientCertificate != "" || u.ClientKey != "" ||
		len(certificate) == 0 && len(key) == 0 {
		return
	}
	_, err := tls.X509KeyPair(certificate, key)
	i.refuseIf(err != nil, "%sclient-certificate-data and client-key-data must both be there and belong together (PEM, "+
		"in base64)", prefix)
}

// lists bounds the lists and maps of a user.
func (i *inspection) lists(prefix string, u *clientcmdapi.AuthInfo) {
	extra := len(u.ImpersonateUserExtra)
	for _, values := range u.ImpersonateUserExtra {
		extra += len(values)
	}
	most := func(field string, n int) {
		i.refuseIf(n > maxValues, "%s%s has %d entries, at most %d are read", prefix, field, n, maxValues)
	}
	most("as-groups", len(u.ImpersonateGroups))
	most("as-user-extra", extra)
	if u.Exec != nil {
		most("exec.args", len(u.Exec.Args))
		most("exec.env", len(u.Exec.Env))
		i.refuseIf(u.Exec.Command == "", "%sexec.command is empty", prefix)
	}
}

// server parses the address of a server; nil if the server may not be reached.
func (i *inspection) server(field, text string, schemes ...string) *url.URL {
	i.bounded(field, len(text), maxField)
	if len(text) > maxField {
		return nil
	}
	u, err := url.Parse(text) // its error quotes the text
	switch {
	case text == "":
		i.refuse("%s is empty: want https://HOST:PORT", field)
	case err != nil || !slices.Contains(schemes, u.Scheme) || !isHost(u.Hostname()) || !isPrintable(text):
		i.refuse("%s isn't an address: want https://HOST:PORT", field)
	case u.User != nil && field != "clusters[].cluster.proxy-url":
		i.refuse("%s has a user or a password in it: use users[].user", field)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		i.refuse("%s has a query or a fragment (after ? or #): leave it out", field)
	case !i.policy.reaches(u.Hostname(), portOf(u)):
		i.refuse("%s isn't one of --kubeconfig-servers: name one of them, or add it to that flag", field)
	default:
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
		return u
	}
	return nil
}

// portOf returns the port of an address, or else the default port of its scheme.
func portOf(u *url.URL) string {
	switch {
	case u == nil:
		return ""
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	case u.Scheme == "socks5":
		return "1080"
	}
	return "443"
}

var (
	hostName = regexp.MustCompile(
		`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)\.?$`)
	// numeric matches the last part of what C libraries take for an address, too: 127.1, 2130706433, 0x7f.1.
	numeric = regexp.MustCompile(`^(0[xX][0-9a-fA-F]*|[0-9]+)$`)
)

// isHost reports whether a host is a name in ASCII, or an address in its usual form. Another way to write an
// address must not get around a list of servers.
func isHost(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Zone() == ""
	}
	parts := hostName.FindStringSubmatch(host)
	return len(host) <= 253 && parts != nil && !numeric.MatchString(parts[3])
}

// isPrintable reports whether a text has neither white space nor anything outside of ASCII: it can be sent in a header.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isAuthority(pem []byte) bool { return x509.NewCertPool().AppendCertsFromPEM(pem) }

// Kubeconfig returns the kubeconfig that was built, as text.
func (a *Access) Kubeconfig() ([]byte, error) {
	text, err := clientcmd.Write(*a.config)
	if err != nil {
		return nil, errors.New("the inspected kubeconfig can't be written") // the error could quote it
	}
	return text, nil
}

// Connection returns the connection that the kubeconfig in a Secret gives; see [OfSecret].
func Connection(secret *corev1.Secret, policy Policy) (*rest.Config, error) {
	access, err := OfSecret(secret, policy)
	if err != nil {
		return nil, err
	}
	return access.REST()
}

// REST returns the connection, which stays with its server ([Pin]). The error repeats nothing of the kubeconfig.
func (a *Access) REST() (*rest.Config, error) {
	c, err := clientcmd.NewDefaultClientConfig(*a.config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New("its fields contradict each other, or a file can't be read: check it with kubectl " +
			"--kubeconfig FILE version")
	}
	return c, Pin(c)
}
