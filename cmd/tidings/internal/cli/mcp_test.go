//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// agent is a client of the tools: the SDK's own.
type agent struct {
	testing.TB
	*mcp.ClientSession
	calls, bytes int
	sizes        map[string][]int // of answers, by tool
}

// connect connects a client.
func connect(t testing.TB, transport mcp.Transport, updated func(uri string)) *agent {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated(r.Params.URI) },
	})
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &agent{TB: t, ClientSession: session, sizes: map[string][]int{}}
}

// tools runs tidings mcp in this process, and connects a client.
func tools(t testing.TB, args ...string) *agent {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var errs strings.Builder
	var running sync.WaitGroup
	running.Go(func() {
		if code := cli.Run(context.Background(), cli.IO{In: in, Out: out, Err: &errs}, append([]string{"mcp"}, args...)...); code != 0 {
			t.Errorf("tidings mcp ended with %d", code)
		}
		_ = out.Close()
	})
	a := connect(t, &mcp.IOTransport{Reader: fromServer, Writer: toServer}, func(string) {})
	t.Cleanup(func() {
		_ = a.Close()
		_ = toServer.Close()
		running.Wait()
		if errs.Len() > 0 {
			t.Error(errs.String())
		}
	})
	return a
}

// call calls a tool, and counts what goes back and forth.
func (a *agent) call(tool string, arguments map[string]any) string {
	a.Helper()
	result, err := a.CallTool(a.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.Fatalf("%s %v: %v", tool, arguments, err)
	}
	sent, _ := json.Marshal(arguments)
	got := result.Content[0].(*mcp.TextContent).Text
	a.calls++
	a.bytes += len(sent) + len(tool) + len(got)
	a.sizes[tool] = append(a.sizes[tool], len(got))
	return got
}

// An agent that starts the program speaks to it on standard input and output.
func TestMCPOverStandardInputAndOutput(t *testing.T) {
	w := newWorld(t, fakeapi.Options{}, fakeapi.Options{})
	w.create(pod("p"))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "mcp", "--kubeconfig", w.kubeconfig, "--context", "*")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	updated := make(chan string, 1)
	a := connect(t, &mcp.CommandTransport{Command: cmd}, func(uri string) {
		select {
		case updated <- uri:
		default: // the test reads only one, and the client would wait for ever
		}
	})
	list, err := a.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 8 {
		t.Fatalf("%d tools: %v", len(list.Tools), err)
	}
	for _, one := range list.Tools {
		if !one.Annotations.ReadOnlyHint {
			t.Errorf("%s is not read-only", one.Name)
		}
	}
	if got := a.call("clusters", nil); !strings.Contains(got, "| a | ") || !strings.Contains(got, "| b | ") {
		t.Error(got)
	}
	if got := a.call("find", map[string]any{"resource": "pods", "cluster": "a"}); !strings.Contains(got, "| default | p | ") {
		t.Error(got)
	}
	if got := a.call("find", map[string]any{"resource": "pods", "cluster": "b"}); !strings.Contains(got, "0 of 0 match") {
		t.Error(got)
	}
	const uri = "k8s://a/pods/default/p"
	if err := a.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		w.update("p", func(p *corev1.Pod) { p.Status.Reason = strings.Repeat("x", i%7+1) })
		select {
		case got := <-updated:
			if got != uri {
				t.Errorf("told of %s", got)
			}
		case <-time.After(50 * time.Millisecond): // the subscription may not have begun
			if i < 1000 {
				continue
			}
			t.Error("not told of a change")
		}
		break
	}
	if err := a.Close(); err != nil || errs.Len() > 0 {
		t.Errorf("%v, %s", err, errs.String())
	}
}

// tidings mcp --server asks a server, with the credentials of the flags.
func TestMCPAsksAServer(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	_, url := w.serve()
	a := tools(t, "--server", url)
	if got := a.call("find", map[string]any{"resource": "pods"}); !strings.Contains(got, "| default | p | ") {
		t.Error(got)
	}
	if got := a.call("changes", map[string]any{"resource": "pods", "since": "-1h"}); !strings.Contains(got, "start it with --history") {
		t.Error(got)
	}
	one := tools(t, "--server", url, "--context", "a")
	if got := one.call("find", map[string]any{"resource": "pods"}); !strings.Contains(got, "of cluster a") {
		t.Error(got)
	}
	if got := one.call("find", map[string]any{"resource": "pods", "cluster": "other"}); !strings.Contains(got, "UnknownCluster") {
		t.Error(got)
	}
}
