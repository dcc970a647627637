package engage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/test/must"
)

// dialed returns a socket and the other end of its connection.
func dialed(t testing.TB) (*socket, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	conn, err := dial(&net.Dialer{})(context.Background(), "tcp", listener.Addr().String())
	if tcp, ok := conn.(*net.TCPConn); ok && raceDetector {
		conn, err = newSocket(tcp)
	}
	must.Succeed(t, err)
	far, err := listener.Accept()
	must.Succeed(t, err)
	t.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return conn.(*socket), far.(*net.TCPConn)
}

func TestASocketCarriesWhatDoesNotFitAtOnce(t *testing.T) {
	near, far := dialed(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the kernel buffers
	go func() {
		_, _ = io.Copy(far, far)
		_ = far.CloseWrite()
	}()
	go func() {
		if n, err := near.Write(sent); n != len(sent) || err != nil {
			t.Errorf("wrote %d of %d: %v", n, len(sent), err)
		}
		_ = near.CloseWrite()
	}()
	got, err := io.ReadAll(near)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes of %d back: %v", len(got), len(sent), err)
	}
	if n, err := near.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("reading on: %d, %v; want EOF", n, err)
	}
}

func TestASocketFailsAsOthersDo(t *testing.T) {
	t.Run("deadline of a read", func(t *testing.T) {
		near, _ := dialed(t)
		_ = near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err := near.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("deadline of a write that the other end doesn't take", func(t *testing.T) {
		near, far := dialed(t)
		all := make([]byte, 64<<20)
		go func() { // once the write has begun, its deadline passes
			_, _ = far.Read(make([]byte, 1))
			_ = near.SetWriteDeadline(time.Now())
		}()
		if n, err := near.Write(all); n == 0 || n == len(all) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d of %d, %v", n, len(all), err)
		}
	})
	t.Run("closed here, during a read", func(t *testing.T) {
		near, _ := dialed(t)
		time.AfterFunc(10*time.Millisecond, func() { _ = near.Close() })
		if n, err := near.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("reset by the other end", func(t *testing.T) {
		near, far := dialed(t)
		_ = far.SetLinger(0)
		_ = far.Close()
		_, err := near.Read(make([]byte, 1))
		if failed := (*net.OpError)(nil); !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &failed) {
			t.Errorf("read: %v", err)
		}
		if _, err = near.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("nothing asked for", func(t *testing.T) {
		near, _ := dialed(t)
		if n, err := near.Read(nil); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestReadsAndWritesOfASocketAllocateNothing(t *testing.T) {
	near, far := dialed(t)
	go func() { _, _ = io.Copy(far, far) }()
	message := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		_, werr := near.Write(message)
		_, rerr := io.ReadFull(near, message)
		if werr != nil || rerr != nil {
			t.Error(werr, rerr)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkIdleRead reports the processor time of one message and its echo in a process that has nothing else to do:
// over a socket, and over a connection of package net.
func BenchmarkIdleRead(b *testing.B) {
	for _, bench := range []struct {
		name string
		ends func() (net.Conn, net.Conn)
	}{
		{"socket", func() (net.Conn, net.Conn) {
			near, far := dialed(b)
			echo, err := newSocket(far)
			must.Succeed(b, err)
			return near, echo
		}},
		{"net", func() (net.Conn, net.Conn) {
			near, far := dialed(b)
			return near.TCPConn, far
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			near, far := bench.ends()
			go func() {
				buffer := make([]byte, 100)
				for {
					n, err := far.Read(buffer)
					if err != nil {
						return
					}
					time.Sleep(time.Millisecond) // both ends are idle
					_, _ = far.Write(buffer[:n])
				}
			}()
			message := make([]byte, 100)
			before := machine.ProcessorTime()
			for b.Loop() {
				_, _ = near.Write(message)
				if _, err := io.ReadFull(near, message); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(machine.ProcessorTime()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
