// Package server answers reads and watches over HTTP from a
// [github.com/tidings-io/tidings/mirror.Mirror].
//
// The routes are plain REST: /{resource} with any name kubectl would take, and
// /{group}/{version}/{resource}[/{namespace}[/{name}]]; each also beneath
// /clusters/{cluster}. GET / lists them. Answers are JSON,
// {"data": …, "resourceVersion": "…"}; what is wrong with a request is said as
// {"error": "…", "reason": "…", "exists": […]} with a status to match.
//
// # Watches
//
// With ?watch=true a route answers server-sent events. Each message is one JSON
// object with a type:
//
//	ADDED, MODIFIED, DELETED  what happened to an object that matches; one that
//	                          comes to match is ADDED, one that ceases to is
//	                          DELETED
//	SYNCED                    everything there is has been told
//	RESET                     forget everything, it is about to be told anew
//
// The id of a message is where to go on behind it: a browser's EventSource
// hands it back as Last-Event-ID when it reconnects by itself, others may as
// the parameter since. Whoever goes on that way misses nothing and gets nothing
// twice, or is told RESET. Ids are opaque; while a list is whole its
// resourceVersion serves as one too. A watch that the server ends says why in
// an event of the name "end".
//
// # Who may read
//
// With an [github.com/tidings-io/tidings/access.Gate] in the options, callers say who they are as they do at
// the API server, and every request is one that the API server would allow them:
// a guard in front of all routes sees to that, and to watches ending when the
// right does. With visible=true a list or watch is of the namespaces that the
// caller may read.
//
// Without, whoever can connect reads with the rights of the mirror. So the server
// listens on loopback addresses only, and answers only requests addressed to
// such, unless it is told that anyone may read.
package server
