//go:build unix

// Command build makes sure that the control plane for tests is built, and
// prints the folder that holds kube-apiserver, etcd and kubectl.
//
//	go run ./internal/controlplane/cmd/build && go test ./...
//
// Tests build it themselves when it is missing; the command does it where no
// test's timeout is running.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/tidings-io/tidings/internal/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := controlplane.Build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
