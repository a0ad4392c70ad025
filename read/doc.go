// Package read answers reads from a mirror: it is the one way from a request to what
// the request is answered with.
//
// A door reads what is asked for off a request, once, into an [Ask]. [New] makes a
// [Query] of it, which is validated and does not change. A guard decides on that
// value, and the same value is what a [Reader] reads, and what a request to the API
// server is built from. Nothing here takes a path.
//
// What is read is a [State], or [Events] that are already selected. The faces of a
// server encode these and decide nothing.
//
// # What a caller may rely on
//
// A list is the state at one resourceVersion. The pages of a list are of one state,
// however much changes between them, for as long as the reader holds it (see
// [Options.PageTTL]) or the mirror retains what has changed since; after that the
// next page is refused as expired.
//
// A watch begins with everything there is, or behind a version, and goes on with
// every later change, in order, each once. Each event carries a position; a watch
// that begins at the position of the last event handled goes on with the next one,
// with nothing lost and nothing doubled, or, if the mirror no longer knows, says
// [Reset] and begins with everything there is.
//
// Objects are shared with every other reader and must not be modified. Every error
// that a caller can do something about is an [*mirror.Error].
package read
