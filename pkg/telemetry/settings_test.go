package telemetry

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value
			}
		}
		return ""
	}
}

const somewhere = "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317"

func TestTracingIsOnOnlyWhenItIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		env []string
		on  bool
	}{
		"an empty environment": {nil, false},
		"an endpoint":          {[]string{somewhere}, true},
		"an endpoint for traces": {
			[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://collector:4317"}, true,
		},
		"the exporter without an endpoint":         {[]string{"OTEL_TRACES_EXPORTER=otlp"}, true},
		"an endpoint, but no exporter":             {[]string{somewhere, "OTEL_TRACES_EXPORTER=none"}, false},
		"an endpoint, but OpenTelemetry is off":    {[]string{somewhere, "OTEL_SDK_DISABLED=true"}, false},
		"a sampler alone":                          {[]string{"OTEL_TRACES_SAMPLER=always_on"}, false},
		"nonsense that would matter only when on":  {[]string{"OTEL_TRACES_SAMPLER=nonsense"}, false},
		"an endpoint and OpenTelemetry isn't off.": {[]string{somewhere, "OTEL_SDK_DISABLED=false"}, true},
		"false in any case":                        {[]string{somewhere, "OTEL_SDK_DISABLED=False"}, true},
		"true in any case":                         {[]string{somewhere, "OTEL_EXPORTER_OTLP_INSECURE=True"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ReadSettings(environment(c.env...))
			if err != nil || s.Enabled != c.on {
				t.Errorf("enabled %v, error %v; want %v", s.Enabled, err, c.on)
			}
		})
	}
}

func TestSettingsFollowTheEnvironment(t *testing.T) {
	got, err := ReadSettings(environment(somewhere, "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=0.25",
		"OTEL_SERVICE_NAME=mine", "OTEL_RESOURCE_ATTRIBUTES=team=a%20b,service.name=other", "OTEL_BSP_MAX_QUEUE_SIZE=100",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=10", "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BSP_EXPORT_TIMEOUT=70",
		"OTEL_PROPAGATORS=none"))
	must.Succeed(t, err)
	want := Settings{Enabled: true, Ratio: .25, Endpoint: "localhost:4317", Service: "mine",
		Attributes: map[string]string{"team": "a b"}, Queue: 100, Batch: 10,
		Delay: 50 * time.Millisecond, ExportTimeout: 70 * time.Millisecond}
	expect.Equal(t, "settings", want, got)
}

// A program may make its settings itself, and leave out what it has no opinion about.
func TestAnExporterAloneIsEnough(t *testing.T) {
	r := newRig(t, Config{Exporter: &stubborn{}, Settings: Settings{Enabled: true, Ratio: 1}})
	r.queue.Add(testKey)
	r.reconcile(t, fine)
	r.sent(t)
	if n := value(t, r.pipeline.sent); n == 0 {
		t.Error("nothing was sent")
	}
	read, err := ReadSettings(environment(somewhere))
	read.Propagate, read.Endpoint = false, ""
	if diff := cmp.Diff(read, r.cfg.Settings, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v; -by the environment +by the program:\n%s", err, diff)
	}
}

func TestTheEndpointIsToldWithItsPort(t *testing.T) {
	for env, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=otlp":                              "localhost:4317",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:65535":     "collector:65535",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://c.example/x": "c.example:443",
		"OTEL_EXPORTER_OTLP_ENDPOINT=https://[::1]":              "[::1]:443",
	} {
		if s, err := ReadSettings(environment(env)); err != nil || s.Endpoint != want {
			t.Errorf("%s: %q, %v; want %s", env, s.Endpoint, err, want)
		}
	}
}

func TestABatchIsNoLargerThanTheQueue(t *testing.T) {
	for _, queue := range []int{100, defaultQueue} {
		s, err := ReadSettings(environment(somewhere, fmt.Sprintf("OTEL_BSP_MAX_QUEUE_SIZE=%d", queue)))
		if err != nil || s.Queue != queue || s.Batch != min(queue, defaultBatch) {
			t.Errorf("a queue of %d: %d, batches of %d, %v", queue, s.Queue, s.Batch, err)
		}
	}
}

