//go:build unix

package controlplane

import (
	"errors"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestReplaceAPIServerAndEtcd(t *testing.T) {
	c := Start(t)
	url, stop, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := c.AdminConfig()
	config.Host = url
	before := createConfigMap(t, c)
	if err := coreClient(t, config).Get().Namespace("default").Resource("configmaps").Name(before.Name).Do(t.Context()).Error(); err != nil {
		t.Errorf("the other API server: %v", err)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := isHealthy(t.Context(), config, "/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the other API server, stopped: %v", err)
	}

	restore, err := c.SaveEtcd()
	if err != nil {
		t.Fatal(err)
	}
	after := createConfigMap(t, c)
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if was := getConfigMap(t, c, before.Name); was.UID != before.UID {
		t.Errorf("what was saved has uid %s instead of %s", was.UID, before.UID)
	}
	err = coreClient(t, c.AdminConfig()).Get().Namespace("default").Resource("configmaps").Name(after.Name).Do(t.Context()).Error()
	if !apierrors.IsNotFound(err) {
		t.Errorf("what was not saved is there: %v", err)
	}
}
