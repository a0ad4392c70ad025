package controlplane

import "syscall"

// dieWithParent has the kernel kill the child when this process ends, even
// when it is killed itself.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
