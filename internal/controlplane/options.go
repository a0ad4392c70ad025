//go:build unix

package controlplane

// An Option changes what a cluster is started with.
type Option func(*options)

type options struct {
	apiServerFlags []string
}

// WithAPIServerFlags adds flags to kube-apiserver's, such as
// "--watch-cache=false". Of a flag that is given twice the last counts, so they
// override the cluster's own.
func WithAPIServerFlags(flags ...string) Option {
	return func(o *options) { o.apiServerFlags = append(o.apiServerFlags, flags...) }
}
