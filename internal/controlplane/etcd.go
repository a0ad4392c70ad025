//go:build unix

package controlplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// etcdSocket returns the path of the Unix socket that etcd serves on. A socket
// needs no free port, and its path is unique to the cluster.
func (c *Cluster) etcdSocket() string { return c.path("etcd.sock") }

func (c *Cluster) startEtcd(ctx context.Context) error {
	p, err := c.run(c.bin, "etcd",
		"--data-dir="+c.path("etcd"),
		"--listen-client-urls=unix://"+c.etcdSocket(),
		"--listen-peer-urls=unix://"+c.path("peer.sock"),
		// etcd requires a host and a port here. A cluster of one member never
		// uses them.
		"--advertise-client-urls=http://127.0.0.111:0",
		// The data does not outlive the test, so it need not reach the disk.
		// Without this flag, syncing is most of the time of a write.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	c.etcd = p
	if err := c.reaper.kill(p.pid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.waitReady(ctx, func(ctx context.Context) error {
		return c.callEtcd(ctx, "/v3/maintenance/status", struct{}{}, nil)
	})
}

// CompactEtcd compacts etcd up to the current revision. It writes a key of its
// own first, so every resourceVersion returned before the call is compacted.
//
// The API server may still answer for compacted revisions from its watch cache,
// which holds the changes since it started; see [Cluster.ForgetHistory].
func (c *Cluster) CompactEtcd(ctx context.Context) error {
	if err := c.compactEtcd(ctx); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

func (c *Cluster) compactEtcd(ctx context.Context) error {
	key := base64.StdEncoding.EncodeToString([]byte("/tidings/compacted"))
	var put struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.callEtcd(ctx, "/v3/kv/put", map[string]any{"key": key}, &put); err != nil {
		return err
	}
	return c.callEtcd(ctx, "/v3/kv/compaction", map[string]any{"revision": put.Header.Revision, "physical": true}, nil)
}

// callEtcd calls a method of etcd's API through its JSON gateway, and decodes
// the response into out unless that is nil.
func (c *Cluster) callEtcd(ctx context.Context, path string, in, out any) error {
	resp, done, err := c.postEtcd(ctx, path, in)
	if err != nil {
		return err
	}
	defer done()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, bytes.TrimSpace(answer))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// postEtcd sends a request to etcd's JSON gateway. done releases the response.
func (c *Cluster) postEtcd(ctx context.Context, path string, in any) (resp *http.Response, done func(), err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.etcdSocket())
	}}
	if resp, err = transport.RoundTrip(req); err != nil {
		transport.CloseIdleConnections()
		return nil, nil, err
	}
	return resp, func() {
		resp.Body.Close()
		transport.CloseIdleConnections()
	}, nil
}

// WriteEtcd writes a value into etcd, past the API server. A test can so store
// an object that validation would reject. The key begins with "/registry/".
func (c *Cluster) WriteEtcd(ctx context.Context, key string, value []byte) error {
	in := map[string][]byte{"key": []byte(key), "value": value} // encoded as base64, as etcd's gateway requires
	if err := c.callEtcd(ctx, "/v3/kv/put", in, nil); err != nil {
		return fmt.Errorf("write %s into etcd: %w", key, err)
	}
	return nil
}
