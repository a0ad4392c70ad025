package load

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// upstream is a cluster in memory with changing config maps. It needs little CPU time,
// so the server is what is measured.
type upstream struct {
	cluster *fakeapi.Cluster
	config  *rest.Config
	stop    func()
	size    int // objects of each namespace
	spaces  int
	text    string
}

func newUpstream(ctx context.Context, o Options) (*upstream, error) {
	u := &upstream{cluster: fakeapi.New(fakeapi.Options{}), size: max(1, o.Objects/o.Namespaces), spaces: o.Namespaces, text: string(bytes.Repeat([]byte("x"), o.Bytes))}
	for n := range u.spaces {
		for i := range u.size {
			if _, err := u.cluster.Create(u.object(n, i)); err != nil {
				return nil, fmt.Errorf("create the initial objects: %w", err)
			}
		}
	}
	var err error
	u.config, u.stop, err = fakeapi.Serve(ctx, u.cluster)
	return u, err
}

func namespaceName(n int) string { return fmt.Sprintf("load-%d", n) }

// madeAt precedes the time of a change, in nanoseconds, in the changed object.
const madeAt = `"made-at":"`

func (u *upstream) object(namespace, i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(namespace), Name: fmt.Sprintf("config-%d", i)},
		Data:       map[string]string{"made-at": strconv.FormatInt(time.Now().UnixNano(), 10), "text": u.text},
	}
}

// change changes objects at a constant rate until ctx ends.
func (u *upstream) change(ctx context.Context, rate int) error {
	made := 0
	random := rand.New(rand.NewPCG(1, 2))
	begun := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for due := int(time.Since(begun).Seconds() * float64(rate)); made < due; made++ {
			if _, err := u.cluster.Update(u.object(random.IntN(u.spaces), random.IntN(u.size))); err != nil {
				return fmt.Errorf("change an object: %w", err)
			}
		}
	}
}

// revision returns the number of changes so far.
func (u *upstream) revision() uint64 {
	n, _ := strconv.ParseUint(u.cluster.ResourceVersion(), 10, 64)
	return n
}

// timeOf returns the time of the change in a frame of a watch.
func timeOf(frame []byte) (at time.Time, ok bool) {
	_, rest, ok := bytes.Cut(frame, []byte(madeAt))
	if !ok {
		return at, false
	}
	digits, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return at, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, n), err == nil
}
