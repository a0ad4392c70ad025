// Command controllers is the rest of a Kubernetes cluster in one binary:
// kube-controller-manager, kube-scheduler, and kwok, which simulates the kubelets
// of any number of nodes.
//
// Like the binary controlplane, it runs the program that it is called by, or the
// one that its first argument names. One more program, kwok-stages, prints the
// configuration by which kwok starts and ends nodes and pods.
//
// It is a separate binary because few tests need it and it takes as long to build
// as the control plane.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// programs are the programs in this binary. Each reads os.Args as usual and
// returns the exit code of the process.
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
		fmt.Fprintln(os.Stderr, "usage: controllers {kube-controller-manager|kube-scheduler|kwok|kwok-stages} [argument...]")
		os.Exit(2)
	}
	os.Exit(program())
}
