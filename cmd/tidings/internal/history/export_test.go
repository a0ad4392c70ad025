package history

import "github.com/cockroachdb/pebble/v2/vfs"

// On returns the options of a store in another file system.
func (o Options) On(fs vfs.FS) Options {
	o.fs = fs
	return o
}

// Damage is [damage] for the tests of servers.
var Damage = damage
