package server

import "github.com/prometheus/client_golang/prometheus"

// Registry is the registry behind /metrics.
func Registry(s *Server) *prometheus.Registry { return s.metrics.registry }
