package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// A server that is killed while everything is going on leaves nobody with a gap:
// whoever resumes at the one that comes after is told all that happened, or that
// they have to begin anew.
func TestKilledServerLeavesNoGap(t *testing.T) {
	cp := controlplane.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary, err := BuildServer(ctx, dir, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	serve := func() *Process {
		p, err := Serve(ctx, binary, address, filepath.Join(dir, "server.log"), nil, "--kubeconfig", cp.Kubeconfig(controlplane.Admin), "--resource", "configmaps", "--resource", "*")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	s := &soak{
		options: Options{Seed: 1, Rate: 100, Patience: time.Minute}, log: slog.New(slog.DiscardHandler),
		cp: cp, report: newReport(1), truth: newTruth(resources...), url: "http://" + address,
	}
	server := serve()
	t.Cleanup(func() { _ = server.Kill() })
	churn, err := newChurn(cp.AdminConfig(), s.report)
	if err != nil {
		t.Fatal(err)
	}
	if err := churn.build(ctx); err != nil {
		t.Fatal(err)
	}

	running, stop := context.WithCancel(ctx)
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return s.truth.follow(running, cp) })
	for i := range workers {
		group.Go(func() error { return churn.run(running, s.random(fmt.Sprint(i)), s.options.Rate/workers) })
	}
	soon := func() time.Duration { return 100 * time.Millisecond }
	for _, r := range []resource{configMaps, widgets, deployments} {
		events := &sse{replay: newReplay("server-sent events", r.plural, r, s.truth, s.report), soak: s, away: soon}
		group.Go(func() error { return events.run(running) })
		for _, initial := range []bool{false, true} {
			watch := &kubeWatch{replay: newReplay("Kubernetes watch", r.plural, r, s.truth, s.report), soak: s, away: soon, initial: initial}
			group.Go(func() error { return watch.run(running) })
		}
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	group.Go(func() error {
		return s.clientGo(running, client.CoreV1().RESTClient(), configMaps, &corev1.ConfigMap{}, configMaps.plural)
	})

	readers, _ := s.report.readers()
	recover := func() { s.recover(ctx, slices.Clone(readers), s.truth.newest(), time.Now(), &faultRecord{}) }
	recover()
	for range 5 {
		printed := s.kubectlWatch(ctx, t)
		Sleep(ctx, time.Second)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		// kubectl does not resume: it must not seem to go on.
		select {
		case <-printed:
		case <-time.After(30 * time.Second):
			t.Fatal("kubectl get --watch goes on 30 s after its server was killed")
		}
		server = serve()
		recover()
	}
	stop()
	if err := group.Wait(); err != nil && ctx.Err() == nil && running.Err() == nil {
		t.Error(err)
	}
	for _, m := range s.report.Mismatches() {
		t.Errorf("%s %s\n%s", m.Who, m.What, lines(m.Events))
	}
	resumed, anew := uint64(0), uint64(0)
	for _, p := range readers {
		if p.events == 0 {
			t.Errorf("%s %s was told nothing", p.kind, p.name)
		}
		resumed += p.resumed
		anew += p.reset
	}
	if resumed == 0 || anew == 0 {
		t.Errorf("%d times somebody resumed, and %d times began anew: want both", resumed, anew)
	}
	t.Logf("%d checks, %d times somebody resumed, %d times began anew", s.report.Checks(), resumed, anew)
}

// kubectlWatch has kubectl follow the config maps. The channel is closed when
// kubectl has ended.
func (s *soak) kubectlWatch(ctx context.Context, t *testing.T) (ended <-chan struct{}) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(path, &rest.Config{Host: s.url}); err != nil {
		t.Fatal(err)
	}
	kubectl := s.cp.KubectlCommand(ctx, path, "get", "configmaps", "-A", "-w", "-o", "json", "--output-watch-events")
	out, err := kubectl.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := kubectl.Start(); err != nil {
		t.Fatal(err)
	}
	p := newReplay("kubectl", "config maps", configMaps, s.truth, newReport(0))
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		decoder := json.NewDecoder(out)
		for n := 0; ; n++ {
			var e struct {
				Type   string `json:"type"`
				Object thing  `json:"object"`
			}
			if decoder.Decode(&e) != nil {
				break
			}
			if e.Type == "ERROR" {
				continue // it tells that the watch is broken
			}
			p.event(e.Type, e.Object.key(), e.Object.Metadata.ResourceVersion)
			if n == 0 {
				close(first)
			}
		}
		_ = kubectl.Wait()
		for _, m := range p.report.Mismatches() {
			t.Errorf("%s %s\n%s", m.Who, m.What, lines(m.Events))
		}
	}()
	select {
	case <-first:
	case <-done:
		t.Error("kubectl get --watch ended before it had told anything")
	}
	return done
}

func lines(events []string) (out string) {
	for _, e := range events[max(0, len(events)-30):] {
		out += "\t" + e + "\n"
	}
	return out
}
