package cluster

import (
	"runtime/debug"
	"sync"
)

const modulePath = "github.com/tidings-io/tidings"

// userAgent returns "tidings/<version of this module in the running program>".
var userAgent = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "tidings/devel"
	}
	version := ""
	if info.Main.Path == modulePath {
		version = info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == modulePath {
			version = dep.Version
		}
	}
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	return "tidings/" + version
})
