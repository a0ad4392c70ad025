// Command controlplane is the control plane of a Kubernetes cluster in one
// binary: the real kube-apiserver, the etcd it was released with, and kubectl.
//
// It is several programs under several names, as busybox is: called through a
// link named kube-apiserver, etcd or kubectl it is that program, called by any
// other name it takes the program's name as its first argument. One binary
// links the packages that the three share once, so it builds in little more
// than the time that kube-apiserver alone needs.
//
// Tidings' tests and benchmarks run against it. It is a module of its own so
// that nothing of it reaches the go.mod of those who import Tidings.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// programs are what this binary can be. Each reads os.Args as it would in a
// binary of its own, and returns the process's exit code.
var programs = map[string]func() int{
	"etcd":           etcd,
	"kube-apiserver": kubeAPIServer,
	"kubectl":        kubectl,
}

func main() {
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if program, ok = programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: controlplane {etcd|kube-apiserver|kubectl} [argument...]")
		os.Exit(2)
	}
	os.Exit(program())
}
