package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// warmStart is the start of a mirror of a real API server, from nothing and from the history
// that an earlier one has left. Each run from the history ends with SIGKILL.
var warmStart = line{
	name: "warmstart",
	what: "Start of a mirror of %d pods of a real kube-apiserver, from nothing and from its history",
	size: 100_000, quick: 40,
	setup: func(ctx context.Context, size int) (_ []string, _ func() error, err error) {
		cp, err := controlplane.Launch(ctx)
		if err != nil {
			return nil, nil, err
		}
		dir, err := os.MkdirTemp("", "tidings-bench-")
		teardown := func() error { return errors.Join(cp.Stop(), os.RemoveAll(dir)) }
		if err == nil {
			pods := samplepods.Clone(size, 1)
			err = errors.Join(samplepods.Create(ctx, cp.AdminConfig(), pods, 16), samplepods.WriteStatus(ctx, cp.AdminConfig(), pods, 16))
		}
		kubeconfig, kept := cp.Kubeconfig(controlplane.Admin), filepath.Join(dir, "history")
		if err == nil {
			err = record(ctx, kubeconfig, kept, size)
		}
		if err != nil {
			return nil, nil, errors.Join(err, teardown())
		}
		return []string{"KUBECONFIG=" + kubeconfig, "HISTORY=" + kept,
			fmt.Sprintf("SERVED_PIDS=%d %d 0", cp.PID("kube-apiserver"), cp.PID("etcd"))}, teardown, nil
	},
	claims: []claim{
		{20, "start with 100,000 pods from the history, beside one from nothing, until ready: s", "wall s", "from the history", "", atMost(3)},
		{20, "the same, list requests", "lists of pods", "from the history", "", atMost(0)},
		{20, "the same, CPU s of the mirror", "CPU s of the mirror", "from the history", "", target{}},
		{20, "the same, CPU s of kube-apiserver and etcd", "CPU s behind", "from the history", "", target{}},
	},
	sides: []side{
		{"from nothing", func(ctx context.Context, _ int) (figures, error) {
			return measureServe(ctx, "--resource", "pods")
		}},
		{"from the history", func(ctx context.Context, _ int) (figures, error) {
			return measureServe(ctx, "--resource", "pods", "--history", os.Getenv("HISTORY"))
		}},
	},
}

// record runs tidings serve until its history has every pod.
func record(ctx context.Context, kubeconfig, dir string, pods int) error {
	s, err := newServer(ctx, "--kubeconfig", kubeconfig, "--resource", "pods", "--history", dir)
	if err != nil {
		return err
	}
	defer s.end()
	if err := s.start(ctx); err != nil {
		return err
	}
	err = await(ctx, 2*time.Minute, func() error {
		metrics, err := s.get("/metrics")
		if err != nil {
			return err
		}
		_, rest, _ := bytes.Cut(metrics, []byte("\ntidings_history_versions_total{"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		_, value, _ := bytes.Cut(line, []byte("} "))
		if n, _ := strconv.ParseFloat(string(value), 64); int(n) < pods {
			return fmt.Errorf("the history has %q versions, not %d", value, pods)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, s.log.String())
	}
	return nil
}
