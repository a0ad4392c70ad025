// The command tidings shows, follows and mirrors the resources of Kubernetes
// clusters. "tidings --help" says how.
package main

import (
	"os"

	"github.com/tidings-io/tidings/cli"
)

func main() { os.Exit(cli.Main()) }
