package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// PublicMessage is the text of an error without the addresses that the network's own
// errors are full of: those are for the operator's log, not for every caller.
func PublicMessage(err error) string {
	text := err.Error()
	var request *url.Error
	if errors.As(err, &request) {
		text = strings.Replace(text, request.Error(), networkTrouble(request), 1)
	}
	var unknown *undiscovered
	if errors.As(err, &unknown) {
		text = strings.Replace(text, unknown.server, "it", 1)
	}
	var network *net.OpError
	if errors.As(err, &network) {
		text = strings.Replace(text, network.Error(), networkTrouble(network), 1)
	}
	return text
}

// networkTrouble says what keeps an API server from being reached.
func networkTrouble(err error) string {
	var timeout interface{ Timeout() bool }
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name):
		return "the API server's name is not found"
	case errors.As(err, &certificate):
		return "the API server's certificate is not trusted"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the API server did not answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the API server refuses connections"
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	}
	return "the connection to the API server broke or could not be made"
}
