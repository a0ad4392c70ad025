// Package deploy_test checks what is in deploy/ beside the manifests themselves: the
// Helm chart against kustomize's output and a real API server, the alerts by promtool's
// unit tests, and the dashboard's queries on the metrics of a running server. Helm and
// promtool are tools of this module.
package deploy
