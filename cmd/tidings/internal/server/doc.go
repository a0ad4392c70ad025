// Package server serves reads and watches over HTTP from a mirror (package mirror).
//
// The routes are plain REST: /{resource} with any name that kubectl accepts, and
// /{group}/{version}/{resource}[/{namespace}[/{name}]]; each also under
// /clusters/{cluster}. GET / lists them. Responses are JSON, {"data": …,
// "resourceVersion": "…"}; errors are {"error": "…", "reason": "…", "exists": […]} with
// a matching status.
//
// # Watches
//
// With ?watch=true a route answers with server-sent events. Each message is one JSON
// object with a type:
//
//	ADDED, MODIFIED, DELETED  an event of an object that matches; an object that
//	                          begins to match is ADDED, one that ceases to match
//	                          is DELETED
//	SYNCED                    all existing objects have been sent
//	RESET                     forget all objects, they will be sent again
//
// The id of a message is the resume point after it. A browser's EventSource returns it
// as Last-Event-ID when it reconnects; other clients may send it as the parameter
// since. A watch that resumes so misses no event and gets none twice, or gets RESET.
// Ids are opaque. The resourceVersion of a complete list serves as an id too. When the
// server ends a watch, it sends an event named "end" with the reason.
//
// # Access control
//
// With an access.Gate in the options, callers authenticate as they do at the API
// server, and a request succeeds only if the API server would allow it. A guard in
// front of all routes ensures that, and ends watches when the right ends. With
// visible=true a list or watch covers the namespaces that the caller may read.
//
// Without a Gate, everybody who can connect reads with the rights of the mirror. So the
// server listens on loopback addresses only, and answers only requests addressed to
// them, unless [Options.InsecureServeAnyone] is set.
package server
