package server_test

import (
	"bufio"
	"context"
	"log/slog"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

var everyUser = []controlplane.User{controlplane.Admin, controlplane.NamespacedUser, controlplane.Nobody}

// withGuardedKubectl is withKubectl with authentication.
func withGuardedKubectl(t *testing.T, opts server.Options) *kubectls {
	t.Helper()
	gate, err := access.NewGate(access.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	opts.Gate = gate
	return withKubectl(t, opts)
}

// With authentication kubectl prints the same for a mirror as for the cluster, for
// every user: results, denials and their reasons. With passthrough that holds for all
// commands. Without, a write is refused: with a hint for users who have the right, in
// the cluster's words for others.
func TestKubectlOfEveryUser(t *testing.T) {
	through, alone := withGuardedKubectl(t, server.Options{Passthrough: true}), withGuardedKubectl(t, server.Options{})
	pods := samplepods.Load().Items[:1]
	pods[0].Namespace, pods[0].OwnerReferences, pods[0].Finalizers = controlplane.Namespace, nil, nil
	if err := samplepods.Create(t.Context(), through.cp.AdminConfig(), pods, 1); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"create deployment users --image=x -n team-a", "create secret generic users --from-literal=a=b -n team-a"} {
		if got := through.run(controlplane.Admin, "direct", command); !strings.Contains(got, "created") {
			t.Fatal(got)
		}
	}
	pod := func(command string) string { return strings.ReplaceAll(command, "POD", pods[0].Name) }
	said := func(k *kubectls, user controlplane.User, at, command string) string {
		return ageless(k.run(user, at, command))
	}
	each := func(commands []string, compare func(user controlplane.User, command string)) {
		var group errgroup.Group
		group.SetLimit(4)
		for _, user := range everyUser {
			for _, command := range commands {
				group.Go(func() error {
					compare(user, pod(command))
					return nil
				})
			}
		}
		_ = group.Wait()
	}

	var refused atomic.Int64
	others := []string{
		"logs POD -n team-a", "exec POD -n team-a -- ls", "top pods -n team-a", "api-resources",
		"get secret users -n team-a -o yaml", "get pod POD -n team-a --subresource=status",
		"scale deploy users --replicas=3 -n team-a", "auth can-i create deployments --subresource=scale -n team-a",
	}
	each(others, func(user controlplane.User, command string) {
		want := said(through, user, "direct", command)
		if have := said(through, user, "", command); have != want {
			t.Errorf("%s: kubectl %s says\n%s\nand of the mirror with --passthrough\n%s", user, command, want, have)
		}
		have := said(alone, user, "", command)
		switch {
		case command == "api-resources": // which are fewer
			if !strings.Contains(have, "deployments ") || strings.Contains(have, "tokenreviews") {
				t.Errorf("%s: kubectl %s says of the mirror\n%s", user, command, have)
			}
		case have == want:
		case user != controlplane.Nobody && strings.Contains(have, "exit status 1") && (strings.Contains(have, "start the mirror with --passthrough") || strings.Contains(have, "start the server with --resource secrets")):
			refused.Add(1)
		default:
			t.Errorf("%s: kubectl %s says\n%s\nand of the mirror\n%s", user, command, want, have)
		}
	})
	if refused.Load() < 6 {
		t.Errorf("%d commands were refused because it is a mirror", refused.Load())
	}

	each([]string{
		"get pods -n team-a -o wide", "get pods -n team-a -o yaml", "get deploy -n team-a -o json", "get all -n team-a", "get pods -A", "get ns team-a",
		"describe pod POD -n team-a", "describe deploy users -n team-a", "explain deploy.spec.strategy", "get nothing -n team-a",
		"wait pod/POD -n team-a --for=jsonpath={.metadata.name}=POD --timeout=1m", "wait deploy/users -n team-a --for=condition=Available --timeout=1s",
		"auth can-i list pods -n team-a", "auth can-i list pods -A", "auth can-i --list -n team-a", "auth whoami", "version",
	}, func(user controlplane.User, command string) {
		want := said(through, user, "direct", command)
		for what, k := range map[string]*kubectls{"": alone, " with --passthrough": through} {
			if have := said(k, user, "", command); have != want {
				t.Errorf("%s: kubectl %s says\n%s\nand of the mirror%s\n%s", user, command, want, what, have)
			}
		}
	})
}

// A user with rights in one namespace watches and waits in it.
func TestKubectlWatchesAsUsers(t *testing.T) {
	k := withGuardedKubectl(t, server.Options{Passthrough: true})
	k.run(controlplane.Admin, "direct", "create configmap watched -n team-a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := func(args string) (*exec.Cmd, *bufio.Scanner) {
		cmd := k.command(ctx, controlplane.NamespacedUser, "/clusters/real", strings.Fields(args)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewScanner(out)
	}
	watch, watched := begin("get configmaps -n team-a -w --field-selector=metadata.name=watched")
	wait, waited := begin("wait configmap/watched -n team-a --for=jsonpath={.data.a}=b --timeout=1m")
	gone, _ := begin("wait configmap/watched -n team-a --for=delete --timeout=1m")
	next := func(lines *bufio.Scanner, want string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("it has ended before it said %q", want)
		}
		if got := strings.Join(strings.Fields(lines.Text()), " "); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	next(watched, "NAME DATA AGE")
	next(watched, "watched 0 ")
	k.run(controlplane.NamespacedUser, "", `patch configmap watched -n team-a -p {"data":{"a":"b"}}`)
	next(watched, "watched 1 ")
	next(waited, "configmap/watched condition met")
	if err := wait.Wait(); err != nil {
		t.Error(err)
	}
	k.run(controlplane.NamespacedUser, "", "delete configmap watched -n team-a")
	if err := gone.Wait(); err != nil {
		t.Error(err)
	}
	cancel()
	_ = watch.Wait() // it was killed

	for _, command := range []string{"get configmaps -n team-a -w", "wait configmap/watched -n team-a --for=jsonpath={.data.a}=b"} {
		if got := k.run(controlplane.Nobody, "", command); !strings.Contains(got, `User "nobody" cannot `) || !strings.Contains(got, "exit status 1") {
			t.Errorf("kubectl %s: %s", command, got)
		}
	}
}
