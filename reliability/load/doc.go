// Package load puts a server under load, step by step, and measures what becomes
// of it: how long after a change was made it has been delivered to those who
// watch, what was refused, and what the server took.
package load
