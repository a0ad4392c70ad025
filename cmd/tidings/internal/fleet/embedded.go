package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Embedded is a NATS server in this process, with JetStream in memory, which only the process
// itself can reach.
type Embedded struct{ server *server.Server }

// StartEmbedded starts a server. The caller must call [Embedded.Close]. dir is a folder for what
// JetStream keeps on disk even if streams are in memory.
func StartEmbedded(dir string) (*Embedded, error) {
	s, err := server.NewServer(&server.Options{ServerName: "embedded", DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, errors.New("embedded NATS server: it did not start within 10 seconds")
	}
	return &Embedded{s}, nil
}

// Connect connects to the server.
func (e *Embedded) Connect(name string) (*nats.Conn, error) {
	return nats.Connect("", nats.InProcessServer(e.server), nats.Name(name))
}

// Close ends the server and its connections.
func (e *Embedded) Close() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
}
