//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// Real servers are killed with SIGKILL while objects change, and started again on the same
// folder. Then the history has what etcd's own watch has, each version once and in order,
// and a gap for each time between two servers; after the beginning, only the server after
// a compaction has listed. KILLS is the number of kills, 10 if it is not set; KILLS_SEED
// repeats the choices of a run.
func TestKilledServersKeepTheirHistory(t *testing.T) {
	kills, seed := 10, rand.Uint64()
	if s := os.Getenv("KILLS"); s != "" {
		kills, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("KILLS_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("KILLS_SEED=%d", seed)
	k := newKilled(t, rand.New(rand.NewPCG(seed, 0)))
	k.start()
	<-time.After(time.Duration(k.rng.IntN(300)) * time.Millisecond) // a random instant is what is tested
	k.kill()
	k.start()
	k.begun()
	first := k.lists.Load()
	stopChurn := k.churn()
	for range kills {
		k.awaitReady()
		<-time.After(time.Duration(k.rng.IntN(500)) * time.Millisecond)
		k.kill()
		for k.rng.IntN(3) == 0 { // some are killed while they start
			k.start()
			<-time.After(time.Duration(k.rng.IntN(300)) * time.Millisecond)
			k.kill()
		}
		k.start()
	}
	k.awaitReady()
	stopChurn()
	k.recorded()
	if n := k.lists.Load() - first; n != 0 {
		t.Errorf("%d lists since the history has begun", n)
	}
	k.compare(0)
	k.watched()

	// What the API server has forgotten is in a gap.
	k.kill()
	stopChurn = k.churn()
	k.await("changes while no server runs", func() bool { return k.written.Load() > 50 })
	stopChurn()
	// The last change is one that the list has: nothing would tell of an object that was created and
	// deleted in the gap.
	k.create("last-in-the-gap")
	if err := k.cp.ForgetHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.start()
	k.awaitReady()
	stopChurn = k.churn()
	k.await("changes after the gap", func() bool { return k.written.Load() > 20 })
	stopChurn()
	k.recorded()
	if n := k.lists.Load() - first; n != 1 {
		t.Errorf("%d lists after the API server has forgotten the version, not 1", n)
	}
	online := k.compare(1)
	k.kill()
	k.offline(online)
}

// killed is a server that is killed and started again.
type killed struct {
	*testing.T
	rng        *rand.Rand
	cp         *controlplane.Cluster
	core       kubernetes.Interface
	dir        string
	kubeconfig string
	lists      atomic.Int64 // of all config maps, at the API server
	first      uint64       // the version that the history begins at

	cmd   *exec.Cmd
	url   string
	spans []span // in which no server ran, since the history has begun

	written atomic.Int64 // since the churn began

	mu     sync.Mutex
	truth  []controlplane.StoredChange // of config maps
	values map[uint64]string           // of the versions that were written
}

type span struct{ from, to time.Time }

func newKilled(t *testing.T, rng *rand.Rand) *killed {
	k := &killed{T: t, rng: rng, cp: controlplane.Start(t), dir: filepath.Join(t.TempDir(), "history"), values: map[uint64]string{}}
	config := rest.CopyConfig(k.cp.AdminConfig())
	config.QPS = -1
	var err error
	if k.core, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			q := r.In.URL.Query()
			if r.In.URL.Path == "/api/v1/configmaps" && !strings.Contains(q.Get("fieldSelector"), "tidings.none") && (!q.Has("watch") || q.Has("sendInitialEvents")) {
				k.lists.Add(1)
			}
			r.SetURL(target)
		},
		Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(proxy.Close)
	k.kubeconfig = kubeconfigOf(t, proxy.URL)

	ctx, cancel := context.WithCancel(context.Background())
	followed, following := make(chan error, 1), make(chan struct{})
	go func() {
		followed <- k.cp.WatchEtcd(ctx, func(uint64, []controlplane.StoredChange) { close(following) }, func(changes []controlplane.StoredChange) bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, c := range changes {
				if key, ok := strings.CutPrefix(c.Key, "/registry/configmaps/"); ok {
					c.Key = key
					k.truth = append(k.truth, c)
				}
			}
			return true
		})
	}()
	<-following
	t.Cleanup(func() {
		cancel()
		if err := <-followed; err != nil {
			t.Error(err)
		}
	})
	return k
}

// start starts a server on the folder.
func (k *killed) start() {
	k.Helper()
	k.cmd = exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0", "--kubeconfig", k.kubeconfig, "--resource", "configmaps", "--history", k.dir)
	k.cmd.Env = append(os.Environ(), asProgram+"=1")
	errs, err := k.cmd.StderrPipe()
	if err != nil {
		k.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		k.Fatal(err)
	}
	cmd := k.cmd
	k.Cleanup(func() { _ = cmd.Process.Kill() })
	if n := len(k.spans); n > 0 {
		k.spans[n-1].to = time.Now()
	}
	serving := make(chan string, 1)
	go func() {
		defer close(serving)
		for scan := bufio.NewScanner(errs); scan.Scan(); {
			if _, rest, ok := strings.Cut(scan.Text(), "msg=serving url="); ok {
				serving <- strings.Fields(rest)[0]
			}
		}
	}()
	var ok bool
	if k.url, ok = <-serving; !ok {
		k.Fatal("the server has ended")
	}
}

