package shard

import "sync"

// mailbox sends messages from any number of senders to one loop, in order, but urgent ones first. Sending never blocks:
// informers and writers must not wait for the loop. So nothing bounds it; the loop takes all messages at each turn.
type mailbox[T any] struct {
	ready chan struct{} // holds a token while there may be messages

	mu               sync.Mutex // guards all below
	messages, urgent []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(message T) { m.add(&m.messages, message) }

func (m *mailbox[T]) putUrgent(message T) { m.add(&m.urgent, message) }

func (m *mailbox[T]) add(to *[]T, message T) {
	m.mu.Lock()
	*to = append(*to, message)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take returns all messages so far.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := append(m.urgent, m.messages...)
	m.urgent, m.messages = nil, nil
	return all
}

// takeUrgent returns the urgent messages so far.
func (m *mailbox[T]) takeUrgent() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	urgent := m.urgent
	m.urgent = nil
	return urgent
}
