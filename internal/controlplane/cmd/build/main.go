//go:build unix

// Command build builds the control plane for tests unless it is built already, and
// prints the folder of kube-apiserver, etcd and kubectl. With -controllers it does
// the same for kube-controller-manager, kube-scheduler and kwok.
//
//	go run ./internal/controlplane/cmd/build && go test ./...
//
// Tests build a missing control plane themselves, but within the test's timeout.
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
	controllers := flag.Bool("controllers", false, "also build kube-controller-manager, kube-scheduler and kwok")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	builds := []func(context.Context) (string, error){controlplane.Build}
	if *controllers {
		builds = append(builds, controlplane.BuildControllers)
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
