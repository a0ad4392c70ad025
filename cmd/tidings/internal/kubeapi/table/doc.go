// Package table makes the tables that kubectl prints: the answers of the Kubernetes API to
// requests with "as=Table".
//
// A [Printer] belongs to one kind. For the built-in kinds, its columns and cells are those
// of the printers in k8s.io/kubernetes, package pkg/printers/internalversion, version 1.36;
// a test compares the two. For custom resources they are those of additionalPrinterColumns
// in the definition, as in apiextensions-apiserver. For all other kinds they are the name
// and the time of creation, the API server's default.
//
// A Printer reads the JSON of an object as an API server wrote it, with all defaults set.
// A [Row] has what was read of one version of an object. It can be reused, because
// [Row.Cells] computes the ages.
package table
