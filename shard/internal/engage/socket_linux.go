package engage

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// dial opens a TCP connection as its dialer does, and then reads and writes it without telling Go's scheduler.
//
// The scheduler is told of system calls because they may block. The first one after a process was idle wakes the
// runtime's monitor thread (sysmon), which looks at the call every 20 µs until the process is idle again. A replica is
// idle between almost any two events, so that took much of its processor time. Calls on a socket that is in
// non-blocking mode don't block, which makes the monitor useless: where there is nothing to read they return, and the
// goroutine waits for the network poller as ever.
func dial(with *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := with.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok && !raceDetector {
			return newSocket(tcp)
		}
		return conn, nil
	}
}

func newSocket(tcp *net.TCPConn) (*socket, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{TCPConn: tcp, raw: raw}
	s.in.call, s.out.call = s.in.read, s.out.write
	return s, nil
}

// socket is a TCP connection. See [dial]. Like all connections it is safe for concurrent use.
type socket struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is the read, or the write, of a socket that is under way.
type transfer struct {
	mu   sync.Mutex // held from its beginning to its end; guards all below
	left []byte     // what is still to be filled, or to be written
	done int
	err  syscall.Errno
	call func(fd uintptr) (over bool) // the method read or write; kept, since a new method value allocates each time
}

func (s *socket) Read(into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.left, s.in.done, s.in.err = into, 0, 0
	err := s.raw.Read(s.in.call)
	switch {
	case err == nil && s.in.err != 0:
		return 0, s.failed("read", s.in.err)
	case err == nil && s.in.done == 0:
		return 0, io.EOF
	}
	return s.in.done, err
}

func (s *socket) Write(from []byte) (int, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.out.left, s.out.done, s.out.err = from, 0, 0
	err := s.raw.Write(s.out.call)
	if err == nil && s.out.err != 0 {
		err = s.failed("write", s.out.err)
	}
	return s.out.done, err
}

// failed is the error that package net returns.
func (s *socket) failed(what string, err syscall.Errno) error {
	return &net.OpError{Op: what, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(),
		Err: os.NewSyscallError(what, err)}
}

// read takes what has arrived; over is false if nothing has.
func (t *transfer) read(fd uintptr) (over bool) {
	n, err := t.pass(syscall.SYS_READ, fd)
	t.done, t.err = n, err
	return err != syscall.EAGAIN
}

// write writes until all is written; over is false if the socket takes no more at present.
func (t *transfer) write(fd uintptr) (over bool) {
	for len(t.left) > 0 {
		n, err := t.pass(syscall.SYS_WRITE, fd)
		if err != 0 {
			t.err = err
			return err != syscall.EAGAIN
		}
		t.done, t.left = t.done+n, t.left[n:]
	}
	t.err = 0
	return true
}

// pass makes one system call.
func (t *transfer) pass(call, fd uintptr) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.left))),
			uintptr(len(t.left)))
		switch err {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, err
		}
	}
}
