//go:build !linux

package engage

import (
	"context"
	"net"
)

// dial opens connections as its dialer does.
func dial(with *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return with.DialContext
}
