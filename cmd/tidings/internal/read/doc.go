// Package read answers gets, lists and watches from a mirror. It is the only read path
// of the program.
//
// A server parses a request once, into [Params]. [NewQuery] validates them and returns
// a [Query], which is immutable. The query is authorized, and the same value is then
// what a [Reader] reads and what requests to the API server are built from. No function
// of this package takes a URL path.
//
// A read returns a [State], or [Events] of the selected objects. Servers encode these
// and make no decisions of their own.
//
// # Guarantees
//
// A list is the state at one resourceVersion. All pages of a list are of the same
// state, whatever changes between them, for as long as the reader keeps that state (see
// [Options.PageTTL]) or the mirror retains the changes since. After that, the next page
// is refused as expired.
//
// A watch begins with all objects, or after a version, and continues with every later
// change, in order, each exactly once. Each event carries a resume point. A watch that
// begins at the resume point of the last handled event continues with the next event;
// no event is lost or repeated. If the mirror no longer has those events, the watch
// sends [Reset] and begins with all objects.
//
// Objects are shared with all readers and must not be modified. Every error that a
// caller can act on is an [*mirror.Error].
package read
