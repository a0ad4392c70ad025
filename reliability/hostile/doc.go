// Package hostile puts requests that nobody in good faith would make to a real
// kube-apiserver and to mirrors of it, with the same bytes, and compares.
//
// Every object of the cluster has canaries in it: random texts that occur nowhere
// else. Each caller has rights that the package has made, so it is known which
// canaries a caller may see. A request is a form (a list, a watch, a page of the
// mirror's own) and a few twists (a name that is escaped twice, a dot segment, a
// header of a proxy). What is checked of each answer of a mirror:
//
//   - no canary is in it that the caller must not see, in any encoding;
//   - its status is the API server's, or the difference is one of those that
//     docs/server.md lists;
//   - it is no server error that the API server does not give;
//   - a page of another origin gets no WebSocket without a token that was checked;
//   - the mirror is alive in the end.
//
// All choices are made from a seed.
package hostile
