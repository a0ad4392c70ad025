package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/tidings-io/tidings/cluster"
)

// toldError is an error whose message is complete: it is printed without "error: ".
type toldError struct {
	message string
	err     error
}

func (e *toldError) Error() string { return e.message }
func (e *toldError) Unwrap() error { return e.err }

// failed returns an error of a cluster with the message of kubectl. If there are
// several clusters, each line names the cluster. A cluster that could not be asked
// has a message of ours.
func (get *getter) failed(ctx context.Context, c *cluster.Cluster, err error) error {
	var network *url.Error
	var connecting *uselessError
	switch {
	case err == nil:
		return nil
	case get.many && errors.As(err, &connecting):
		return &toldError{fmt.Sprintf("error: cluster %q: %v", c.Name(), connecting), err}
	case errors.As(err, &network):
		return fmt.Errorf("cluster %q: %w", c.Name(), err)
	}
	if strings.HasSuffix(err.Error(), "unknown") {
		if err = inServersWords(ctx, c, err); !strings.HasSuffix(err.Error(), "unknown") {
			return err
		}
	}
	message := kubectlMessage(err)
	if get.many {
		lines := strings.Split(message, "\n")
		for i, line := range lines {
			lines[i] = "cluster " + c.Name() + ": " + line
		}
		message = strings.Join(lines, "\n")
	}
	return &toldError{message, err}
}

// kubectlMessage returns what kubectl prints for an error.
func kubectlMessage(err error) string {
	if all, ok := err.(utilerrors.Aggregate); ok && len(all.Errors()) == 1 {
		err = all.Errors()[0]
	}
	if all, ok := err.(utilerrors.Aggregate); ok {
		return strings.TrimSuffix(cmdutil.MultipleErrors("", all.Errors()), "\n")
	}
	if message, ok := cmdutil.StandardErrorMessage(err); ok {
		return message
	}
	return "error: " + strings.TrimPrefix(err.Error(), "error: ")
}
