// Command live is what makes a control plane a living cluster, in one binary:
// the real kube-controller-manager and kube-scheduler, and kwok, which plays
// the kubelets of any number of nodes.
//
// It is called as the binary controlplane is: through a link that is named as
// the program, or with the program's name as its first argument. One more
// program, kwok-stages, prints the configuration with which kwok brings nodes
// and pods to life and to their end.
//
// It is a binary of its own, because few tests need it and it takes as long to
// build as the control plane does.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// programs are what this binary can be. Each reads os.Args as it would in a
// binary of its own, and returns the process's exit code.
var programs = map[string]func() int{
	"kube-controller-manager": kubeControllerManager,
	"kube-scheduler":          kubeScheduler,
	"kwok":                    kwok,
	"kwok-stages":             kwokStages,
}

func main() {
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if program, ok = programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: live {kube-controller-manager|kube-scheduler|kwok|kwok-stages} [argument...]")
		os.Exit(2)
	}
	os.Exit(program())
}
