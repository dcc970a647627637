package localplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

var oneBareCluster = []ClusterConfig{{Name: "home"}}

func startPlanes(t *testing.T, config Config) *Planes {
	t.Helper()
	planes, err := Start(testContext(t), config)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	return planes
}

func checkGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func checkNoFile(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func TestStopLeavesNoProcessNoPortAndNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	planes := startPlanes(t, Config{Clusters: []ClusterConfig{{Name: "west", Workload: true}}, TmpfsData: true})
	running, folders := pids(planes), []string{planes.Dir()}
	if len(running) != 5 {
		t.Errorf("%d components run, want etcd, API server, controller manager, scheduler and kwok", len(running))
	}
	if planes.data != nil {
		folders = append(folders, planes.data.path)
	}
	address := strings.TrimPrefix(planes.Cluster("west").RESTConfig().Host, "https://")
	// A paused API server must not hold up the end.
	must.Succeed(t, planes.Cluster("west").Pause())
	must.Succeed(t, planes.Stop())
	checkGone(t, running)
	for _, folder := range folders {
		checkNoFile(t, folder)
	}
	if connection, err := net.Dial("tcp", address); err == nil {
		connection.Close()
		t.Errorf("somebody listens on %s", address)
	}
	if err := planes.Stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
}

func TestComponentsDieWithAParentThatIsKilled(t *testing.T) {
	temporary := t.TempDir()
	self, err := os.Executable()
	must.Succeed(t, err)
	parent := exec.CommandContext(testContext(t), self)
	parent.Env = append(os.Environ(), orphanMode+"=1", "TMPDIR="+temporary)
	parent.Stderr = os.Stderr
	output, err := parent.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, parent.Start())
	defer func() { _ = parent.Wait() }()
	defer func() { _ = parent.Process.Kill() }()
	var report orphanReport
	must.Succeed(t, json.NewDecoder(output).Decode(&report))
	if report.Error != "" {
		t.Fatal(report.Error)
	}
	if len(report.PIDs) != 2 {
		t.Fatalf("%d components run, want 2", len(report.PIDs))
	}
	t.Cleanup(func() { // if they don't die, this test must not be the one that leaves them
		for _, pid := range report.PIDs {
			if !gone(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	for _, pid := range report.PIDs {
		if gone(pid) {
			t.Fatalf("process %d is gone already", pid)
		}
	}
	// While its owner lives, a folder is not to be swept.
	sweep(temporary)
	sweep(sharedMem)
	for _, folder := range report.Folders {
		if _, err := os.Stat(folder); err != nil {
			t.Fatalf("the folder of a living process was swept: %v", err)
		}
	}
	must.Succeed(t, parent.Process.Signal(syscall.SIGKILL))
	eventually(t, "the components are gone", func() error {
		for _, pid := range report.PIDs {
			if !gone(pid) {
				return fmt.Errorf("process %d runs", pid)
			}
		}
		return nil
	})
	_ = parent.Wait()
	eventually(t, "the folders are swept", func() error { // by us or by another test's planes
		sweep(temporary)
		sweep(sharedMem)
		for _, folder := range report.Folders {
			if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%s is still there (%v)", folder, err)
			}
		}
		return nil
	})
}

func TestANamedFolderIsKeptAndUsedOnce(t *testing.T) {
	// Longer than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 20), strings.Repeat("path", 20))
	config := Config{Dir: dir, Clusters: []ClusterConfig{{Name: "west", Workload: true}}}
	planes := startPlanes(t, config)
	refused := func(when string) {
		t.Helper()
		if _, err := Start(t.Context(), config); err == nil || !strings.Contains(err.Error(), "name another folder") {
			t.Errorf("a second start in the same folder, %s: %v, want a refusal", when, err)
		}
	}
	refused("while the first one runs")
	must.Succeed(t, planes.Stop())
	if _, err := os.Stat(planes.Cluster("west").AuditLog()); err != nil {
		t.Errorf("the audit log was not kept: %v", err)
	}
	refused("after the first one")
}

func TestWaitTellsOfAComponentThatDied(t *testing.T) {
	planes := startPlanes(t, Config{Clusters: oneBareCluster})
	none, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := planes.Wait(none); err != nil {
		t.Errorf("while all is well: %v", err)
	}
	must.Succeed(t, planes.Cluster("home").etcd.cmd.Process.Kill())
	for range 2 { // later calls get the same error
		err := planes.Wait(testContext(t))
		if err == nil || !strings.Contains(err.Error(), "cluster home: etcd ended by itself: signal: killed") {
			t.Errorf("after etcd died: %v", err)
		}
	}
}

func TestAStartThatLosesItsPortTakesAnother(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer squatter.Close()
	planes, err := layOut(Config{Clusters: oneBareCluster}, shared.planes[0].binary)
	must.Succeed(t, err)
	defer planes.Stop()
	plane, asked := planes.planes[0], 0
	plane.pickPorts = func(n int) ([]int, error) {
		if asked++; asked == 1 {
			return []int{squatter.Addr().(*net.TCPAddr).Port}, nil
		}
		return FreePorts(n)
	}
	must.Succeed(t, plane.start(testContext(t)))
	if asked != 2 {
		t.Errorf("%d ports were tried, want 2", asked)
	}
	if _, err := clientOf(t, plane).Discovery().ServerVersion(); err != nil {
		t.Errorf("on its second port: %v", err)
	}
	if err := planes.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var progress bytes.Buffer
	prepared := func(dir string) ([]string, error) {
		return []string{"--no-such-flag"}, os.WriteFile(filepath.Join(dir, "prepared"), nil, 0o600)
	}
	_, err := Start(testContext(t), Config{Progress: &progress, Prepare: prepared,
		Clusters: []ClusterConfig{{Name: "home"}}})
	for _, want := range []string{"cluster home: kube-apiserver ended while starting: exit status 1",
		"unknown flag: --no-such-flag", "kube-apiserver.log"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	left, err := os.ReadDir(temporary)
	must.Succeed(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if !strings.Contains(progress.String(), "control planes run in "+temporary) {
		t.Errorf("progress: %q", progress.String())
	}
}

func TestAFailedPreparationEndsTheStart(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	full := errors.New("the disk is full")
	_, err := Start(testContext(t), Config{Clusters: oneBareCluster,
		Prepare: func(string) ([]string, error) { return nil, full }})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestACancelledStartEndsQuicklyAndSaysSo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	if _, err := Start(ctx, Config{Clusters: oneBareCluster}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
}
