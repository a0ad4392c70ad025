// Package cli is the tidings command: one file per subcommand, and what they
// share. Each subcommand turns flags into calls of the packages below it.
//
// [Main] is the program. [Run] is the same with arguments and streams, for tests.
package cli
