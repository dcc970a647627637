package localjaeger

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"

	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// mostTraces is how many traces are kept.
const mostTraces = 20000

//go:embed jaeger.yaml
var configuration string

// Config says how Jaeger is to run. The zero value is good.
type Config struct {
	// Dir is the folder for configuration and log: it is made, and removed by Stop. Empty: a temporary one, which
	// stays behind if this process is killed.
	Dir string
	// Binary is Jaeger (v2). Empty: see FindBinary.
	Binary string
	// QueryPort is the port of API and web page. 0: a free one.
	QueryPort int
}

// Jaeger is one running Jaeger.
type Jaeger struct {
	folder  string
	query   string              // URL
	otlp    string              // host:port that takes spans, by OTLP over gRPC without TLS
	process *localplane.Process // nil if it didn't come so far
}

// BinaryVariable names the Jaeger binary when it is not where FindBinary would look.
const BinaryVariable = "TENURE_JAEGER"

// FindBinary returns the Jaeger binary: see [localplane.FindProgram].
func FindBinary() (string, error) {
	return localplane.FindProgram("jaeger", os.Getenv(BinaryVariable), BinaryVariable, "make jaeger")
}

// Start runs Jaeger and returns when it answers. ctx bounds the start only.
func Start(ctx context.Context, config Config) (*Jaeger, error) {
	binary := config.Binary
	if binary == "" {
		var err error
		if binary, err = FindBinary(); err != nil {
			return nil, fmt.Errorf("starting jaeger: %w", err)
		}
	}
	var j *Jaeger
	if err := localplane.OnPorts(3, localplane.FreePorts, func(ports []int) (err error) {
		j, err = start(ctx, config, binary, ports)
		return err
	}); err != nil {
		return nil, fmt.Errorf("starting jaeger: %w", err)
	}
	return j, nil
}

func start(ctx context.Context, config Config, binary string, ports []int) (_ *Jaeger, err error) {
	if config.QueryPort == 0 {
		config.QueryPort = ports[0]
	}
	folder := config.Dir
	if folder == "" {
		folder, err = os.MkdirTemp("", "tenure-jaeger-")
	} else {
		err = os.Mkdir(folder, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	j := &Jaeger{
		folder: folder,
		query:  fmt.Sprintf("http://127.0.0.1:%d", config.QueryPort),
		otlp:   fmt.Sprintf("127.0.0.1:%d", ports[2]),
	}
	err = j.write(config, ports[1], ports[2])
	if err == nil {
		err = j.launch(binary)
	}
	if err == nil {
		err = localplane.Await(ctx, j.probe, j.process)
	}
	if err != nil {
		return nil, errors.Join(err, j.Stop())
	}
	return j, nil
}

// write writes Jaeger's configuration and that of the API servers' tracing.
func (j *Jaeger) write(config Config, grpcPort, otlpPort int) error {
	file, err := os.OpenFile(filepath.Join(j.folder, "jaeger.yaml"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	defer file.Close()
	values := map[string]int{"Traces": mostTraces, "QueryPort": config.QueryPort, "QueryGRPCPort": grpcPort,
		"OTLPPort": otlpPort}
	if err := template.Must(template.New("").Parse(configuration)).Execute(file, values); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	// API servers trace only what a client traces.
	tracing := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\n"+
		"samplingRatePerMillion: 0\n", j.otlp)
	if err := os.WriteFile(j.tracingFile(), []byte(tracing), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of the API servers' tracing: %w", err)
	}
	return nil
}

func (j *Jaeger) tracingFile() string { return filepath.Join(j.folder, "apiserver-tracing.yaml") }

func (j *Jaeger) launch(binary string) (err error) {
	cmd := exec.Command(binary, "--config", filepath.Join(j.folder, "jaeger.yaml"))
	cmd.Dir = j.folder
	// Only what it needs: an OTEL_* of the user's would make it trace itself.
	cmd.Env = []string{"HOME=" + j.folder, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	j.process, err = localplane.StartProcess("jaeger", filepath.Join(j.folder, "jaeger.log"), cmd)
	return err
}

// probe returns an error until the API answers and spans are taken.
func (j *Jaeger) probe(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.query+"/api/services", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /api/services: %s", res.Status)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", j.otlp)
	if err != nil {
		return err
	}
	return connection.Close()
}

// QueryURL is where the API is (below /api), and the web page if the binary has one.
func (j *Jaeger) QueryURL() string { return j.query }

// Environment makes a program with OpenTelemetry's standard variables send its spans here.
func (j *Jaeger) Environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + j.otlp, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
}

// APIServerArgs are flags that make a kube-apiserver send its spans here. It adds them to the trace of a request that
// carries one, if the client is in system:masters or system:monitoring.
func (j *Jaeger) APIServerArgs() []string {
	return []string{"--tracing-config-file=" + j.tracingFile()}
}

// Stop ends Jaeger, waits until it is gone, and removes its folder. Calling it again is harmless.
func (j *Jaeger) Stop() error {
	var err error
	if j.process != nil {
		err = j.process.Stop()
	}
	if err := errors.Join(err, os.RemoveAll(j.folder)); err != nil {
		return fmt.Errorf("stopping jaeger: %w", err)
	}
	return nil
}
