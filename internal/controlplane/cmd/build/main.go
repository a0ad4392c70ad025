//go:build unix

// Command build makes sure that the control plane for tests is built, and
// prints the folder that holds kube-apiserver, etcd and kubectl. With -live it
// does so for kube-controller-manager, kube-scheduler and kwok as well.
//
//	go run ./internal/controlplane/cmd/build && go test ./...
//
// Tests build it themselves when it is missing; the command does it where no
// test's timeout is running.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/tidings-io/tidings/internal/controlplane"
)

func main() {
	live := flag.Bool("live", false, "build kube-controller-manager, kube-scheduler and kwok as well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	builds := []func(context.Context) (string, error){controlplane.Build}
	if *live {
		builds = append(builds, controlplane.BuildLive)
	}
	for _, build := range builds {
		dir, err := build(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "controlplane:", err)
			os.Exit(1)
		}
		fmt.Println(dir)
	}
}
