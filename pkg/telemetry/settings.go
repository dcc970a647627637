package telemetry

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Defaults of [Settings].
const (
	DefaultService       = "tenure"
	defaultQueue         = 16384 // spans: some seconds of a busy replica, a few MiB
	defaultBatch         = 512
	defaultDelay         = time.Second
	defaultExportTimeout = 30 * time.Second
)

// Settings are the contents of the standard OTEL_* variables.
type Settings struct {
	// Enabled reports whether spans are sent. Without it the other fields have no meaning.
	Enabled bool
	// Ratio is the share of reconciles that are sampled when they begin, 0 to 1.
	Ratio float64
	// Endpoint is the host and port of the collector, for people. The exporter reads it from the environment itself.
	Endpoint string
	// Propagate reports whether API calls send a traceparent.
	Propagate bool
	// Service is service.name. Attributes are further attributes of the resource. The zero value of Service, and of all
	// below, means the default of its variable.
	Service    string
	Attributes map[string]string
	// Queue bounds the waiting spans, Batch those that are sent at a time.
	Queue, Batch int
	// Delay is how long a batch may wait for more spans. ExportTimeout bounds sending one.
	Delay, ExportTimeout time.Duration
}

// withDefaults fills in what an exporter can't do without: a program may make its settings itself.
func (s Settings) withDefaults() Settings {
	s.Service = cmp.Or(s.Service, DefaultService)
	s.Queue = cmp.Or(max(s.Queue, 0), defaultQueue)
	s.Batch = cmp.Or(max(s.Batch, 0), min(defaultBatch, s.Queue))
	s.Delay = cmp.Or(max(s.Delay, 0), defaultDelay)
	s.ExportTimeout = cmp.Or(max(s.ExportTimeout, 0), defaultExportTimeout)
	return s
}

// ReadSettings reads the environment. Tracing is on if an OTLP endpoint is set or OTEL_TRACES_EXPORTER is "otlp". The
// error names every invalid variable, in one line, and quotes no secret.
func ReadSettings(getenv func(string) string) (Settings, error) {
	r := &reader{getenv: getenv}
	s := Settings{Enabled: r.enabled()}
	if !s.Enabled {
		return s, r.error()
	}
	s.Ratio = r.ratio()
	s.Propagate = r.propagate()
	s.Service, s.Attributes = r.resource()
	s.Queue = r.number("OTEL_BSP_MAX_QUEUE_SIZE")
	s.Batch = r.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
	s.Delay = r.milliseconds("OTEL_BSP_SCHEDULE_DELAY")
	s.ExportTimeout = r.milliseconds("OTEL_BSP_EXPORT_TIMEOUT")
	s = s.withDefaults()
	if s.Batch > s.Queue {
		r.bad("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "must not be greater than OTEL_BSP_MAX_QUEUE_SIZE (%d)", s.Queue)
	}
	s.Endpoint = r.connection()
	return s, r.error()
}

// NewExporter returns an exporter to the endpoint in the environment, and connects in the background. It returns nil if
// tracing is off.
func NewExporter(ctx context.Context, s Settings) (sdktrace.SpanExporter, error) {
	if !s.Enabled {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx) // reads OTEL_EXPORTER_OTLP_* itself
	if err != nil {
		// the cause may quote headers
		return nil, errors.New("setting up the sending of traces: check the variables OTEL_EXPORTER_OTLP_*")
	}
	return exporter, nil
}

// reader collects the errors in the environment.
type reader struct {
	getenv func(string) string
	errs   []string
}

func (r *reader) get(name string) string { return strings.TrimSpace(r.getenv(name)) }

func (r *reader) bad(name, format string, args ...any) {
	r.errs = append(r.errs, name+": "+fmt.Sprintf(format, args...))
}

func (r *reader) error() error {
	if len(r.errs) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.errs, "; "))
}

// either returns the traces-only variable if it is set, otherwise the general one.
func (r *reader) either(rest string) (name, value string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		if value := r.get(prefix + rest); value != "" {
			return prefix + rest, value
		}
	}
	return "", ""
}

func (r *reader) enabled() bool {
	switch value := strings.ToLower(r.get("OTEL_SDK_DISABLED")); value {
	case "", "false":
	case "true":
		return false
	default:
		r.bad("OTEL_SDK_DISABLED", "%q is neither true nor false", value)
	}
	switch value := r.get("OTEL_TRACES_EXPORTER"); value {
	case "none":
		return false
	case "otlp":
		return true
	case "":
		name, _ := r.either("ENDPOINT")
		return name != ""
	default:
		r.bad("OTEL_TRACES_EXPORTER", "%q isn't known here: otlp or none", value)
		return false
	}
}

func (r *reader) ratio() float64 {
	const sampler, arg = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	switch value := strings.ToLower(r.get(sampler)); value {
	case "", "always_on", "parentbased_always_on": // the same for a reconcile, which has no parent
		return 1
	case "always_off", "parentbased_always_off":
		return 0
	case "traceidratio", "parentbased_traceidratio":
		text := r.get(arg)
		if text == "" {
			return 1
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			r.bad(arg, "%q must be a number from 0 to 1", text)
			return 0
		}
		return ratio
	default:
		r.bad(sampler, "%q must be always_on, always_off, traceidratio or parentbased_ and one of these", value)
		return 0
	}
}

