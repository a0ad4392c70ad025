// Package mirror keeps informers of many resources of many clusters, starts
// them when they are first asked for, and answers reads from them.
//
// A [Mirror] is given its clusters by [Mirror.Set] or [Mirror.Follow], which
// may be called again at any time: clusters about which nothing changed keep
// their informers, others are replaced or emptied. What it is asked is a
// [Query] about a [Target]; the answer comes from the cache or straight from
// the API server, as the query's [Source] says, through the same [Data]
// interface.
//
// # What a reader may rely on
//
// A list is the state at one resourceVersion. The pages of a list are of one
// state, however much changes between them, for as long as the mirror holds it
// (see [Options.PageTTL]); after that the next page is refused as expired.
//
// A watch begins with everything there is and goes on with every later change,
// in order, each once. Each event carries a position; a watch that begins at
// the position of the last event handled goes on with the next one, with
// nothing lost and nothing doubled, or, if the mirror no longer knows, says
// [Reset] and begins with everything there is.
//
// Objects are shared with every other reader and must not be modified.
//
// Every error that a caller can do something about is an [*Error].
package mirror
