package fleet

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// directPatience is how long an API server may take to be asked directly.
const directPatience = 5 * time.Second

// apiServer is an API server that is asked directly.
type apiServer struct {
	config *rest.Config
	*cluster.Cluster
	anonymous *http.Client // without credentials
}

func newAPIServer(name string, cfg *rest.Config) (*apiServer, error) {
	c, err := cluster.New(name, cfg)
	if err != nil {
		return nil, err
	}
	without, err := anonymous(c)
	return &apiServer{cfg, c, without}, err
}

func (s *apiServer) close() {
	s.Close()
	s.anonymous.CloseIdleConnections()
}

// followServers keeps the API servers that are asked directly, until ctx ends.
func (f *Follower) followServers(ctx context.Context) {
	for set, err := range f.opts.Direct {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.log.Warn("the configuration of the clusters that are asked directly has a problem", "err", err)
		}
		if set == nil {
			continue
		}
		servers := make(map[string]*apiServer, len(set))
		f.mu.Lock()
		for name, cfg := range set {
			if old := f.servers[name]; old != nil && old.config == cfg {
				servers[name] = old
				continue
			}
			s, err := newAPIServer(name, cfg)
			if err != nil {
				f.log.Warn("a cluster cannot be asked directly", "cluster", name, "err", err)
				continue
			}
			servers[name] = s
		}
		old := f.servers
		f.servers = servers
		f.mu.Unlock()
		for name, s := range old {
			if servers[name] != s {
				s.close()
			}
		}
	}
}

// direct returns the API server of the cluster if it is asked directly, or nil.
func (r *replica) direct() *apiServer {
	r.Follower.mu.Lock()
	defer r.Follower.mu.Unlock()
	return r.servers[r.name]
}

// do puts a question. It fails if there is no answer in time.
func (s *apiServer) do(question *http.Request, body []byte) (*http.Response, error) {
	target := s.BaseURL().JoinPath(question.URL.Path)
	target.RawQuery = question.URL.RawQuery
	ctx, cancel := context.WithCancel(question.Context())
	late := time.AfterFunc(directPatience, cancel)
	req, err := http.NewRequestWithContext(ctx, question.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	self := isSelfReview(question.Method, question.URL.Path)
	req.Header = carried(question.Header, self)
	client := s.HTTPClient()
	if self {
		client = s.anonymous
	}
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	late.Stop()
	resp.Body = &cancelBody{resp.Body, cancel}
	return resp, nil
}

// cancelBody ends a request when its answer is closed.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