func (r *reader) propagate() bool {
	value := r.get("OTEL_PROPAGATORS")
	if value == "" {
		return true
	}
	names := strings.Split(value, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	switch {
	case slices.Contains(names, "tracecontext"):
		return true
	case value == "none":
		return false
	}
	r.bad("OTEL_PROPAGATORS", "%q must contain tracecontext, the only one that API servers know, or be none", value)
	return false
}

func (r *reader) resource() (service string, attributes map[string]string) {
	attributes = map[string]string{}
	for i, pair := range strings.Split(r.get("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil {
			r.bad("OTEL_RESOURCE_ATTRIBUTES", "entry %d isn't key=value", i+1)
			continue
		}
		if !utf8.ValidString(key + value) {
			r.bad("OTEL_RESOURCE_ATTRIBUTES", "entry %d isn't UTF-8, and a collector would refuse all traces", i+1)
			continue
		}
		attributes[key] = value
	}
	service = cmp.Or(r.get("OTEL_SERVICE_NAME"), attributes["service.name"])
	delete(attributes, "service.name")
	return service, attributes
}

// number returns 0 if a variable isn't set, or is invalid.
func (r *reader) number(name string) int {
	text := r.get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostOfAnything {
		r.bad(name, "%q must be a whole number above 0, at most %d", text, mostOfAnything)
		return 0
	}
	return n
}

// mostOfAnything bounds numbers. So many milliseconds are 24 days; far more of them don't fit into a duration.
const mostOfAnything = math.MaxInt32

func (r *reader) milliseconds(name string) time.Duration {
	return time.Duration(r.number(name)) * time.Millisecond
}

// headers checks a list of headers. No error quotes it, since headers carry tokens.
func (r *reader) headers(name string) {
	list := r.get(name)
	if list == "" {
		return
	}
	for i, pair := range strings.Split(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !ok || !isHeader(strings.TrimSpace(key)) || err != nil {
			r.bad(name, "entry %d isn't key=value, with %%25 for a %% of the value", i+1)
		}
	}
}

// isHeader reports whether gRPC takes a header of this name.
func isHeader(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c)
	})
}

// endpoint returns the host and port of the collector.
func (r *reader) endpoint() string {
	name, value := r.either("ENDPOINT")
	if name == "" {
		return "localhost:4317" // the exporter's default
	}
	u, err := url.Parse(value)
	switch { // the value isn't quoted: it may hold a password
	case err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		r.bad(name, "must be a URL such as http://localhost:4317, or https:// for TLS")
		return ""
	case u.User != nil:
		r.bad(name, "must not hold a user or password: use OTEL_EXPORTER_OTLP_HEADERS")
		return ""
	case u.Scheme == "https" && u.Port() == "" && !strings.HasSuffix(u.Host, ":"):
		return net.JoinHostPort(u.Hostname(), "443") // gRPC's default
	}
	// Without TLS, gRPC would take 443 too, where no collector listens.
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		r.bad(name, "must have a port from 1 to 65535, such as the 4317 of http://localhost:4317")
	}
	return u.Host
}

// connection checks what the exporter reads itself, since the exporter ignores what it can't parse. It returns the
// endpoint.
func (r *reader) connection() (endpoint string) {
	endpoint = r.endpoint()
	if name, value := r.either("PROTOCOL"); name != "" && value != "grpc" {
		r.bad(name, "%q isn't built in: grpc is", value)
	}
	if name, value := r.either("COMPRESSION"); name != "" && value != "gzip" && value != "none" {
		r.bad(name, "%q must be gzip or none", value)
	}
	if name, _ := r.either("TIMEOUT"); name != "" {
		r.number(name)
	}
	if name, value := r.either("INSECURE"); name != "" && !strings.EqualFold(value, "true") &&
		!strings.EqualFold(value, "false") {
		r.bad(name, "%q is neither true nor false", value)
	}
	// The exporter parses these even where the variable for traces takes precedence, and prints what it can't parse.
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		name := prefix + "ENDPOINT"
		if used, _ := r.either("ENDPOINT"); used != name {
			if _, err := url.Parse(r.get(name)); err != nil {
				r.bad(name, "must be a URL such as http://localhost:4317, or https:// for TLS") // may hold a password
			}
		}
		r.headers(prefix + "HEADERS")
	}
	r.certificates()
	return endpoint
}

// certificates reports files that the exporter would ignore: it would trust other authorities then, or say nothing of
// who it is.
func (r *reader) certificates() {
	if name, file := r.either("CERTIFICATE"); name != "" {
		if text, err := os.ReadFile(file); err != nil {
			r.bad(name, "%v", err)
		} else if !x509.NewCertPool().AppendCertsFromPEM(text) {
			r.bad(name, "%s holds no certificate in PEM form", file)
		}
	}
	certificate, file := r.either("CLIENT_CERTIFICATE")
	key, keyFile := r.either("CLIENT_KEY")
	switch {
	case certificate == "" && key == "":
	case strings.TrimSuffix(certificate, "CERTIFICATE") != strings.TrimSuffix(key, "KEY"):
		r.bad(cmp.Or(certificate, key), "a client's certificate and its key need each other, both with TRACES_ in their "+
			"names or both without")
	default:
		if _, err := tls.LoadX509KeyPair(file, keyFile); err != nil {
			r.bad(certificate, "%v", err)
		}
	}
}
