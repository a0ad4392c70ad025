//go:build unix

package controlplane

// An Option configures a cluster.
type Option func(*options)

type options struct {
	apiServerFlags []string
	controllers    bool
	nodes          int
}

// WithAPIServerFlags adds flags to kube-apiserver's, such as
// "--watch-cache=false". Of repeated flags the last counts, so they override
// the cluster's own.
func WithAPIServerFlags(flags ...string) Option {
	return func(o *options) { o.apiServerFlags = append(o.apiServerFlags, flags...) }
}

// WithControllers starts kube-controller-manager and kube-scheduler, with all
// their controllers and without their usual rate limits. Deployments then get
// pods, pods get their service account and, given nodes to run on (see
// [WithKwok]), a node. The programs are in another binary, which is built if it
// is missing; see [BuildControllers].
func WithControllers() Option {
	return func(o *options) { o.controllers = true }
}

// WithKwok starts kwok, which simulates the kubelets of n nodes, node-0 and so
// on, in three zones. It keeps the nodes ready, and runs, completes and deletes
// the pods assigned to them. The nodes are ready when the cluster is. Pods are
// assigned only with [WithControllers]. The program is in another binary, which
// is built if it is missing; see [BuildControllers].
func WithKwok(n int) Option {
	return func(o *options) { o.nodes = n }
}