// kill ends the server as kill -9 does.
func (k *killed) kill() {
	k.Helper()
	k.spans = append(k.spans, span{from: time.Now()})
	if err := k.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		k.Fatal(err)
	}
	_ = k.cmd.Wait()
	http.DefaultClient.CloseIdleConnections()
}

func (k *killed) await(what string, done func() bool) {
	k.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			k.Fatalf("in vain: %s", what)
		}
	}
}

func (k *killed) awaitReady() {
	k.Helper()
	k.await("ready", func() bool { code, _ := httpGet(k, k.url+"/readyz"); return code == http.StatusOK })
}

// pastState is a state of the history: the version of each object.
type pastState struct {
	Moment struct {
		ResourceVersion uint64 `json:",string"`
	}
	Data []corev1.ConfigMap
}

func (k *killed) at(moment string) (s pastState, ok bool) {
	k.Helper()
	code, body := httpGet(k, k.url+"/configmaps?at="+moment)
	if code == http.StatusOK {
		k.decode(body, &s)
	}
	return s, code == http.StatusOK
}

func (k *killed) decode(text string, into any) {
	k.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		k.Fatalf("%v: %.500s", err, text)
	}
}

// begun waits until the history has begun.
func (k *killed) begun() {
	k.Helper()
	k.spans = nil
	k.await("the history has begun", func() bool {
		s, ok := k.at("-0s")
		k.first = s.Moment.ResourceVersion
		return ok
	})
}

