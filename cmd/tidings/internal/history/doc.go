// Package history keeps every version of the objects of a mirror on disk, so that any
// moment can be read later: one object, a list, the changes between two moments.
//
// A [Store] is a folder, kept by Pebble (github.com/cockroachdb/pebble). It holds one
// [Series] for each mirrored resource of a cluster. A series is written by one [Writer],
// which a [Recorder] feeds with the events of an informer. Readers see what has been
// written, at the same time.
//
// # How it is stored
//
// Every change of a series has a sequence number. They only grow, whatever clocks and
// resourceVersions do. Changes are grouped in windows, named by the sequence number at
// which they begin:
//
//   - the log of a window has one record per batch of changes, in order: when it
//     arrived, and key, type and resourceVersion of each change;
//   - the versions of a window are sorted by object and then by sequence number. A
//     block of 128 KiB therefore holds versions that resemble each other, and compresses
//     well;
//   - the checkpoint of a window is a version of each object that existed when the
//     window began. It is made after the window has begun, in the background. Until it
//     is complete, readers read on from the window before.
//
// The state at a moment is the newest version of each object up to a sequence number,
// found by one scan of a window. A window is dropped by one range deletion.
//
// # What is promised
//
// A batch that [Writer.Append] has returned from survives the end of the process and of the
// machine. A batch is written whole or not at all. What the writer has not seen is
// recorded as a [Gap], with both ends; after an unclean end that is everything since the
// last batch or [Writer.Seen].
package history
