// Command programs is kube-controller-manager and kube-scheduler in one binary, whole
// and unchanged: the program is its first argument. It is built with a client-go whose
// constructor of shared informers calls a hook, see the command above it. With
// INFORMERS=tidings in the environment the hook makes the informers of
// informer/clientgo, which share equal parts.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"kube-controller-manager": manager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: programs {kube-controller-manager|kube-scheduler} [argument...]")
		os.Exit(2)
	}
	program := programs[os.Args[1]]
	os.Args = os.Args[1:]
	os.Exit(cli.Run(program()))
}
