package agents

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A resource of the protocol is one object: k8s://cluster/resource/namespace/name, where "-"
// stands for the default cluster, and for no namespace.
const uriTemplate = "k8s://{cluster}/{resource}/{namespace}/{name}"

// maxSubscriptions is the number of objects that one client is told of.
const maxSubscriptions = 20

type subscribed struct {
	mu            sync.Mutex
	subscriptions map[string]context.CancelFunc
}

func (s *session) addResources() {
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "object", URITemplate: uriTemplate, MIMEType: "text/plain",
		Description: "An object, as get shows it; with subscriptions, when it changes.",
	}, func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		c, err := s.objectOf(ctx, r.Params.URI)
		var a *answer
		if err == nil {
			a, err = c.get()
		}
		if err != nil {
			return nil, fmt.Errorf("%s", explain(err))
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: a.text()}}}, nil
	})
}

// objectOf returns a call for the object of a URI.
func (s *session) objectOf(ctx context.Context, uri string) (*call, error) {
	rest, ok := strings.CutPrefix(uri, "k8s://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 || len(uri) > maxText {
		return nil, wrongf("%s is not %s", quote(cut(uri, 80)), uriTemplate)
	}
	texts := map[string]string{}
	for i, name := range []string{"cluster", "resource", "namespace", "name"} {
		value, err := url.PathUnescape(parts[i])
		if err != nil || value == "" {
			return nil, wrongf("%s is not %s", quote(cut(uri, 80)), uriTemplate)
		}
		if value != "-" {
			texts[name] = value
		}
	}
	return &call{session: s, given: given{texts: texts}, ctx: ctx, budget: defaultBudget}, nil
}

// subscribe tells the client when an object changes, until the client unsubscribes or is
// gone. It is told once more when the watch ends: to read the object says why.
func (s *session) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	uri := r.Params.URI
	c, err := s.objectOf(s.Context, uri)
	if err != nil {
		return fmt.Errorf("%s", explain(err))
	}
	s.mu.Lock()
	switch _, known := s.subscriptions[uri]; {
	case known:
		s.mu.Unlock()
		return nil
	case len(s.subscriptions) == maxSubscriptions:
		s.mu.Unlock()
		return fmt.Errorf("%d objects are subscribed to, which is the limit: unsubscribe from one", maxSubscriptions)
	}
	c.ctx, s.subscriptions[uri] = context.WithCancel(s.Context)
	s.mu.Unlock()
	begun := make(chan error, 1)
	go func() {
		defer s.forget(uri)
		synced := false
		err := c.watch(func(e event) bool {
			switch {
			case e.Type == "SYNCED":
				if !synced {
					synced = true
					begun <- nil
				}
			case synced && e.Type != "":
				_ = s.server.ResourceUpdated(c.ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
			}
			return true
		})
		if !synced {
			begun <- err
		} else if c.ctx.Err() == nil {
			_ = s.server.ResourceUpdated(c.ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
		}
	}()
	select {
	case err = <-begun:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.forget(uri)
		return fmt.Errorf("%s", explain(err))
	}
	return nil
}

func (s *session) unsubscribe(_ context.Context, r *mcp.UnsubscribeRequest) error {
	s.forget(r.Params.URI)
	return nil
}

func (s *session) forget(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.subscriptions[uri]; cancel != nil {
		cancel()
		delete(s.subscriptions, uri)
	}
}
