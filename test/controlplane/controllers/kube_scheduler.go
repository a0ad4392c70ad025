package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func kubeScheduler() int {
	return cli.Run(app.NewSchedulerCommand())
}
