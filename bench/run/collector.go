package run

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// collector stands in for a collector of traces on another machine: it takes what OTLP clients send, answers, and
// forgets it. A real one would take its processor time from the fleet that is measured.
type collector struct {
	server   *grpc.Server
	address  string
	received atomic.Int64 // bytes
}

func startCollector() (*collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for traces: %w", err)
	}
	c := &collector{address: listener.Addr().String()}
	c.server = grpc.NewServer(grpc.ForceServerCodecV2(unread{}), grpc.UnknownServiceHandler(c.take))
	go func() { _ = c.server.Serve(listener) }() // until stop
	return c, nil
}

func (c *collector) stop() { c.server.Stop() }

// environment returns the variables that make replicas trace to this collector. Without a collector it returns
// none.
func (c *collector) environment() []string {
	if c == nil {
		return nil
	}
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address,
		// With this delay spans are sent within their own turn, and the rest while the next turn settles. The
		// default of 5 s is too long for that. A much shorter delay would make reconciles pay for more sending than
		// in production.
		"OTEL_BSP_SCHEDULE_DELAY=500",
	}
}

// take answers one export. The empty message is the one that says that all was taken.
func (c *collector) take(_ any, stream grpc.ServerStream) error {
	var size int
	if err := stream.RecvMsg(&size); err != nil {
		return err
	}
	c.received.Add(int64(size))
	return stream.SendMsg(&size)
}

// unread is a codec that decodes nothing: of a received message it returns the size, and all messages that it sends
// are empty.
type unread struct{}

func (unread) Name() string { return "proto" }

func (unread) Marshal(any) (mem.BufferSlice, error) { return nil, nil }

func (unread) Unmarshal(data mem.BufferSlice, into any) error {
	size, ok := into.(*int)
	if !ok {
		return errors.New("an unread message has a size only")
	}
	*size = data.Len()
	return nil
}
