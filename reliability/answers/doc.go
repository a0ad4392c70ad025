// Package answers asks a server with little memory for many long lists at a time, in
// every form there is, and says what that takes and what comes of it. Each list is to
// be answered whole, or refused with 429 and Retry-After; none may break off.
package answers
