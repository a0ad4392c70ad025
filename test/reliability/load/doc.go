// Package load puts a server under load, step by step, and measures the time from a
// change to its delivery to watches, the refused requests, and the server's CPU time
// and memory.
package load
