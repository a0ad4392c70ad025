//go:build unix && !linux

package controlplane

import "syscall"

// dieWithParent does nothing where the kernel has no such feature. The reaper
// kills the remaining processes.
func dieWithParent(*syscall.SysProcAttr) {}
