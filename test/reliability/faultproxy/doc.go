// Package faultproxy puts faults between a client and a Kubernetes API server.
//
// There are two kinds. [TCP] breaks connections regardless of their content: refused,
// reset, stalled, slow, half open. [Proxy] speaks the Kubernetes API and terminates
// TLS, so it can break a single response, or one event of a watch: a [Rule] selects the
// requests, an [Action] is the fault. Both pass on credentials unchanged.
//
// They can be stacked, the client's connection first:
//
//	proxy, err := faultproxy.New(upstream)                // to the API server
//	wire, err := faultproxy.NewTCP(proxy.Addr())          // in front of it
//	config := wire.Config(proxy.Config(upstream))         // for the client
//	…
//	remove := proxy.Add(faultproxy.Rule{Verb: "watch", Resource: "pods", Times: 1,
//		Action: faultproxy.ErrorEvent(2, apierrors.NewResourceExpired("too old"))})
package faultproxy
