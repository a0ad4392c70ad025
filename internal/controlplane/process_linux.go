package controlplane

import "syscall"

// dieWithParent makes the kernel kill the child when this process ends, even by
// SIGKILL.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
