package kubeconfig

import (
	"fmt"
	"slices"
	"strings"
)

// Words of --kubeconfig-allow.
const (
	allowExec          = "exec"
	allowFiles         = "files"
	allowProxy         = "proxy"
	allowImpersonation = "impersonation"
	allowInsecure      = "insecure"
)

// Policy says what a kubeconfig from a Secret may do beyond reaching an API server over TLS with the credentials that
// are in its text. The zero value allows nothing more, and every server.
type Policy struct {
	// Exec allows to run a program that makes credentials.
	Exec bool
	// Files allows to read files of this machine: tokens, keys, certificates.
	Files bool
	// Proxy allows to name a proxy.
	Proxy bool
	// Impersonation allows to act as another user than the one of the credentials.
	Impersonation bool
	// Insecure allows connections that don't prove which server they are with: http, and skipped verification.
	Insecure bool
	// Servers that may be reached, as proxies and as names in certificates too; nil means all.
	Servers []Pattern
}

// ParsePolicy reads the values of --kubeconfig-allow and --kubeconfig-servers.
func ParsePolicy(allow, servers []string) (Policy, error) {
	var p Policy
	for _, word := range allow {
		field := map[string]*bool{
			allowExec: &p.Exec, allowFiles: &p.Files, allowProxy: &p.Proxy, allowImpersonation: &p.Impersonation,
			allowInsecure: &p.Insecure,
		}[word]
		if field == nil {
			return Policy{}, fmt.Errorf("--kubeconfig-allow %q: must be %s, separated by commas", word,
				strings.Join(Words(), ", "))
		}
		*field = true
	}
	for _, text := range servers {
		pattern, err := parsePattern(text)
		if err != nil {
			return Policy{}, fmt.Errorf("--kubeconfig-servers %w", err)
		}
		p.Servers = append(p.Servers, pattern)
	}
	return p, nil
}

// Words returns all that --kubeconfig-allow takes.
func Words() []string {
	return []string{allowExec, allowFiles, allowProxy, allowImpersonation, allowInsecure}
}

// reaches reports whether a server may be reached. An empty port matches only patterns without a port.
func (p Policy) reaches(host, port string) bool {
	return p.Servers == nil || slices.ContainsFunc(p.Servers, func(s Pattern) bool { return s.matches(host, port) })
}
