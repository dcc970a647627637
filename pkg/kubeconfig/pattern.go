package kubeconfig

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// Pattern matches servers by a host name in which * stands for a part of one label, by an address, or by a network
// such as 10.0.0.0/8; with a port, or for all ports.
type Pattern struct {
	labels  string       // the name, its dots replaced by slashes, so that * doesn't match them
	network netip.Prefix // of addresses
	port    string       // "" means all
}

// parsePattern reads HOST, HOST:PORT, ADDRESS, [ADDRESS]:PORT or NETWORK.
func parsePattern(text string) (Pattern, error) {
	wrong := fmt.Errorf("%q: want a host such as *.example.com or west.example.com:6443, an address, or a network such "+
		"as 10.0.0.0/8", text)
	if strings.Contains(text, "/") {
		network, err := netip.ParsePrefix(text)
		if address := network.Addr(); address.Is4In6() {
			// As IPv4, like the addresses that are compared with it. Less than 96 bits, such as /8, give no network.
			network = netip.PrefixFrom(address.Unmap(), network.Bits()-96)
		}
		if err == nil && network.IsValid() {
			return Pattern{network: network.Masked()}, nil
		}
		return Pattern{}, fmt.Errorf("%q isn't a network such as 10.0.0.0/8: write a host such as "+
			"west.example.com:6443 without https:// and path", text)
	}
	host, port := text, ""
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
		// No address has a port in another form: 06443 would match nothing.
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return Pattern{}, fmt.Errorf("%q: want a port from 1 to 65535, such as 6443", text)
		}
	}
	if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		address = address.Unmap()
		return Pattern{network: netip.PrefixFrom(address, address.BitLen()), port: port}, nil
	}
	// A name never matches an address, nor does * stand for a part of one.
	if strings.Trim(host, "0123456789.*") == "" && strings.ContainsAny(host, "0123456789") {
		return Pattern{}, fmt.Errorf("%q isn't an address: write one such as 10.0.0.1, or a network such as 10.0.0.0/24",
			text)
	}
	labels := labelsOf(host)
	if _, err := path.Match(labels, ""); err != nil || host == "" || strings.ContainsAny(host, `:/\[]@?# `) {
		return Pattern{}, wrong
	}
	return Pattern{labels: labels, port: port}, nil
}

func (p Pattern) matches(host, port string) bool {
	if p.port != "" && p.port != port {
		return false
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return p.network.IsValid() && p.network.Contains(address.Unmap())
	}
	if p.labels == "" {
		return false
	}
	ok, err := path.Match(p.labels, labelsOf(host))
	return ok && err == nil
}

// labelsOf returns a host name in canonical form, with slashes for dots.
func labelsOf(host string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(host, ".")), ".", "/")
}
