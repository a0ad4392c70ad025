// Command controlplane is the control plane of a Kubernetes cluster in one
// binary: kube-apiserver, the etcd it was released with, and kubectl.
//
// Like busybox, it runs the program that it is called by: kube-apiserver, etcd or
// kubectl, through links of these names. Called by any other name, it takes the
// program's name as its first argument. One binary contains the packages that the
// three share only once, so it builds in little more time than kube-apiserver
// alone.
//
// Tidings' tests and benchmarks run against it. It is a module of its own to keep
// its dependencies out of Tidings' go.mod.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// programs are the programs in this binary. Each reads os.Args as usual and
// returns the exit code of the process.
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
