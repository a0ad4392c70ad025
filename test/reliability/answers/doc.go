// Package answers requests many long lists at a time, in every form, from a server with
// little memory, and measures its peak memory. Each response has to be complete, or 429
// with Retry-After; none may be cut off.
package answers
