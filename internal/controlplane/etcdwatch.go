//go:build unix

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// StoredChange is a change of the data in etcd.
type StoredChange struct {
	// Revision is the revision of the change: the resourceVersion of the object
	// in the API server.
	Revision uint64
	// Key is the key in etcd, such as "/registry/pods/default/web-0".
	Key string
	// Deleted reports whether the key was deleted.
	Deleted bool
}

// WatchEtcd reports what etcd stores, past the API server, until ctx ends or
// changed returns false. It calls initial once with the current revision and
// all keys, then changed with every later change, in order. All changes of one
// revision come in the same call. It does not need an API server.
func (c *Cluster) WatchEtcd(ctx context.Context, initial func(revision uint64, stored []StoredChange), changed func([]StoredChange) bool) error {
	everything := map[string]any{"key": []byte("/"), "range_end": []byte{0}, "keys_only": true}
	var now struct {
		Header etcdHeader `json:"header"`
		KVs    []etcdKV   `json:"kvs"`
	}
	if err := c.callEtcd(ctx, "/v3/kv/range", everything, &now); err != nil {
		return fmt.Errorf("list what is in etcd: %w", err)
	}
	stored := make([]StoredChange, 0, len(now.KVs))
	for _, kv := range now.KVs {
		stored = append(stored, StoredChange{Revision: kv.Revision, Key: string(kv.Key)})
	}
	initial(now.Header.Revision, stored)

	resp, done, err := c.postEtcd(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
		"key": []byte("/"), "range_end": []byte{0}, "start_revision": now.Header.Revision + 1,
	}})
	if err != nil {
		return fmt.Errorf("watch etcd: %w", err)
	}
	defer done()
	for decoder := json.NewDecoder(resp.Body); ; {
		var next struct {
			Result struct {
				Canceled bool   `json:"canceled"`
				Reason   string `json:"cancel_reason"`
				Events   []struct {
					Type string `json:"type"`
					KV   etcdKV `json:"kv"`
				} `json:"events"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		if err := decoder.Decode(&next); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch etcd: %w", err)
		}
		if next.Result.Canceled || next.Error != nil {
			return errors.New("watch etcd: ended: " + next.Result.Reason + string(next.Error))
		}
		batch := make([]StoredChange, 0, len(next.Result.Events))
		for _, e := range next.Result.Events {
			batch = append(batch, StoredChange{Revision: e.KV.Revision, Key: string(e.KV.Key), Deleted: strings.EqualFold(e.Type, "DELETE")})
		}
		if len(batch) > 0 && !changed(batch) {
			return nil
		}
	}
}

type etcdHeader struct {
	Revision uint64 `json:"revision,string"`
}

type etcdKV struct {
	Key      []byte `json:"key"`
	Revision uint64 `json:"mod_revision,string"`
}
