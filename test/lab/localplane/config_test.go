package localplane

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestValidateReportsEveryViolation(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		want   []string // one fragment for each line of the error
	}{
		{name: "a bare cluster is valid", config: Config{Clusters: oneBareCluster}},
		{name: "no cluster is not", want: []string{"clusters: at least one"}},
		{name: "a name must be a DNS label and used once",
			config: Config{Clusters: []ClusterConfig{{Name: "a/b"}, {Name: "x"}, {Name: "x"}}},
			want:   []string{`clusters[0] ("a/b"): name: a lowercase`, `clusters[2] ("x"): name: used twice`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.config.Validate()
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(test.want) {
				t.Fatalf("got %q, want %d violations", lines, len(test.want))
			}
			for i, want := range test.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("violation %d is %q, want %q...", i, lines[i], want)
				}
			}
		})
	}
}

func TestTheBinaryIsFoundWhereItSaysOrBelowAModule(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"module/bin/controlplane", "module/inner/deep/x", "module/go.mod", "elsewhere/mine",
		"elsewhere/bin/controlplane"} {
		path := filepath.Join(root, file)
		must.Succeed(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o700)))
	}
	for _, test := range []struct {
		name, variable, workingDir, want string
		wantError                        string
	}{
		{name: "the variable wins", variable: "elsewhere/mine", workingDir: "module", want: "elsewhere/mine"},
		{name: "a variable that names nothing is an error, not a fallback", variable: "nowhere", workingDir: "module",
			wantError: "named by TENURE_CONTROLPLANE, is missing or not executable; run `make controlplane`"},
		{name: "a module's bin folder is found from within", workingDir: "module/inner/deep",
			want: "module/bin/controlplane"},
		{name: "a bin folder outside of modules is not taken", workingDir: "elsewhere", wantError: "run `make controlplane`"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(filepath.Join(root, test.workingDir))
			if test.variable != "" {
				test.variable = filepath.Join(root, test.variable)
			}
			t.Setenv(BinaryVariable, test.variable)
			got, err := FindBinary()
			if test.wantError != "" {
				if !errors.Is(err, ErrNoBinary) || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want an ErrNoBinary with %q", err, test.wantError)
				}
				return
			}
			must.Succeed(t, err)
			expect.Equal(t, "found", filepath.Join(root, test.want), got)
		})
	}
}

func TestAStartWithoutABinarySaysHowToGetOne(t *testing.T) {
	_, err := Start(t.Context(), Config{Binary: filepath.Join(t.TempDir(), "none"), Clusters: oneBareCluster})
	if !errors.Is(err, ErrNoBinary) || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("got %v", err)
	}
}

func TestFeatureGatesAndExtraArgumentsWinOverOurs(t *testing.T) {
	args := apiServerArgs(ClusterConfig{
		Name: "a", FeatureGates: map[string]bool{"ShardedListAndWatch": false, "B": true},
		ExtraAPIServerArgs: []string{"--v=4"},
	}, 1234)
	if got := args[len(args)-1]; got != "--v=4" {
		t.Errorf("the last argument is %q, want the extra one", got)
	}
	var gates []string
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--feature-gates="); ok {
			gates = append(gates, value)
		}
	}
	expect.Equal(t, "feature gates", []string{"B=true,ShardedListAndWatch=false"}, gates)
}

func TestAFullDiskIsNamedWithTheWayOut(t *testing.T) {
	log := filepath.Join(t.TempDir(), "etcd.log")
	content := "write wal: no space left on device\npanic: failed to create WAL\n\ngoroutine 1 [running]:\n" +
		strings.Repeat("main.main()\n", 1000)
	must.Succeed(t, os.WriteFile(log, []byte(content), 0o600))
	err := (&Process{name: "etcd", logPath: log}).withTail(errors.New("etcd ended"))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
	if !strings.HasSuffix(err.Error(), "panic: failed to create WAL") {
		t.Errorf("the end of the log is not what matters: %v", err)
	}
}
