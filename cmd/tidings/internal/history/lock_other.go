//go:build !unix

package history

import "os"

// lockShared has nothing to do: a file that a server has locked cannot be opened.
func lockShared(*os.File) error { return nil }
