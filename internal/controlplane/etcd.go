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

// etcdSocket is where etcd serves. A Unix socket needs no free port, and its
// path is the cluster's own.
func (c *Cluster) etcdSocket() string { return c.path("etcd.sock") }

func (c *Cluster) startEtcd(ctx context.Context) error {
	p, err := c.run(c.bin, "etcd",
		"--data-dir="+c.path("etcd"),
		"--listen-client-urls=unix://"+c.etcdSocket(),
		"--listen-peer-urls=unix://"+c.path("peer.sock"),
		// Nobody connects to what a cluster of one member advertises, but etcd
		// wants a host and a port here.
		"--advertise-client-urls=http://127.0.0.111:0",
		// The data does not outlive the test, so it may as well not reach the
		// disk. This is most of the time that a write takes.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	c.etcd = p
	if err := c.janitor.kill(p.pid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.await(ctx, func(ctx context.Context) error {
		return c.callEtcd(ctx, "/v3/maintenance/status", struct{}{}, nil)
	})
}

// CompactEtcd has etcd forget every revision before the present one. It writes
// a key of its own first, so every resourceVersion that was handed out before
// the call is older than what is left.
//
// The API server may still answer for forgotten revisions from its watch cache,
// which holds what has happened since it started; see [Cluster.ForgetHistory].
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
// the answer into out unless that is nil.
func (c *Cluster) callEtcd(ctx context.Context, path string, in, out any) error {
	resp, done, err := c.askEtcd(ctx, path, in)
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

// askEtcd makes a request of etcd's JSON gateway. done ends the use of the answer.
func (c *Cluster) askEtcd(ctx context.Context, path string, in any) (resp *http.Response, done func(), err error) {
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

// WriteEtcd writes a value into etcd behind the API server's back, as nothing
// but a test would: so an object can be in any state that can be stored, and not
// only in those that validation lets through. The key begins with "/registry/".
func (c *Cluster) WriteEtcd(ctx context.Context, key string, value []byte) error {
	in := map[string][]byte{"key": []byte(key), "value": value} // as base64, which etcd's gateway wants
	if err := c.callEtcd(ctx, "/v3/kv/put", in, nil); err != nil {
		return fmt.Errorf("write %s into etcd: %w", key, err)
	}
	return nil
}
