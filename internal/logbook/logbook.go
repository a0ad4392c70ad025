// Package logbook collects log output for tests.
package logbook

import (
	"strings"
	"sync"
)

// Book keeps what is written to it. It is safe for concurrent use. The zero value is
// empty.
type Book struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that was written.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
