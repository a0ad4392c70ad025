//go:build unix

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubectl runs kubectl as user and returns its output. If it fails, the error
// contains its standard error.
func (c *Cluster) Kubectl(ctx context.Context, user User, args ...string) (stdout, stderr string, err error) {
	cmd := c.KubectlCommand(ctx, c.Kubeconfig(user), args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), errOut.String(), fmt.Errorf("kubectl %s: %w: %s",
			strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), errOut.String(), nil
}

// KubectlCommand returns a command that runs kubectl with a kubeconfig file.
// The file may be of another server, for example a proxy of the cluster. Use it
// to write kubectl's input or to read its output as it comes; otherwise see
// [Cluster.Kubectl]. kubectl's home and cache are in the cluster's folder, not
// in the user's.
func (c *Cluster) KubectlCommand(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), args...)
	cmd.Env = append(c.environment(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+c.path("kubectl-cache"))
	return cmd
}
