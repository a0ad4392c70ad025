// Package reliability is the root of the module with the reliability tests: faults
// between a mirror and a real kube-apiserver, long runs, load, hostile requests. It is
// a module of its own to keep the tools for this out of the product's go.mod.
package reliability
