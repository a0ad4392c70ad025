// Package faultproxy puts faults between a client and a Kubernetes API server.
//
// There are two kinds. [TCP] breaks connections and knows nothing of what goes
// over them: refused, reset, stalled, dripping, half open. [Proxy] speaks the
// Kubernetes API, ends the TLS of its clients and begins its own, and so can
// break a single answer, or one event of a watch: [Rule] says which, an [Action]
// says how. Credentials go through both as they come.
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
