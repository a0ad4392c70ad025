// Package table makes the tables that kubectl prints: what the Kubernetes API
// answers when it is asked for objects "as=Table".
//
// A [Printer] belongs to one kind. For the kinds that are built into Kubernetes
// its columns and cells are those of k8s.io/kubernetes' own printers (package
// pkg/printers/internalversion, version 1.36, which is the contract; a test
// holds the two together); for custom resources those that their definition
// asks for under additionalPrinterColumns, as apiextensions-apiserver makes
// them; for everything else a name and a time of creation, as an API server
// does that knows no better.
//
// What is read is an object's JSON as an API server wrote it, with all defaults
// filled in. A [Row] is what was read of one version of an object; it may be
// kept and asked again, because ages are told when [Row.Cells] is called.
package table
