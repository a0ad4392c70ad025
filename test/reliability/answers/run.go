package answers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// Options of a run.
type Options struct {
	Pods, Clients, Rounds int
	// Limit is the server's --memory-limit.
	Limit string
	// Forms to request; empty: all.
	Forms []Form
	// Log gets progress messages.
	Log *slog.Logger
}

// Result is the result of one form.
type Result struct {
	Pods    int
	Form    Form
	Peak    uint64 // bytes of resident memory
	Whole   int    // answers
	Refused int    // with 429 and Retry-After
	Cut     int    // responses that were cut off, or have another length than the others
	Failed  int    // anything else
	Why     string // of one that was cut or failed
	Bytes   int64  // of an answer, as sent
	Slowest time.Duration
	Took    time.Duration
}

// patience limits the time of one response.
const patience = 5 * time.Minute

// Run measures each form.
func Run(ctx context.Context, o Options) ([]Result, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Forms) == 0 {
		o.Forms = Forms()
	}
	dir, err := os.MkdirTemp("", "tidings-answers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, err := soak.BuildServer(ctx, dir, nil, false)
	if err != nil {
		return nil, err
	}
	cluster := fakeapi.New(fakeapi.Options{})
	for pod := range samplepods.All(o.Pods, 1) {
		pod.APIVersion, pod.Kind, pod.ResourceVersion = "v1", "Pod", ""
		if _, err := cluster.Create(pod); err != nil {
			return nil, fmt.Errorf("make a pod: %w", err)
		}
	}
	config, stop, err := fakeapi.Serve(ctx, cluster)
	if err != nil {
		return nil, err
	}
	defer stop()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	address, err := soak.FreeAddress()
	if err != nil {
		return nil, err
	}
	server, err := soak.Serve(ctx, binary, address, filepath.Join(dir, "server.log"), nil, "--kubeconfig", kubeconfig, "--resource", "pods", "--memory-limit", o.Limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Kill() }()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: o.Clients, DisableCompression: true, ReadBufferSize: 64 << 10}}
	defer client.CloseIdleConnections()
	var results []Result
	for _, f := range o.Forms {
		r, err := o.measure(ctx, server, client, f)
		if err != nil {
			return results, fmt.Errorf("%w\nthe server's log ends:\n%s", err, server.Log())
		}
		results = append(results, r)
		o.Log.Info("measured", "form", f.Name, "peak MB", r.Peak>>20, "whole", r.Whole, "refused", r.Refused, "cut", r.Cut, "failed", r.Failed, "why", r.Why, "slowest", r.Slowest)
	}
	return results, nil
}

var errCut = errors.New("the response was cut off")

// measure requests one form by all clients at a time, round after round.
func (o Options) measure(ctx context.Context, server *soak.Process, client *http.Client, f Form) (Result, error) {
	out := Result{Pods: o.Pods, Form: f}
	if err := forgetPeak(server.PID()); err != nil {
		return out, err
	}
	begun := time.Now()
	for range o.Rounds {
		var all sync.WaitGroup
		var mu sync.Mutex
		for range o.Clients {
			all.Go(func() {
				asked := time.Now()
				refused, n, err := ask(ctx, client, f, server.URL+"/api/v1/pods")
				mu.Lock()
				defer mu.Unlock()
				out.Slowest = max(out.Slowest, time.Since(asked))
				if err == nil && !refused && !f.timed && out.Bytes > 0 && n != out.Bytes {
					err = fmt.Errorf("%w: %d bytes, not %d", errCut, n, out.Bytes)
				}
				switch {
				case errors.Is(err, errCut):
					out.Cut++
					out.Why = err.Error()
				case err != nil:
					out.Failed++
					out.Why = err.Error()
				case refused:
					out.Refused++
				default:
					out.Whole++
					out.Bytes = n
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	out.Took = time.Since(begun)
	var err error
	out.Peak, err = peak(server.PID())
	return out, err
}

// ask reads and discards one list.
func ask(ctx context.Context, client *http.Client, f Form, url string) (refused bool, n int64, err error) {
	req, err := f.request(url)
	if err != nil {
		return false, 0, err
	}
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return false, 0, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "":
		_, err = io.Copy(io.Discard, resp.Body)
		return true, 0, err
	case resp.StatusCode != http.StatusOK:
		about, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return false, 0, fmt.Errorf("%s: %s", resp.Status, about)
	}
	if n, err = io.Copy(io.Discard, resp.Body); err != nil {
		err = fmt.Errorf("%w after %d bytes: %w", errCut, n, err)
	}
	return false, n, err
}

// Markdown writes a table of results.
func Markdown(w io.Writer, results []Result) {
	fmt.Fprintln(w, "| pods | form | peak memory | whole | 429 | cut off | failed | one answer | slowest |\n|--:|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range results {
		fmt.Fprintf(w, "| %d | %s | %d MB | %d | %d | %d | %d | %.1f MB | %s |\n", r.Pods, r.Form.Name, r.Peak>>20, r.Whole, r.Refused, r.Cut, r.Failed, float64(r.Bytes)/1e6, r.Slowest.Round(10*time.Millisecond))
	}
}
