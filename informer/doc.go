// Package informer keeps a live, local, indexed mirror of Kubernetes resources
// and tells what changes: list and watch, done once and shared by everyone.
package informer
