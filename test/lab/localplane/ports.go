package localplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports come from below Linux's ephemeral range (32768 up), so that no outgoing connection takes one before a server
// listens on it, or sits on it while that server restarts.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// FreePorts returns n different ports of 127.0.0.1 on which nobody listens now. Another program may take one before
// the caller's does: see [OnPorts].
func FreePorts(n int) ([]int, error) {
	var ports []int
	var last error
	for attempts := 0; len(ports) < n; attempts++ {
		if attempts == 100+n {
			return nil, fmt.Errorf("finding %d free ports on 127.0.0.1 between %d and %d: %w", n, lowestPort, highestPort, last)
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			last = err
			continue
		}
		defer listener.Close() // all are held until all are found, so that they differ
		ports = append(ports, port)
	}
	return ports, nil
}

// FreeAddresses returns free ports, as FreePorts does, in the form 127.0.0.1:PORT.
func FreeAddresses(n int) ([]string, error) {
	ports, err := FreePorts(n)
	addresses := make([]string, len(ports))
	for i, port := range ports {
		addresses[i] = loopback(port)
	}
	return addresses, err
}

// portAttempts is how often a start that lost the race for a port is tried.
const portAttempts = 5

// errPortTaken says that a process ended because it could not listen on its port.
var errPortTaken = errors.New("port taken")

// OnPorts starts something that listens on n ports. If [Await] says that another program was faster to take one of
// them, it is started again with others.
func OnPorts(n int, pick func(n int) ([]int, error), start func(ports []int) error) error {
	for attempt := 1; ; attempt++ {
		ports, err := pick(n)
		if err != nil {
			return err
		}
		if err = start(ports); !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
