package soak

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

const (
	memoryLimit = 80 << 20
	// allowedBacklog is what may wait for a slow watch while there is memory.
	allowedBacklog = 100_000
)

// short is a server that is about to run short of memory.
type short struct {
	*testing.T
	ctx     context.Context
	cluster *fakeapi.Cluster
	server  *Process
	client  *http.Client
}

func newShort(t *testing.T, ctx context.Context) *short {
	dir := t.TempDir()
	binary, err := BuildServer(ctx, dir, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	// Not so little that it takes long to read an object, and not so much that
	// what is not read fits.
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(256 << 10)
		}
		return conn, err
	}}
	s := &short{T: t, ctx: ctx, cluster: fakeapi.New(fakeapi.Options{}), client: &http.Client{Transport: transport}}
	t.Cleanup(s.client.CloseIdleConnections)
	config, stop, err := fakeapi.Serve(ctx, s.cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s.server, err = Serve(ctx, binary, address, filepath.Join(dir, "server.log"), []string{fmt.Sprint("GOMEMLIMIT=", memoryLimit)},
		"--kubeconfig", kubeconfig, "--resource", "configmaps", "--retain", "10", "--backlog", fmt.Sprint(allowedBacklog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.server.Kill() })
	return s
}

// get asks for a path, and leaves the body to be closed.
func (s *short) get(path string) *http.Response {
	s.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.server.URL+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.Fatalf("%v\n%s", err, s.server.Log())
	}
	return resp
}

func (s *short) watch() *http.Response {
	return s.get("/api/v1/configmaps?watch=true&resourceVersion=0")
}

// line is the next event of a watch.
func (s *short) line(of *bufio.Reader) []byte {
	s.Helper()
	line, err := of.ReadSlice('\n')
	if err != nil {
		s.Fatalf("a watch that was open ended: %v\n%s", err, s.server.Log())
	}
	return line
}

// put creates or updates a config map of so many bytes that cannot be compressed,
// and returns its version.
func (s *short) put(write func(fakeapi.Object) (fakeapi.Object, error), name string, bytes int) string {
	s.Helper()
	random := make([]byte, bytes/2)
	_, _ = rand.Read(random)
	out, err := write(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"random": hex.EncodeToString(random)},
	})
	if err != nil {
		s.Fatal(err)
	}
	return out.GetResourceVersion()
}

// anonymous is the memory of the server without the pages of its file, which the limit does not count
// either.
func (s *short) anonymous() uint64 {
	s.Helper()
	process, err := procfs.NewProc(s.server.PID())
	if err != nil {
		s.Fatalf("%v\n%s", err, s.server.Log())
	}
	status, err := process.NewStatus()
	if err != nil {
		s.Fatal(err)
	}
	return status.RssAnon
}

// A server that is given ever more to hold comes close to its limit, refuses new
// watches with 429 and when to come back, goes on to answer those it has, keeps
// less for a slow one than it would, and does not die. Once there is less to hold,
// it lets watches in again.
func TestMemoryRunsShort(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts a server")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := newShort(t, ctx)
	early, slow := s.watch(), s.watch()
	defer early.Body.Close()
	defer slow.Body.Close()
	lines, slowLines := bufio.NewReaderSize(early.Body, 64<<10), bufio.NewReaderSize(slow.Body, 64<<10)

	n, refused, peak := 0, false, uint64(0)
	for ; !refused; n++ {
		if n > 5000 {
			t.Fatalf("the server holds %d objects of 40 kB in %d MB and has refused nothing", n, memoryLimit>>20)
		}
		s.put(s.cluster.Create, fmt.Sprint("big-", n), 40_000)
		s.line(lines)
		s.line(slowLines)
		if n%50 != 49 {
			continue
		}
		peak = max(peak, s.anonymous())
		resp := s.watch()
		resp.Body.Close()
		if refused = resp.StatusCode == http.StatusTooManyRequests; refused && resp.Header.Get("Retry-After") == "" {
			t.Error("a refused watch is not told when to come back")
		}
	}

	// Much less waits for a watch that is not read than may do so otherwise.
	last := ""
	const updates = 8000
	s.put(s.cluster.Create, "small", 1000)
	for range updates {
		last = s.put(s.cluster.Update, "small", 1000)
	}
	until := func(of *bufio.Reader) (told int) {
		for want := []byte(`"resourceVersion":"` + last + `"`); !bytes.Contains(s.line(of), want); {
			told++
		}
		return told
	}
	until(lines)
	told := until(slowLines)
	if told >= updates {
		t.Errorf("a watch that was not read was told all %d changes of an object: nothing has been folded", updates)
	}

	one := s.get("/api/v1/namespaces/default/configmaps/big-0?resourceVersion=0")
	one.Body.Close()
	if one.StatusCode != http.StatusOK {
		t.Errorf("a get of one object, when memory is short: %s", one.Status)
	}
	peak = max(peak, s.anonymous())
	t.Logf("%d objects; %d MB resident at most, without the program's file, with a limit of %d MB; %d of %d changes told to a watch that was not read", n, peak>>20, memoryLimit>>20, told, updates)
	if peak > memoryLimit*3/2 {
		t.Errorf("%d MB resident, with a limit of %d MB", peak>>20, memoryLimit>>20)
	}

	for i := range n {
		if err := s.cluster.Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "default", fmt.Sprint("big-", i)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		resp := s.watch()
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		// Lists make the garbage that has the memory looked through.
		s.get("/api/v1/configmaps?limit=100").Body.Close()
		if !Sleep(ctx, 100*time.Millisecond) {
			t.Fatal("there is room again, and watches are refused still")
		}
	}
}