// churn changes objects until stop is called.
func (k *killed) churn() (stop func()) {
	k.written.Store(0)
	ctx, cancel := context.WithCancel(k.Context())
	var running sync.WaitGroup
	for worker := range 2 {
		rng := rand.New(rand.NewPCG(k.rng.Uint64(), 0))
		running.Go(func() {
			api := k.core.CoreV1().ConfigMaps("default")
			there := map[string]bool{} // of an earlier churn, an object may be there
			// The end of ctx ends no request: it could be carried out after the churn.
			for ctx.Err() == nil {
				name, value := fmt.Sprint("c-", worker, "-", rng.IntN(10)), fmt.Sprint(rng.Uint64())
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}
				var err error
				switch {
				case there[name] && rng.IntN(6) == 0:
					err, there[name] = api.Delete(k.Context(), name, metav1.DeleteOptions{}), false
				case there[name]:
					cm, err = api.Update(k.Context(), cm, metav1.UpdateOptions{})
				default:
					cm, err = api.Create(k.Context(), cm, metav1.CreateOptions{})
					there[name] = true
				}
				if err != nil {
					continue // it was there
				}
				if cm.ResourceVersion != "" {
					v, _ := strconv.ParseUint(cm.ResourceVersion, 10, 64)
					k.mu.Lock()
					k.values[v] = value
					k.mu.Unlock()
				}
				k.written.Add(1)
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// create creates an object.
func (k *killed) create(name string) {
	k.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := k.core.CoreV1().ConfigMaps("default").Create(k.Context(), cm, metav1.CreateOptions{}); err != nil {
		k.Fatal(err)
	}
}

// recorded waits until the history has the newest version.
func (k *killed) recorded() {
	k.Helper()
	list, err := k.core.CoreV1().ConfigMaps("").List(k.Context(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	now, _ := strconv.ParseUint(list.ResourceVersion, 10, 64)
	var newest uint64
	k.await("etcd's watch", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, c := range list.Items {
			v, _ := strconv.ParseUint(c.ResourceVersion, 10, 64)
			newest = max(newest, v)
		}
		for _, c := range k.truth {
			if c.Revision <= now {
				newest = max(newest, c.Revision)
			}
		}
		return len(k.truth) > 0 && k.truth[len(k.truth)-1].Revision >= newest
	})
	k.await("the history has the newest version", func() bool {
		s, ok := k.at("-0s")
		return ok && s.Moment.ResourceVersion >= newest
	})
}

// pastChange is a change of the history.
type pastChange struct {
	Type            string
	Namespace, Name string
	ResourceVersion uint64 `json:",string"`
	Relist          bool
	Object          struct{ Data map[string]string }
}

func (c pastChange) String() string {
	return fmt.Sprintf("%s %s/%s %d", c.Type, c.Namespace, c.Name, c.ResourceVersion)
}

// compare compares the changes of the history with those of etcd. Some are missing before
// so many lists. It returns the changes.
func (k *killed) compare(lists int) (changes []string) {
	k.Helper()
	type pastGap struct {
		From, To time.Time
		Late     bool
	}
	gaps := map[time.Time]pastGap{}
	values := url.Values{"changes": {"true"}, "objects": {"true"}, "since": {"2000-01-01T00:00:00Z"}}
	state := map[string]uint64{}
	begin, ok := k.at(fmt.Sprint(k.first))
	if !ok {
		k.Fatalf("the history has lost its beginning, %d", k.first)
	}
	for _, o := range begin.Data {
		state[o.Namespace+"/"+o.Name], _ = strconv.ParseUint(o.ResourceVersion, 10, 64)
	}
	k.mu.Lock()
	truth := slices.DeleteFunc(slices.Clone(k.truth), func(c controlplane.StoredChange) bool { return c.Revision <= k.first })
	written := maps.Clone(k.values)
	k.mu.Unlock()
	missing, relists, relisting := 0, 0, false
	for {
		var page struct {
			Data     []pastChange
			Gaps     []pastGap
			Continue string
		}
		code, body := httpGet(k, k.url+"/configmaps?"+values.Encode())
		if code != http.StatusOK {
			k.Fatal(body)
		}
		k.decode(body, &page)
		for _, g := range page.Gaps {
			gaps[g.From] = g
		}
		for _, c := range page.Data {
			changes = append(changes, c.String())
			key := c.Namespace + "/" + c.Name
			if c.Relist && !relisting {
				relists++
			}
			if relisting = c.Relist; relisting { // it has the newest versions, in the order of their names
				for len(truth) > 0 && truth[0].Revision <= c.ResourceVersion {
					truth, missing = truth[1:], missing+1
				}
			} else {
				if len(truth) == 0 || truth[0].Revision != c.ResourceVersion || truth[0].Key != key || truth[0].Deleted != (c.Type == "DELETED") {
					k.Fatalf("the history has %s where etcd has %+v", c, truth[:min(1, len(truth))])
				}
				truth = truth[1:]
			}
			if value, ok := written[c.ResourceVersion]; ok && c.Object.Data["v"] != value {
				k.Errorf("%s has the value %q, not %q", c, c.Object.Data["v"], value)
			}
			if _, was := state[key]; was != (c.Type != "ADDED") {
				k.Errorf("%s does not follow from what was there", c)
			}
			if state[key] = c.ResourceVersion; c.Type == "DELETED" {
				delete(state, key)
			}
		}
		if page.Continue == "" {
			break
		}
		values.Set("continue", page.Continue)
	}
	if len(truth) > 0 {
		k.Errorf("the history lacks the last %d changes of etcd", len(truth))
	}
	if relists != lists || (missing > 0) != (lists > 0) {
		k.Errorf("the history has %d lists, %d changes before them are missing", relists, missing)
	}
	missed := 0
	for _, g := range gaps {
		if !g.Late {
			missed++
		}
	}
	if missed != lists {
		k.Errorf("%d gaps in which changes were missed, not %d: %v", missed, lists, gaps)
	}
	for _, away := range k.spans {
		if !slices.ContainsFunc(slices.Collect(maps.Values(gaps)), func(g pastGap) bool { return !g.From.After(away.from) && !g.To.Before(away.to) }) {
			k.Errorf("no server ran from %v to %v, and that is in no gap", away.from, away.to)
		}
	}
	list, err := k.core.CoreV1().ConfigMaps("").List(k.Context(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	want := map[string]uint64{}
	for _, o := range list.Items {
		want[o.Namespace+"/"+o.Name], _ = strconv.ParseUint(o.ResourceVersion, 10, 64)
	}
	if !maps.Equal(state, want) {
		k.Errorf("the changes lead to %v, and the cluster has %v", state, want)
	}
	k.Logf("%d changes, %d missing, %d gaps, %d times without a server", len(changes), missing, len(gaps), len(k.spans))
	return changes
}

// watched compares a watch from the beginning of the history with etcd's.
func (k *killed) watched() {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/configmaps?watch=true&resourceVersion=%d", k.url, k.first), nil)
	if err != nil {
		k.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	decoder := json.NewDecoder(resp.Body)
	k.mu.Lock()
	truth := slices.Clone(k.truth)
	k.mu.Unlock()
	for _, c := range truth {
		if c.Revision <= k.first {
			continue
		}
		var e struct {
			Type   string
			Object corev1.ConfigMap
		}
		if err := decoder.Decode(&e); err != nil {
			k.Fatal(err)
		}
		if e.Object.ResourceVersion != fmt.Sprint(c.Revision) || e.Object.Namespace+"/"+e.Object.Name != c.Key || (e.Type == "DELETED") != c.Deleted {
			k.Fatalf("the watch has %s %s/%s %s where etcd has %+v", e.Type, e.Object.Namespace, e.Object.Name, e.Object.ResourceVersion, c)
		}
	}
}

// offline compares the changes that the folder has after a kill with those before.
func (k *killed) offline(online []string) {
	k.Helper()
	out, errs, code := runIn(k.Context(), "history", "configmaps", "-A", "-o", "json", "--since", "2000-01-01T00:00:00Z", "--history", k.dir)
	if code != 0 {
		k.Fatal(errs)
	}
	var changes []string
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var c pastChange
		if err := decoder.Decode(&c); err == io.EOF {
			break
		} else if err != nil {
			k.Fatal(err)
		}
		if c.Type != "GAP" {
			changes = append(changes, c.String())
		}
	}
	if !slices.Equal(changes, online) {
		k.Errorf("the folder has %d changes, and the server had %d", len(changes), len(online))
	}
}