func TestAnAuthorityInPEMFormIsAccepted(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(file, certs.Of(server), 0o600))
	if _, err := ReadSettings(environment(somewhere, "OTEL_EXPORTER_OTLP_CERTIFICATE="+file)); err != nil {
		t.Error(err)
	}
}

func TestWhatMakesNoSenseIsNamedInOneLineWithoutItsSecrets(t *testing.T) {
	for variable, says := range map[string]string{
		"OTEL_TRACES_SAMPLER=sometimes":                             "must be always_on",
		"OTEL_TRACES_EXPORTER=zipkin":                               "otlp or none",
		"OTEL_SDK_DISABLED=maybe":                                   "neither true nor false",
		"OTEL_EXPORTER_OTLP_ENDPOINT=user:secret@host":              "must be a URL",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://u:secret@host":   "must not hold a user",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector":              "must have a port",
		"OTEL_EXPORTER_OTLP_ENDPOINT=https://collector:":            "must have a port",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:0":            "must have a port",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:65536":        "must have a port",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://:4317":                  "must be a URL",
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf":                 "isn't built in",
		"OTEL_EXPORTER_OTLP_COMPRESSION=zip":                        "gzip or none",
		"OTEL_EXPORTER_OTLP_TIMEOUT=soon":                           "whole number",
		"OTEL_EXPORTER_OTLP_HEADERS=a=b,Authorization: secret==":    "entry 2 isn't key=value",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS=authorization=secret%zz": "entry 1 isn't key=value",
		"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=/nonexistent/ca.crt": "no such file",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=settings_test.go":           "holds no certificate",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=settings_test.go":    "need each other",
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY=settings_test.go":     "need each other",
		"OTEL_EXPORTER_OTLP_INSECURE=secret?":                       "neither true nor false",
		"OTEL_RESOURCE_ATTRIBUTES=a=1,secret":                       "entry 2 isn't key=value",
		"OTEL_RESOURCE_ATTRIBUTES=a=1,team=%ff":                     "entry 2 isn't UTF-8",
		"OTEL_PROPAGATORS=b3":                                       "tracecontext",
		"OTEL_BSP_MAX_QUEUE_SIZE=0":                                 "above 0",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=99999":                      "must not be greater",
		"OTEL_BSP_SCHEDULE_DELAY=-1":                                "above 0",
		"OTEL_BSP_EXPORT_TIMEOUT=9999999999999":                     "at most",
	} {
		name, _, _ := strings.Cut(variable, "=")
		t.Run(name, func(t *testing.T) {
			_, err := ReadSettings(environment(variable, somewhere))
			if err == nil {
				t.Fatal("accepted")
			}
			text := err.Error()
			if !strings.HasPrefix(text, name+": ") || !strings.Contains(text, says) || strings.Contains(text, "\n") {
				t.Errorf("says: %s", text)
			}
			if strings.Contains(text, "secret") && name != "OTEL_EXPORTER_OTLP_INSECURE" {
				t.Errorf("tells a secret: %s", text)
			}
		})
	}
	for _, shadowed := range []string{"HEADERS=secret", "ENDPOINT=http://u:secret@host:port"} {
		_, err := ReadSettings(environment("OTEL_EXPORTER_OTLP_"+shadowed, "OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4317"))
		if err == nil || !strings.HasPrefix(err.Error(), "OTEL_EXPORTER_OTLP_") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s, which the one for traces precedes: %v", shadowed, err)
		}
	}
	_, err := ReadSettings(environment(somewhere, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=2",
		"OTEL_PROPAGATORS=b3"))
	if err == nil || strings.Count(err.Error(), "; ") != 1 {
		t.Errorf("two mistakes give %v", err)
	}
}
