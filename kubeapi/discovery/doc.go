// Package discovery answers what a Kubernetes API says of itself: which groups,
// versions and resources there are (/api and /apis, in the older form and
// aggregated), their schemas (/openapi/v2 and /openapi/v3) and the version
// (/version).
//
// The answers are the cluster's own, asked with the mirror's credentials, since
// they are the same for everyone, and kept: however many ask, the cluster is
// asked about each answer every two seconds at most, and tells only whether it
// has changed where it can. While the cluster does not answer, what it said last
// is said again, marked as stale.
//
// Without a way to hand on what the mirror cannot answer itself, discovery says
// so: verbs other than get, list and watch, subresources, and resources that
// only take writes are left out. Schemas stay whole.
package discovery
