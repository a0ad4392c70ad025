// Tidings shows, follows and mirrors the resources of Kubernetes clusters. See
// "tidings --help".
package main

import (
	"os"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
)

func main() { os.Exit(cli.Main()) }
