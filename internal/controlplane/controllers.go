//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// startOptional starts the controllers and kwok if the options ask for them.
func (c *Cluster) startOptional(ctx context.Context) error {
	if c.binControllers == "" {
		return nil
	}
	core, err := clientFor(c.AdminConfig(), corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if c.options.controllers {
		if err := c.startControllers(ctx, core); err != nil {
			return err
		}
	}
	if c.options.nodes > 0 {
		return c.startKwok(ctx, core)
	}
	return nil
}

// startControllers starts the controllers and returns when pods can be created
// in the initial namespaces.
func (c *Cluster) startControllers(ctx context.Context, core *rest.RESTClient) error {
	manager, err := c.runController(ctx, "kube-controller-manager", "/healthz",
		"--service-account-private-key-file="+c.path("tls.key"),
		"--root-ca-file="+c.path("tls.crt"))
	if err != nil {
		return err
	}
	if _, err := c.runController(ctx, "kube-scheduler", "/readyz"); err != nil {
		return err
	}
	return manager.waitReady(ctx, func(ctx context.Context) error {
		var errs []error
		for _, namespace := range []string{metav1.NamespaceDefault, Namespace} {
			errs = append(errs, core.Get().Namespace(namespace).Resource("serviceaccounts").Name("default").Do(ctx).Error())
		}
		return errors.Join(errs...)
	})
}

// runController starts a controller program and returns when it reports at the
// path health that it is ready.
func (c *Cluster) runController(ctx context.Context, program, health string, flags ...string) (*process, error) {
	port, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	flags = append(flags, c.servingFlags(port)...)
	p, err := c.run(c.binControllers, program, append(flags,
		"--kubeconfig="+c.Kubeconfig(Admin),
		// There is only one instance.
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	)...)
	if err != nil {
		return nil, err
	}
	c.optional = append(c.optional, p)
	anonymous := &rest.Config{Host: port.url(), TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}}
	return p, p.waitReady(ctx, func(ctx context.Context) error { return isHealthy(ctx, anonymous, health) })
}

// startKwok creates the nodes, starts kwok and returns when the nodes are
// ready.
func (c *Cluster) startKwok(ctx context.Context, core *rest.RESTClient) error {
	stages, err := exec.CommandContext(ctx, filepath.Join(c.binControllers, "kwok-stages")).Output()
	if err != nil {
		return fmt.Errorf("get kwok's stages: %w", err)
	}
	config := c.path("kwok-stages.yaml")
	if err := os.WriteFile(config, stages, 0o600); err != nil {
		return fmt.Errorf("write kwok's stages: %w", err)
	}
	for i := range c.options.nodes {
		if err := core.Post().Resource("nodes").Body(newNode(i)).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create a node: %w", err)
		}
	}
	p, err := c.run(c.binControllers, "kwok",
		"--kubeconfig="+c.Kubeconfig(Admin),
		"--config="+config,
		"--manage-all-nodes",
		"--node-lease-duration-seconds=40",
	)
	if err != nil {
		return err
	}
	c.optional = append(c.optional, p)
	return p.waitReady(ctx, func(ctx context.Context) error {
		nodes := &corev1.NodeList{}
		if err := core.Get().Resource("nodes").Do(ctx).Into(nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			if err := c.isUsable(&nodes.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func newNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelHostname:     name,
			corev1.LabelOSStable:     "linux",
			corev1.LabelArchStable:   "amd64",
			corev1.LabelTopologyZone: fmt.Sprintf("z%d", i%3),
		},
	}}
}

// isUsable returns nil if pods can run on the node.
func (c *Cluster) isUsable(node *corev1.Node) error {
	// A new node has a taint that a controller removes.
	if c.options.controllers && len(node.Spec.Taints) > 0 {
		return fmt.Errorf("%s has the taint %s", node.Name, node.Spec.Taints[0].Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready", node.Name)
}
