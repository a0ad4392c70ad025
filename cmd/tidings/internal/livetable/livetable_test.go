package livetable_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// rig has the tables of an in-memory cluster.
type rig struct {
	testing.TB
	ctx     context.Context
	cluster *fakeapi.Cluster
	name    string // of the cluster; "": the only one
	mirror  *mirror.Mirror
	tables  *livetable.Tables
}

// inBubble runs a test in a synctest bubble: time passes only while all goroutines wait,
// and no goroutine may outlive the test.
func inBubble(t *testing.T, opts livetable.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(c)
		defer stop()
		m, err := mirror.New(mirror.Options{Logger: slog.New(slog.DiscardHandler), Resources: []string{"*", "secrets"}})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{TB: t, ctx: t.Context(), cluster: c, mirror: m, tables: livetable.New(read.New(read.Options{}), opts)}
		r.must(m.Set(r.ctx, map[string]*rest.Config{"test": config}))
		defer func() { r.must(m.Close(context.Background())) }()
		defer r.tables.Close()
		test(r)
	})
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) put(namespace, name string, phase corev1.PodPhase, change ...func(*corev1.Pod)) {
	r.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"phase": string(phase)}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}, Status: corev1.PodStatus{Phase: phase},
	}
	for _, f := range change {
		f(pod)
	}
	_, err := r.cluster.Put(pod)
	r.must(err)
}

func (r *rig) query(change func(*read.Params)) *read.Query {
	r.Helper()
	c, err := r.mirror.Cluster(r.name)
	r.must(err)
	of, err := c.Resolve(r.ctx, "pods")
	r.must(err)
	p := read.Params{Cluster: c, Resource: of.GVR(), Verb: read.Watch}
	if change != nil {
		change(&p)
	}
	q, err := read.NewQuery(p)
	r.must(err)
	r.must(q.Bind(of))
	return q
}

// window is a window of one table, which it holds.
type window struct {
	*livetable.Window
	held *livetable.Held
}

func (w *window) Close() {
	w.Window.Close()
	w.held.Release()
}

func (r *rig) tryOpen(ctx context.Context, q *read.Query, p livetable.Params) (*window, error) {
	held, err := r.tables.Hold(ctx, q, p)
	if err != nil {
		return nil, err
	}
	w, err := held.Open(p)
	if err != nil {
		held.Release()
		return nil, err
	}
	return &window{w, held}, nil
}

// client is what a caller makes of the frames of a window.
type client struct {
	*rig
	window interface {
		Next(context.Context) ([]byte, error)
		Close()
	}

	Columns         []livetable.Column
	Total, Objects  int
	Counts          []livetable.Count
	Keys            []string
	Rows            map[string][]any
	Cells           map[string]map[int]any
	ResourceVersion string
	Synced          bool
	Upstream        struct{ Phase string }
	Clusters        []struct {
		Upstream struct{ Phase string }
		Problem  struct{ Reason string }
	}

	rows map[string][]any
}

func (r *rig) open(q *read.Query, p livetable.Params) *client {
	r.Helper()
	w, err := r.tryOpen(r.ctx, q, p)
	r.must(err)
	return &client{rig: r, window: w, rows: map[string][]any{}}
}

// next takes the next frame and returns its length.
func (c *client) next() int {
	c.Helper()
	frame, err := c.window.Next(c.ctx)
	c.must(err)
	c.Rows, c.Cells = nil, nil
	keys := c.Keys
	c.Keys = nil
	c.must(json.Unmarshal(frame, c))
	if c.Keys == nil {
		c.Keys = keys
	}
	for key, row := range c.Rows {
		c.rows[key] = row
	}
	for key, cells := range c.Cells {
		for i, cell := range cells {
			c.rows[key][i] = cell
		}
	}
	for key := range c.rows {
		if !slices.Contains(c.Keys, key) {
			delete(c.rows, key)
		}
	}
	return len(frame)
}

