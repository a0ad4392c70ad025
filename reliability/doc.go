// Package reliability is the root of the module that proves that nothing is
// lost: faults between a mirror and a real kube-apiserver, long runs, load.
// It is a module of its own so that the tools for this do not reach the
// product's go.mod.
package reliability
