package agents

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options of a server of tools.
type Options struct {
	// Transport makes the requests of REST routes, with the rights of the tools' caller.
	Transport http.RoundTripper
	// Base is the URL of the server that answers them.
	Base *url.URL
	// Cluster is the cluster of calls that name none. Empty means the server's default.
	Cluster string
	// Only, if not nil, are the clusters that may be read, such as those that a command line
	// names.
	Only []string
	// Version of the program.
	Version string
	// Logger logs what goes wrong here, and not what a caller can correct. nil means none.
	Logger *slog.Logger
	// Context ends calls and subscriptions that are open.
	Context context.Context
}

// NewServer returns a server of the tools for one caller. It starts nothing.
func NewServer(o Options) *mcp.Server {
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &session{Options: o, subscribed: subscribed{subscriptions: map[string]context.CancelFunc{}}}
	s.server = mcp.NewServer(&mcp.Implementation{Name: "tidings", Version: o.Version}, &mcp.ServerOptions{
		Instructions:       instructions,
		Capabilities:       &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{Subscribe: true}},
		SubscribeHandler:   s.subscribe,
		UnsubscribeHandler: s.unsubscribe,
	})
	for i, d := range described() {
		s.server.AddTool(d, s.handler(tools[i]))
	}
	s.addResources()
	return s.server
}

// session is what one caller does.
type session struct {
	Options
	server *mcp.Server
	subscribed
}

// call is one call of a tool.
type call struct {
	*session
	given
	ctx    context.Context
	tool   tool
	budget int
}

func (s *session) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (result *mcp.CallToolResult, err error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer context.AfterFunc(s.Context, func() { cancel(context.Cause(s.Context)) })()
		defer cancel(nil)
		defer func() {
			if p := recover(); p != nil {
				s.Logger.Error("panic in a tool", "tool", t.name, "panic", p, "stack", string(debug.Stack()))
				result, err = failure("error: Internal: the call failed; the server's log says why"), nil
			}
		}()
		text, err := s.run(ctx, t, r.Params.Arguments)
		if err != nil {
			return failure(explain(err)), nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
}

func failure(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// run runs a call and returns its answer.
func (s *session) run(ctx context.Context, t tool, arguments []byte) (string, error) {
	g, err := t.parse(arguments)
	if err != nil {
		return "", err
	}
	c := &call{session: s, given: g, ctx: ctx, tool: t}
	if c.budget, err = g.number("maxBytes", defaultBudget, minBudget, maxBudget); err != nil {
		return "", err
	}
	a, err := t.call(c)
	if err != nil {
		return "", err
	}
	return a.text(), nil
}

func (c *call) answer() *answer { return &answer{budget: c.budget} }

// of names what is read, for the first line of an answer.
func (c *call) of() string {
	out := quote(c.texts["resource"])
	if name := c.texts["name"]; name != "" {
		out += " " + quote(name)
	}
	if namespace := c.texts["namespace"]; namespace != "" {
		out += " in namespace " + quote(namespace)
	}
	if cluster := c.cluster(); cluster != "" {
		out += fmt.Sprintf(" of cluster %s", quote(cluster))
	}
	return out
}

// cluster is the cluster of the call; "" is the server's default.
func (c *call) cluster() string {
	if name := c.texts["cluster"]; name != "" {
		return name
	}
	return c.Options.Cluster
}
