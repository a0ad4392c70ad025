//go:build unix

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// StoredChange is one change of what etcd stores.
type StoredChange struct {
	// Revision of the change, which is the resourceVersion that the API server
	// gives the object with it.
	Revision uint64
	// Key in etcd, such as "/registry/pods/default/web-0".
	Key string
	// Gone says that the key was deleted.
	Gone bool
}

// FollowEtcd tells what is stored in etcd at the moment, by key, and then every
// change, in order, all of one revision together, until ctx ends or tell returns
// false: what happened in truth, whatever the API server and those behind it make
// of it. It needs no API server. state is called once, with the revision of the
// state.
func (c *Cluster) FollowEtcd(ctx context.Context, state func(revision uint64, stored []StoredChange), tell func([]StoredChange) bool) error {
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
	state(now.Header.Revision, stored)

	resp, done, err := c.askEtcd(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
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
		changes := make([]StoredChange, 0, len(next.Result.Events))
		for _, e := range next.Result.Events {
			changes = append(changes, StoredChange{Revision: e.KV.Revision, Key: string(e.KV.Key), Gone: strings.EqualFold(e.Type, "DELETE")})
		}
		if len(changes) > 0 && !tell(changes) {
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
