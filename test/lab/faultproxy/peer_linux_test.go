package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

// The kernel gives one port of a client's to several connections, if they lead to different servers.
func TestConnectionsFromOnePortAreToldApart(t *testing.T) {
	from := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	for told := 0; told < 3; told++ {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		defer server.Close()
		c, err := from.DialContext(t.Context(), "tcp", server.Addr().String())
		if told > 0 && errors.Is(err, syscall.EADDRINUSE) { // another program has begun to listen on that port
			told, from.LocalAddr = -1, nil
			continue
		}
		must.Succeed(t, err)
		defer c.Close()
		from.LocalAddr = c.LocalAddr()
		raw, err := c.(*net.TCPConn).SyscallConn()
		must.Succeed(t, err)
		var socket syscall.Stat_t
		must.Succeed(t, raw.Control(func(fd uintptr) { err = syscall.Fstat(int(fd), &socket) }))
		if got := inodeOf(c.LocalAddr().String(), server.Addr().String()); got != fmt.Sprint(socket.Ino) {
			t.Errorf("%v to %v is %q, want %d", c.LocalAddr(), server.Addr(), got, socket.Ino)
		}
	}
}