// settled takes frames until one has the newest version.
func (c *client) settled() {
	c.Helper()
	for range 100 {
		if c.next(); c.Synced && c.ResourceVersion == c.cluster.ResourceVersion() {
			return
		}
	}
	c.Fatal("the newest version does not come")
}

// Whatever changes, the frames that a window has sent make the rows that the cluster has,
// in its order.
func TestFramesMakeTheTable(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, livetable.Options{}, func(r *rig) {
			rng := rand.New(rand.NewPCG(seed, 0))
			phases := []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}
			change := func() {
				name := fmt.Sprint("p-", rng.IntN(30))
				if rng.IntN(3) == 0 {
					_ = r.cluster.Delete(pods, "default", name) // may not exist
					return
				}
				r.put("default", name, phases[rng.IntN(3)])
			}
			for range rng.IntN(60) {
				change()
			}
			p := livetable.Params{First: rng.IntN(5), Count: 1 + rng.IntN(20), Descending: rng.IntN(2) == 0, Sort: []string{"", "name", "Status"}[rng.IntN(3)], Filter: []string{"", "p-1", "run", "!failed"}[rng.IntN(4)]}
			c := r.open(r.query(nil), p)
			defer c.window.Close()
			for range 10 {
				for range rng.IntN(20) {
					change()
				}
				r.put("default", "p-99", phases[rng.IntN(3)]) // the newest version is that of a pod
				c.settled()
				r.compare(c, p)
			}
		})
	}
}

// compare compares what a client has with the cluster.
func (r *rig) compare(c *client, p livetable.Params) {
	r.Helper()
	type one struct {
		name, status string
	}
	var all []one
	objects, _ := r.cluster.PeekAll(pods, "")
	for _, o := range objects {
		pod := o.(*corev1.Pod)
		line := strings.ToLower(pod.Name + " " + string(pod.Status.Phase))
		if word, not := strings.CutPrefix(p.Filter, "!"); strings.Contains(line, word) != not {
			all = append(all, one{pod.Name, string(pod.Status.Phase)})
		}
	}
	number := func(o one) int { n := 0; _, _ = fmt.Sscanf(o.name, "p-%d", &n); return n }
	slices.SortFunc(all, func(a, b one) int {
		by := strings.Compare(a.name, b.name)
		switch p.Sort {
		case "name":
			by = cmp.Compare(number(a), number(b))
		case "Status":
			by = strings.Compare(a.status, b.status)
		}
		if p.Descending {
			by = -by
		}
		return cmp.Or(by, strings.Compare(a.name, b.name))
	})
	if c.Total != len(all) || c.Objects != len(objects) {
		r.Fatalf("%+v: %d of %d, want %d of %d", p, c.Total, c.Objects, len(all), len(objects))
	}
	counts := 0
	for _, n := range c.Counts {
		counts += n.Rows
	}
	if counts != len(all) {
		r.Fatalf("%+v: the counts are %+v of %d rows", p, c.Counts, len(all))
	}
	var got, want []string
	for _, key := range c.Keys {
		got = append(got, fmt.Sprint(c.rows[key][1], " ", c.rows[key][3]))
	}
	for _, o := range all[min(p.First, len(all)):min(p.First+p.Count, len(all))] {
		want = append(want, o.name+" "+o.status)
	}
	if !slices.Equal(got, want) {
		r.Fatalf("%+v:\n got %q\nwant %q", p, got, want)
	}
}

