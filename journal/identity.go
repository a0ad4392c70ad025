package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
)

const identifyTimeout = 10 * time.Second

// identify returns what distinguishes a cluster from others: the uid of its namespace
// kube-system or, without the right to read that, its address and certificate authority.
func identify(ctx context.Context, c *cluster.Cluster) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	u := c.BaseURL().JoinPath("api/v1/namespaces", metav1.NamespaceSystem)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.HTTPClient().Do(req)
	if err != nil {
		return "", fmt.Errorf("get the namespace %s of cluster %s: %w", metav1.NamespaceSystem, c.Name(), err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		var namespace metav1.PartialObjectMetadata
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&namespace); err != nil {
			return "", fmt.Errorf("get the namespace %s of cluster %s: %w", metav1.NamespaceSystem, c.Name(), err)
		}
		return "uid " + string(namespace.UID), nil
	case http.StatusForbidden, http.StatusNotFound:
		config := c.Config()
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", config.Host, config.CAFile, config.CAData))
		return "address " + hex.EncodeToString(sum[:]), nil
	}
	return "", fmt.Errorf("get the namespace %s of cluster %s: %s", metav1.NamespaceSystem, c.Name(), resp.Status)
}
