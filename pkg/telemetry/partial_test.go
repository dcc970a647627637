package telemetry

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/tenure-dev/tenure/test/must"
)

// wire sends bytes as they are, and reads nothing.
type wire struct{}

func (wire) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (wire) Unmarshal(mem.BufferSlice, any) error { return nil }

func (wire) Name() string { return "proto" }

// collectorThat is a collector that answers each batch with these bytes of protobuf.
func collectorThat(t *testing.T, answers []byte) (endpoint string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire{}), grpc.UnknownServiceHandler(
		func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(nil); err != nil {
				return err
			}
			return stream.SendMsg(answers)
		}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "http://" + listener.Addr().String()
}

func TestOnlySpansThatACollectorRejectsCountAsLost(t *testing.T) {
	for name, c := range map[string]struct {
		answer        string // an ExportTraceServiceResponse
		sent, refused float64
		told          string
	}{
		"all taken":            {"", 2, 0, ""},
		"all taken, a warning": {"\x0a\x03\x12\x01w", 2, 0, ""},
		"one rejected":         {"\x0a\x05\x08\x01\x12\x01w", 1, 1, "rejects some spans"},
		"in two lines":         {"\x0a\x07\x08\x01\x12\x03w\nw", 1, 1, "rejects some spans"},
		"all rejected":         {"\x0a\x05\x08\x02\x12\x01w", 0, 2, "can't be delivered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collectorThat(t, []byte(c.answer)))
			settings, err := ReadSettings(os.Getenv)
			must.Succeed(t, err)
			exporter, err := NewExporter(t.Context(), settings)
			must.Succeed(t, err)
			defer func() { _ = exporter.Shutdown(t.Context()) }()
			var out lockedBuffer
			p := newPipeline(settings, exporter, logr.FromSlogHandler(slog.NewTextHandler(&out, nil)))
			p.submit(ready{{Name: "a"}, {Name: "b"}}, 2)
			p.flush(t.Context())
			if sent, refused := value(t, p.sent), value(t, p.refused); sent != c.sent || refused != c.refused {
				t.Errorf("%v sent, %v lost; want %v and %v", sent, refused, c.sent, c.refused)
			}
			if said := out.String(); !strings.Contains(said, c.told) || c.told == "" && said != "" {
				t.Errorf("logged %q, want %q", said, c.told)
			}
		})
	}
}

func TestAStoryThatIsLargerThanTheQueueIsSentByItself(t *testing.T) {
	settings := always()
	settings.Queue = 2
	p := newPipeline(settings, &stubborn{}, logr.Discard())
	p.submit(ready{{Name: "a"}, {Name: "b"}, {Name: "c"}}, 3)
	p.submit(ready{{Name: "d"}}, 1)
	p.flush(t.Context())
	if sent, lost := value(t, p.sent), value(t, p.overflow); sent != 3 || lost != 1 {
		t.Errorf("%v sent, %v lost; want 3 and 1", sent, lost)
	}
}
