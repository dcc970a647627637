package localplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

// Second is another API server of a plane, on the same etcd, as where several stand behind a load balancer. It can lag:
// then whatever etcd tells it arrives late, so its watch cache is behind, and with it its watches and the lists that
// are served from the cache. Writes and reads that must be current take longer and are right. Its audit log is beside
// the first one's. It ends with the plane.
type Second struct {
	plane  *Plane
	port   int
	args   []string
	server *Process
	lag    *lagging
}

// secondSocket is where a second API server finds etcd.
const secondSocket = "second.sock:0"

// StartSecond starts the plane's second API server. A plane has two at most.
func (p *Plane) StartSecond(ctx context.Context) (_ *Second, err error) {
	p.operation.Lock()
	defer p.operation.Unlock()
	p.mu.Lock()
	arguments, etcd, there := p.arguments, p.etcd, p.second
	p.mu.Unlock()
	if there != nil {
		return nil, fmt.Errorf("cluster %s has a second API server", p.config.Name)
	}
	s := &Second{plane: p}
	if s.lag, err = startLagging(filepath.Join(p.dir, secondSocket), filepath.Join(p.dir, etcdSocket)); err != nil {
		return nil, fmt.Errorf("starting the second API server of cluster %s: %w", p.config.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := OnPorts(1, p.pickPorts, func(ports []int) error {
		s.port = ports[0]
		// Not added at the end: of etcd's addresses both would count.
		s.args = slices.Clone(arguments)
		for i, arg := range s.args {
			switch name, _, _ := strings.Cut(arg, "="); name {
			case "--secure-port":
				s.args[i] = fmt.Sprintf("--secure-port=%d", s.port)
			case "--etcd-servers":
				s.args[i] = "--etcd-servers=unix://" + secondSocket
			case "--audit-log-path":
				s.args[i] = "--audit-log-path=audit-second.log"
			}
		}
		return s.run(ctx, etcd)
	}); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.second = s
	p.mu.Unlock()
	return s, nil
}

// run starts the process and waits until it is ready.
func (s *Second) run(ctx context.Context, etcd *Process) (err error) {
	if s.server, err = s.plane.startProcessAs("kube-apiserver", "second-apiserver", s.args); err != nil {
		return err
	}
	return s.plane.awaitAPIServer(ctx, s.RESTConfig(), etcd, s.server)
}

// Lag delays from now on everything that etcd sends to the server. 0, as at the start, is no delay.
func (s *Second) Lag(by time.Duration) { s.lag.by.Store(int64(by)) }

// RESTConfig is the admin's client configuration of this server, the caller's to change.
func (s *Second) RESTConfig() *rest.Config {
	config := s.plane.RESTConfig()
	config.Host = s.url()
	return config
}

// Kubeconfig rewrites a kubeconfig of the plane so that it reaches this server.
func (s *Second) Kubeconfig(kubeconfig []byte) ([]byte, error) {
	return faultproxy.Kubeconfig(kubeconfig, s.url(), nil)
}

func (s *Second) url() string { return fmt.Sprintf("https://127.0.0.1:%d", s.port) }

// stop ends the server and what stands between it and etcd.
func (s *Second) stop() error {
	var err error
	s.Lag(0)
	if s.server != nil {
		err = s.server.Stop()
	}
	return errors.Join(err, s.lag.close())
}

// lagging passes on what is said between clients and a Unix socket. What the socket says is delayed; nothing is lost or
// changes places.
type lagging struct {
	by       atomic.Int64 // nanoseconds
	to       string
	listener net.Listener
	group    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	open  map[net.Conn]bool
	ended bool
}

func startLagging(from, to string) (*lagging, error) {
	listener, err := net.Listen("unix", from)
	if err != nil {
		hint := ""
		if len(from) > 100 && strings.Contains(err.Error(), "invalid argument") {
			hint = ": the path of a socket can't be so long, name a shorter folder (by TMPDIR or Config.Dir)"
		}
		return nil, fmt.Errorf("%w%s", err, hint)
	}
	l := &lagging{to: to, listener: listener, open: map[net.Conn]bool{}}
	l.group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			l.group.Go(func() { l.pass(client) })
		}
	})
	return l, nil
}

// keep has connections closed when all ends; false says that it has ended.
func (l *lagging) keep(connections ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range connections {
		l.open[c] = true
	}
	return !l.ended
}

func (l *lagging) pass(client net.Conn) {
	server, err := net.Dial("unix", l.to)
	if err != nil {
		_ = client.Close() // it sees a server that hangs up
		return
	}
	var both sync.WaitGroup
	end := func() { _ = client.Close(); _ = server.Close() } // further calls do nothing
	if !l.keep(client, server) {
		end()
	}
	both.Go(func() { defer end(); _, _ = io.Copy(server, client) })
	both.Go(func() { defer end(); l.late(client, server) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, client)
	delete(l.open, server)
}

// late copies with the delay of the moment.
func (l *lagging) late(to io.Writer, from io.Reader) {
	type piece struct {
		data []byte
		came time.Time
	}
	pieces := make(chan piece, 4096)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(pieces)
		for buffer := make([]byte, 64<<10); ; {
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{slices.Clone(buffer[:n]), time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range pieces {
		for { // in steps, so that a lag that is over lets go of what waits
			left := time.Until(p.came.Add(time.Duration(l.by.Load())))
			if left <= 0 {
				break
			}
			time.Sleep(min(left, 10*time.Millisecond))
		}
		if _, err := to.Write(p.data); err != nil {
			for range pieces { // until the reader has seen that it is over
			}
			return
		}
	}
}

func (l *lagging) close() error {
	err := l.listener.Close()
	l.mu.Lock()
	l.ended = true
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.group.Wait()
	return err
}
