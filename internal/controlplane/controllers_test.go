//go:build unix

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  replicas: 20
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: registry.example/web:1}
`

// A Deployment is created and scaled, and its pods are deleted with it.
func TestControllersAndKwok(t *testing.T) {
	c := Start(t, WithControllers(), WithKwok(5))
	for _, program := range controllersBinary.programs[:3] {
		if c.PID(program) == 0 {
			t.Errorf("%s does not run", program)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		cmd := c.KubectlCommand(ctx, c.Kubeconfig(NamespacedUser), append(args, "--namespace="+Namespace)...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", args[0], err, out)
		}
	}
	podsAre := func(want int) {
		t.Helper()
		if err := poll(ctx, nil, func(ctx context.Context) error {
			stdout, _, err := c.Kubectl(ctx, NamespacedUser, "get", "pods", "--namespace="+Namespace, "--output=json")
			if err != nil {
				return err
			}
			pods := &corev1.PodList{}
			if err := json.Unmarshal([]byte(stdout), pods); err != nil {
				return err
			}
			if got := len(pods.Items); got != want {
				return fmt.Errorf("%d pods, want %d", got, want)
			}
			for _, pod := range pods.Items {
				if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" {
					return fmt.Errorf("pod %s is %s on node %q, want it running", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
				}
				if pod.Spec.ServiceAccountName != "default" {
					return fmt.Errorf("pod %s has the service account %q", pod.Name, pod.Spec.ServiceAccountName)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}

	kubectl(deployment, "apply", "--filename=-")
	kubectl("", "rollout", "status", "deployment/web")
	podsAre(20)
	kubectl("", "scale", "deployment/web", "--replicas=7")
	podsAre(7)
	kubectl("", "delete", "deployment/web")
	podsAre(0)
}
