package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// api speaks to the API server itself, past every fault.
type api struct {
	testing.TB
	client *http.Client
	base   string
	token  string
}

func newAPI(tb testing.TB, config *rest.Config) *api {
	tb.Helper()
	authority, err := rest.TLSConfigFor(config)
	if err != nil {
		tb.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: authority, ForceAttemptHTTP2: true}
	tb.Cleanup(transport.CloseIdleConnections)
	return &api{tb, &http.Client{Transport: transport, Timeout: 30 * time.Second}, config.Host, config.BearerToken}
}

// object is what is looked at of an object.
type object struct {
	Metadata struct {
		Name, Namespace, ResourceVersion, UID string
	}
}

// try makes a request and returns the answer's code and body.
func (a *api) try(method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, a.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, raw, err
}

// do makes a request that must succeed and returns the answer's body.
func (a *api) do(method, path, body string) []byte {
	a.Helper()
	code, raw, err := a.try(method, path, body)
	if err != nil || code >= 300 {
		a.Fatalf("%s %s: %d %v %s", method, path, code, err, raw)
	}
	return raw
}

// churn writes objects of one namespace, one after the other, and remembers what
// it did.
type churn struct {
	api  *api
	kind kind
	path string // of the collection

	mu      sync.Mutex
	there   map[string]bool
	history map[string][]string // by name: versions, "gone" for deletions
	unsure  map[string]bool     // what became of a write is not known
	number  int
	halted  bool

	stop    chan struct{}
	writing sync.WaitGroup
}

func newChurn(a *api, k kind, namespace string) *churn {
	return &churn{
		api: a, kind: k, path: k.collection(namespace), there: map[string]bool{}, history: map[string][]string{}, unsure: map[string]bool{},
		stop: make(chan struct{}),
	}
}

// body is long enough for half a body to be a body cut.
func (c *churn) body(name string) string {
	c.number++
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%q:{"v":"%d","filler":"%0512d"}}`, c.kind.apiVersion, c.kind.kind, name, c.kind.field, c.number, c.number)
}

// write creates an object, or changes it.
func (c *churn) write(name string) (version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeLocked(name)
}

func (c *churn) writeLocked(name string) string {
	method, path := http.MethodPost, c.path
	if c.there[name] {
		method, path = http.MethodPatch, c.path+"/"+name
	}
	code, raw, err := c.api.try(method, path, c.body(name))
	var o object
	if err == nil && code < 300 {
		err = json.Unmarshal(raw, &o)
	}
	if err != nil || code >= 300 {
		c.unsure[name] = true // the API server may be down just now
		c.there[name] = code != http.StatusNotFound && (c.there[name] || code == http.StatusConflict)
		return ""
	}
	c.there[name] = true
	c.history[name] = append(c.history[name], o.Metadata.ResourceVersion)
	return o.Metadata.ResourceVersion
}

// mustWrite writes an object as soon as the API server lets it.
func (c *churn) mustWrite(name string) (version string) {
	eventually(c.api, time.Minute, "an object can be written", func() bool {
		version = c.write(name)
		return version != ""
	})
	return version
}

// delete deletes an object, if the API server lets it.
func (c *churn) delete(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name)
}

func (c *churn) remove(name string) {
	code, _, err := c.api.try(http.MethodDelete, c.path+"/"+name, "")
	if err != nil || code >= 300 && code != http.StatusNotFound {
		c.unsure[name] = true
		return
	}
	c.there[name] = false
	c.history[name] = append(c.history[name], "gone")
}

// begin has the churn write until it is ended.
func (c *churn) begin(seed uint64) { c.writing.Go(func() { c.run(seed) }) }

// end may be called once, also if nothing was begun.
func (c *churn) end() {
	close(c.stop)
	c.writing.Wait()
}

func (c *churn) run(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(time.Duration(50+rnd.IntN(100)) * time.Millisecond):
		}
		name := fmt.Sprint("o", rnd.IntN(12))
		c.mu.Lock()
		switch {
		case c.halted:
		case c.there[name] && rnd.IntN(4) == 0:
			c.remove(name)
		default:
			c.writeLocked(name)
		}
		c.mu.Unlock()
	}
}

// halt keeps run from writing; what is under way is done when it returns.
func (c *churn) halt(halted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halted = halted
}

func eventually(tb testing.TB, patience time.Duration, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("it did not come to be within %v that %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
