// Package agents offers the reads of a server as tools of the Model Context Protocol.
//
// A tool call is one or more requests of the REST routes, made with the credentials of the
// tool's caller. So rights, limits, the audit log and the parsing of selectors and moments
// are those of every other read, and this package has none of its own.
//
// What it adds is the form: short texts within a budget of bytes. Each says how much there
// was and how much is shown, how old it is, and the version to go on from. Whatever comes
// from a cluster stands on lines that begin with "| ", with control characters, line ends
// and invisible characters escaped, so that no text of a cluster can pass for anything else.
// The data of Secrets is withheld before anything is selected, sorted or cut.
package agents
