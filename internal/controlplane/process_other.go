//go:build unix && !linux

package controlplane

import "syscall"

// dieWithParent does nothing where the kernel offers nothing for it; the
// janitor kills what is left.
func dieWithParent(*syscall.SysProcAttr) {}
