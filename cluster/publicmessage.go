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

// PublicMessage returns the message of an error without the addresses in network
// errors. Those are for the operator's log, not for callers.
func PublicMessage(err error) string {
	text := err.Error()
	var request *url.Error
	if errors.As(err, &request) {
		text = strings.Replace(text, request.Error(), networkMessage(request), 1)
	}
	var unknown *discoveryError
	if errors.As(err, &unknown) {
		text = strings.Replace(text, unknown.server, "it", 1)
	}
	var network *net.OpError
	if errors.As(err, &network) {
		text = strings.Replace(text, network.Error(), networkMessage(network), 1)
	}
	return text
}

// networkMessage describes a network error without addresses.
func networkMessage(err error) string {
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
