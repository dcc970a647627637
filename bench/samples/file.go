package samples

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"time"
)

// magic opens a file, so that another one isn't taken for it.
const magic = "tenure-samples/1\n"

// recordSize is that of one sample in the file.
const recordSize = 8 + 8 + 8 + 8 + 1

const (
	flagBackfill     = 1
	flagReadyUnknown = 2
)

// Sample is one reconcile.
type Sample struct {
	// Key is KeyOf the object.
	Key uint64
	// Ready, Start and End are when the key was ready, taken by a worker and done.
	Ready, Start, End time.Time
	// ReadyUnknown says that Ready isn't known, and Start stands for it.
	ReadyUnknown bool
	// Backfill says that the key had a priority below that of live events.
	Backfill bool
}

// KeyOf is a short name of an object. Collisions among n objects have a chance of n²/2^65.
func KeyOf(cluster, namespace, name string) uint64 {
	h := fnv.New64a()
	for _, part := range []string{cluster, "\x00", namespace, "\x00", name} {
		_, _ = h.Write([]byte(part)) // never fails
	}
	return h.Sum64()
}

// File takes samples. It is safe for concurrent use.
type File struct {
	mu  sync.Mutex // guards all; held for one write to the page cache
	out *os.File
	err error // the first failure; nothing is written after it
}

// Create makes a file. One that exists is an error: samples of two processes must not be mixed.
func Create(path string) (*File, error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the file of samples: %w", err)
	}
	if _, err := out.WriteString(magic); err != nil {
		return nil, errors.Join(fmt.Errorf("writing to the file of samples: %w", err), out.Close())
	}
	return &File{out: out}, nil
}

// Add writes one sample.
func (f *File) Add(s Sample) {
	var record [recordSize]byte
	binary.LittleEndian.PutUint64(record[0:], s.Key)
	binary.LittleEndian.PutUint64(record[8:], uint64(s.Ready.UnixNano()))
	binary.LittleEndian.PutUint64(record[16:], uint64(s.Start.UnixNano()))
	binary.LittleEndian.PutUint64(record[24:], uint64(s.End.UnixNano()))
	if s.Backfill {
		record[32] |= flagBackfill
	}
	if s.ReadyUnknown {
		record[32] |= flagReadyUnknown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = appendTo(f.out, record[:])
	}
}

// Err reports whether any sample was lost. There is nothing to close: each sample is in the file once it was added.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fmt.Errorf("writing samples: %w", f.err)
	}
	return nil
}

// Read reads all samples. A record cut short at the end, as a killed process leaves it, is left out.
func Read(in io.Reader) ([]Sample, error) {
	content, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("reading samples: %w", err)
	}
	body, found := bytes.CutPrefix(content, []byte(magic))
	if !found {
		return nil, errors.New("reading samples: not a file of samples")
	}
	list := make([]Sample, 0, len(body)/recordSize)
	for ; len(body) >= recordSize; body = body[recordSize:] {
		at := func(offset int) time.Time { return time.Unix(0, int64(binary.LittleEndian.Uint64(body[offset:]))) }
		list = append(list, Sample{
			Key: binary.LittleEndian.Uint64(body), Ready: at(8), Start: at(16), End: at(24),
			Backfill: body[32]&flagBackfill != 0, ReadyUnknown: body[32]&flagReadyUnknown != 0,
		})
	}
	return list, nil
}

// ReadFile reads the samples of a file.
func ReadFile(path string) ([]Sample, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a file of samples: %w", err)
	}
	defer in.Close()
	list, err := Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}
