// Package relations tells what belongs to an object of a cluster: its owners and what it
// owns, the objects that it names or selects, and what is wrong with each of them.
//
// What an object says about others, and what is wrong with it, follows from the object
// alone: [Object] in, [Finding]s and edges out. A [Reader] walks from one object to the
// next through the one read path. Each object is authorized as a read of its own, before
// it is read.
package relations
