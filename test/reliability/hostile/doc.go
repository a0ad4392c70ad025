// Package hostile sends malicious requests to a real kube-apiserver and, byte for byte
// the same, to mirrors of it, and compares the answers.
//
// Every object of the cluster contains canaries: random texts that occur nowhere else.
// The package grants each caller its rights, so it knows which canaries a caller may
// see. A request is a form (a list, a watch, a route of the mirror) with a few twists (a
// name that is escaped twice, a dot segment, a header of a proxy). Each answer of a
// mirror is checked:
//
//   - it contains no canary that the caller must not see, in any encoding;
//   - it has the API server's status, or docs/server.md lists the difference;
//   - it is no server error unless the API server's answer is one, too;
//   - a page of another origin gets no WebSocket without a verified token;
//   - the mirror is still running at the end.
//
// All choices depend on a seed.
package hostile
