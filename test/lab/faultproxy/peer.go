package faultproxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
)

// peer finds out which process made a connection, by the kernel's tables. It works on Linux only; elsewhere no
// process matches.
type peer struct {
	client, server string // the connection's ends, as host:port

	mu     sync.Mutex // guards all below
	inode  string     // of the client's socket; "" as long as it isn't known
	owners map[int]bool
}

type peerKey struct{}

// withPeer makes the peer of a connection known to its requests.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peer{client: c.RemoteAddr().String(), server: c.LocalAddr().String(),
		owners: map[int]bool{}})
}

// is says whether a process made the connection.
func (p *peer) is(pid int) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inode == "" {
		p.inode = inodeOf(p.client, p.server)
	}
	owns, known := p.owners[pid]
	if !known && p.inode != "" {
		owns = holdsSocket(pid, p.inode)
		p.owners[pid] = owns
	}
	return owns
}

// inodeOf looks a socket up by both its addresses: connections to several servers may share one port of the client's.
func inodeOf(local, remote string) string {
	ours, theirs := inTable(local), inTable(remote)
	if ours == "" || theirs == "" {
		return ""
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for row := range strings.Lines(string(content)) {
			// sl local_address rem_address st queues timer retransmits uid timeout inode
			cells := strings.Fields(row)
			if len(cells) > 9 && strings.HasSuffix(cells[1], ours) && strings.HasSuffix(cells[2], theirs) {
				return cells[9]
			}
		}
	}
	return ""
}

// inTable returns an IPv4 address as the end of a cell in the kernel's tables; "" for any other.
func inTable(address string) string {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Unmap().Is4() {
		return ""
	}
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}

func holdsSocket(pid int, inode string) bool {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	for _, file := range open {
		if to, err := os.Readlink(folder + "/" + file.Name()); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
