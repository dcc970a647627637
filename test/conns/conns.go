// Package conns counts the connections to a server of a test.
package conns

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// Counts are those of a server.
type Counts struct{ Opened, Closed atomic.Int64 }

// Open is how many connections there are.
func (c *Counts) Open() int64 { return c.Opened.Load() - c.Closed.Load() }

// Of counts the connections to a server that isn't started yet.
func Of(server *httptest.Server) *Counts {
	c := &Counts{}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			c.Opened.Add(1)
		case http.StateClosed:
			c.Closed.Add(1)
		}
	}
	return c
}
