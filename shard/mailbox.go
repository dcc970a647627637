package shard

import "sync"

// mailbox hands messages from any number of senders to one loop, in order. Sending never blocks: informers and
// writers must not wait for the loop. The number of messages is bounded by the number of records and writes.
type mailbox[T any] struct {
	ready chan struct{} // holds a token while there may be messages

	mu       sync.Mutex // guards messages
	messages []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(message T) {
	m.mu.Lock()
	m.messages = append(m.messages, message)
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
	messages := m.messages
	m.messages = nil
	return messages
}
