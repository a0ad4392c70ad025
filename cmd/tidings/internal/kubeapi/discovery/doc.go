// Package discovery serves the discovery of a Kubernetes API: its groups, versions and
// resources (/api and /apis, aggregated or not), its schemas (/openapi/v2 and
// /openapi/v3) and its version (/version).
//
// The answers are those of the cluster. They are the same for all callers, so they are
// fetched with the mirror's credentials and cached: each answer is requested at most
// every two seconds, with a conditional request where the cluster supports it. While the
// cluster does not answer, its last answer is served, marked as stale.
//
// If other requests are not passed through to the cluster, discovery leaves out what the
// mirror cannot serve: verbs other than get, list and watch, subresources, and resources
// that can only be written. Schemas are complete.
package discovery