// Many changes are folded into ten frames a second, and what is not seen costs little.
func TestFramesAreFolded(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		for i := range 200 {
			r.put("default", fmt.Sprintf("p-%03d", i), corev1.PodPending)
		}
		top := r.open(r.query(nil), livetable.Params{Count: 10})
		defer top.window.Close()
		whole := top.next()
		begun, frames, bytes := time.Now(), 0, 0
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					r.put("default", fmt.Sprintf("p-%03d", i%200), []corev1.PodPhase{corev1.PodRunning, corev1.PodPending}[i/200%2])
				}
			}
		}()
		for time.Since(begun) < 10*time.Second {
			bytes += top.next()
			frames++
		}
		close(stop)
		<-ended
		if frames < 80 || frames > 101 {
			t.Errorf("%d frames in 10 s", frames)
		}
		if bytes/frames > whole/3 {
			t.Errorf("a frame has %d bytes, and a whole one %d", bytes/frames, whole)
		}
		top.settled()
		quiet := time.Now()
		if top.next(); time.Since(quiet) != livetable.Alive {
			t.Errorf("the next frame came after %s", time.Since(quiet))
		}
		if top.Upstream.Phase != "watching" {
			t.Errorf("upstream is %q", top.Upstream.Phase)
		}
		r.put("default", "p-000", corev1.PodSucceeded)
		synctest.Wait()
		time.Sleep(time.Second)
		at := time.Now()
		if top.next(); time.Since(at) > 0 || len(top.Cells)+len(top.Rows) != 1 {
			t.Errorf("a change came after %s: %+v", time.Since(at), top)
		}
	})
}

// A change after a quiet time is shown at once. Those that come right after it are shown
// together, a tenth of a second later.
func TestChangesThatComeTogether(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		for i := range 5 {
			r.put("default", fmt.Sprintf("p-%d", i), corev1.PodPending)
		}
		c := r.open(r.query(nil), livetable.Params{Count: 10})
		defer c.window.Close()
		c.settled()
		const quiet = 1500 * time.Millisecond
		begun := time.Now().Add(quiet)
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			time.Sleep(quiet)
			for i := range 5 {
				r.put("default", fmt.Sprintf("p-%d", i), corev1.PodRunning)
				time.Sleep(10 * time.Millisecond)
			}
		}()
		if c.next(); time.Since(begun) > 0 || len(c.Cells) != 1 {
			t.Errorf("after %s there are %d changed rows", time.Since(begun), len(c.Cells))
		}
		if c.next(); time.Since(begun) > 110*time.Millisecond || len(c.Cells) != 4 {
			t.Errorf("after %s there are %d more changed rows", time.Since(begun), len(c.Cells))
		}
		<-changed
	})
}

// A cluster that is away is told of.
func TestUpstream(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		r.put("default", "a", corev1.PodRunning)
		c := r.open(r.query(nil), livetable.Params{Count: 10})
		defer c.window.Close()
		c.next()
		r.cluster.SetDown(true)
		for i := 0; c.Upstream.Phase == "watching"; i++ {
			if c.next(); i > 10 {
				t.Fatal("it is not told")
			}
		}
		r.cluster.SetDown(false)
		for i := 0; c.Upstream.Phase != "watching"; i++ {
			if c.next(); i > 20 {
				t.Fatal("it is not told that it is back")
			}
		}
		if len(c.Keys) != 1 {
			t.Errorf("%q", c.Keys)
		}
	})
}

