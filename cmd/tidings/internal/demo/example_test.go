package demo_test

import (
	"context"
	"fmt"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func ExampleCluster_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cluster := demo.New(demo.Workload{Seed: 7, Pods: 50}, fakeapi.Options{})
	go cluster.Run(ctx)

	deployments, _, err := cluster.List(deploymentsGVR, "kube-system")
	if err != nil {
		fmt.Println(err)
	}
	for _, d := range deployments {
		fmt.Println(d.GetName())
	}
	// Output:
	// cilium-operator
	// coredns
	// metrics-server
}
