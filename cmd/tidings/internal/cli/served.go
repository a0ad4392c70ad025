package cli

import (
	"context"
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// served returns the clusters of a mirror as a server in this process answers for them,
// until end is called.
func served(m *mirror.Mirror, opts server.Options, names []string) (clusters []*cluster.Cluster, end func(), err error) {
	opts.Logger = slog.New(slog.DiscardHandler)
	s, err := server.New(m, opts)
	if err != nil {
		return nil, nil, err
	}
	end = func() {
		for _, c := range clusters {
			c.Close()
		}
		s.Close()
	}
	for _, name := range names {
		c, err := cluster.New(name, &rest.Config{Host: "http://localhost" + server.ClusterPath(name), Transport: server.InProcess{Handler: s.Handler()}, QPS: -1})
		if err != nil {
			end()
			return nil, nil, err
		}
		clusters = append(clusters, c)
	}
	return clusters, end, nil
}

// servedLive returns clusters as a server in this process answers for them, with live
// reads. It mirrors nothing by itself.
func servedLive(ctx context.Context, from []*cluster.Cluster, opts server.Options) (_ []*cluster.Cluster, end func(), err error) {
	m, err := mirror.New(mirror.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	stop := func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = m.Close(patience)
	}
	sets := map[string]*rest.Config{}
	var names []string
	for _, c := range from {
		sets[c.Name()] = c.Config()
		names = append(names, c.Name())
	}
	if err = m.Set(ctx, sets); err != nil {
		stop()
		return nil, nil, err
	}
	clusters, close, err := served(m, opts, names)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return clusters, func() { close(); stop() }, nil
}