func TestSharing(t *testing.T) {
	inBubble(t, livetable.Options{Linger: time.Second}, func(r *rig) {
		r.put("a", "x", corev1.PodRunning)
		r.put("b", "y", corev1.PodRunning)
		in := func(namespaces ...string) *read.Query {
			q, err := r.query(nil).Within(namespaces)
			r.must(err)
			return q
		}
		selecting := func(selector string) *read.Query {
			return r.query(func(p *read.Params) { p.Labels, _ = labels.Parse(selector) })
		}
		var all []*client
		open := func(q *read.Query, p livetable.Params, want ...string) {
			c := r.open(q, p)
			if all = append(all, c); len(want) > 0 {
				if c.next(); !slices.Equal(c.Keys, want) {
					t.Errorf("%q, want %q", c.Keys, want)
				}
			}
		}
		for range 3 {
			open(r.query(nil), livetable.Params{Count: 10}, "a/x", "b/y")
			open(r.query(nil), livetable.Params{Count: 1, First: 1}, "b/y")
		}
		if r.tables.Len() != 1 || r.tables.Orders() != 1 {
			t.Errorf("%d tables, %d orders", r.tables.Len(), r.tables.Orders())
		}
		open(r.query(nil), livetable.Params{Count: 10, Filter: "Y a"})
		open(r.query(nil), livetable.Params{Count: 10, Filter: " a  y y"})
		if r.tables.Len() != 1 || r.tables.Orders() != 2 {
			t.Errorf("%d tables, %d orders", r.tables.Len(), r.tables.Orders())
		}
		// What callers may read is never shared with those who may read something else.
		open(in("a"), livetable.Params{Count: 10}, "a/x")
		open(in("a", "b"), livetable.Params{Count: 10}, "a/x", "b/y")
		open(r.query(func(p *read.Params) { p.Namespace = "b" }), livetable.Params{Count: 10}, "b/y")
		open(selecting("phase=Running"), livetable.Params{Count: 10}, "a/x", "b/y")
		open(in(), livetable.Params{Count: 10})
		if all[len(all)-1].next(); all[len(all)-1].Total != 0 {
			t.Errorf("nobody's namespaces have %d rows", all[len(all)-1].Total)
		}
		if r.tables.Len() != 6 {
			t.Errorf("%d tables", r.tables.Len())
		}
		for _, c := range all {
			c.window.Close()
		}
		if r.tables.Orders() > 2*r.tables.Len() { // some are kept, as the next filter begins with them
			t.Errorf("%d orders are left", r.tables.Orders())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r.tables.Len() != 0 {
			t.Errorf("%d tables are left", r.tables.Len())
		}
	})
}

func TestLimits(t *testing.T) {
	inBubble(t, livetable.Options{MaxPerCaller: 2, MaxBytes: 200_000, Linger: time.Second}, func(r *rig) {
		for i := range 1000 {
			r.put("default", fmt.Sprintf("p-%03d", i), corev1.PodPending)
		}
		ctx := read.WithCaller(r.ctx, "jane")
		small := r.query(func(p *read.Params) { p.Namespace = "elsewhere" })
		var open []*window
		for range 2 {
			w, err := r.tryOpen(ctx, small, livetable.Params{Count: 1})
			r.must(err)
			open = append(open, w)
		}
		if _, err := r.tryOpen(ctx, small, livetable.Params{Count: 1}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a window too many: %v", err)
		}
		open[0].Close()
		// The table is larger than what a caller may have: it ends while it is filled.
		w, err := r.tryOpen(ctx, r.query(nil), livetable.Params{Count: 1})
		for i := 0; err == nil; i++ {
			if _, err = w.Next(ctx); i > 100 {
				t.Fatal("it does not end")
			}
		}
		if !apierrors.IsTooManyRequests(err) {
			t.Errorf("a table that is too large: %v", err)
		}
		if w != nil {
			w.Close()
		}
		synctest.Wait()
		// Nothing is left of it, and a part of it is small enough.
		some := r.query(func(p *read.Params) { p.Name = "p-001" })
		w, err = r.tryOpen(ctx, some, livetable.Params{Count: 1})
		r.must(err)
		w.Close()
		open[1].Close()
	})
}

func TestInvalid(t *testing.T) {
	inBubble(t, livetable.Options{}, func(r *rig) {
		for what, p := range map[string]livetable.Params{
			"no rows": {}, "too many": {Count: livetable.MaxRows + 1}, "before the first": {Count: 1, First: -1}, "sort": {Count: 1, Sort: "x"},
			"columns": {Count: 1, Columns: []string{"x"}}, "filter": {Count: 1, Filter: strings.Repeat("x", livetable.MaxFilter+1)},
		} {
			if _, err := r.tryOpen(r.ctx, r.query(nil), p); mirror.ReasonOf(err) != mirror.Invalid {
				t.Errorf("%s: %v", what, err)
			}
		}
		c := r.open(r.query(nil), livetable.Params{Count: 1, First: 1 << 40, Columns: []string{"status", "Name"}})
		defer c.window.Close()
		if c.next(); len(c.Keys) != 0 || len(c.Columns) != 2 || c.Columns[0].Name != "Status" {
			t.Errorf("%+v", c)
		}
	})
}
