//go:build unix

package controlplane

// An Option changes what a cluster is started with.
type Option func(*options)

type options struct {
	apiServerFlags []string
	controllers    bool
	nodes          int
}

// WithAPIServerFlags adds flags to kube-apiserver's, such as
// "--watch-cache=false". Of a flag that is given twice the last counts, so they
// override the cluster's own.
func WithAPIServerFlags(flags ...string) Option {
	return func(o *options) { o.apiServerFlags = append(o.apiServerFlags, flags...) }
}

// WithControllers starts kube-controller-manager and kube-scheduler, with all
// their controllers and without their usual limits on requests. A Deployment
// then gets its pods, pods get their service account and, given nodes to run
// on (see [WithKwok]), a node. The programs are another binary, which is built
// if need be; see [BuildLive].
func WithControllers() Option {
	return func(o *options) { o.controllers = true }
}

// WithKwok starts kwok, which plays the kubelets of n nodes, node-0 and so on in
// three zones: it keeps them ready, and runs, completes and deletes the pods
// that are assigned to them. The nodes are ready when the cluster is. Nobody
// assigns pods without [WithControllers]. The programs are another binary, which
// is built if need be; see [BuildLive].
func WithKwok(n int) Option {
	return func(o *options) { o.nodes = n }
}
