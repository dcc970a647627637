package localplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

func TestWhatASocketSaysComesLateAndInOrder(t *testing.T) {
	t.Chdir(t.TempDir()) // a socket's path must be short
	server, err := net.Listen("unix", "server")
	must.Succeed(t, err)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	l, err := startLagging("late", "server")
	must.Succeed(t, err)
	client, err := net.Dial("unix", "late")
	must.Succeed(t, err)
	defer client.Close()
	answers := bufio.NewScanner(client)
	for n, lag := range []time.Duration{0, 300 * time.Millisecond, 0} {
		l.by.Store(int64(lag))
		began := time.Now()
		for i := range 20 {
			fmt.Fprintln(client, n, i)
		}
		for i := range 20 {
			if want := fmt.Sprint(n, " ", i); !answers.Scan() || answers.Text() != want {
				t.Fatalf("got %q, want %q", answers.Text(), want)
			}
			if took := time.Since(began); took < lag {
				t.Errorf("with a lag of %v it came after %v", lag, took)
			}
		}
	}
	l.by.Store(int64(time.Hour))
	fmt.Fprintln(client, "seen at the end, if at all")
	time.Sleep(50 * time.Millisecond) // until the line is held back by the lag
	l.by.Store(0)
	if err := l.close(); err != nil {
		t.Error(err)
	}
	must.Succeed(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.Copy(io.Discard, client); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection outlives the proxy")
	}
	if _, err := net.Dial("unix", "late"); err == nil {
		t.Error("somebody still listens")
	}
}

func TestAPathTooLongForASocketIsNamed(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if _, err := startLagging(long, "server"); err == nil || !strings.Contains(err.Error(), "name a shorter folder") {
		t.Errorf("got %v", err)
	}
}
