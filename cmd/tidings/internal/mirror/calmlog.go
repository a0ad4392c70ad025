package mirror

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// calmHandler logs warnings about single resources at debug level when the cause is
// the connection, which is the cluster's and is logged once for it.
type calmHandler struct {
	slog.Handler
	connection *connection
}

// Handle implements [slog.Handler].
func (h calmHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && (h.connection.status().Err != nil || isAboutConnection(r)) {
		if r.Level = slog.LevelDebug; !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h calmHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return calmHandler{h.Handler.WithAttrs(attrs), h.connection}
}

// WithGroup implements [slog.Handler].
func (h calmHandler) WithGroup(name string) slog.Handler {
	return calmHandler{h.Handler.WithGroup(name), h.connection}
}

// isAboutConnection reports whether the error of a record is that of a connection.
func isAboutConnection(r slog.Record) (yes bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		yes = ok && isConnectionError(err)
		return !yes
	})
	return yes
}

// isConnectionError reports whether a request failed because its connection could not
// be made, or broke.
func isConnectionError(err error) bool {
	var network net.Error // all errors of http.Client are
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}
