package cli

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/source"
)

// failures returns a message for each of the errors that are joined in err, each
// message once.
func (g *globals) failures(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		var out []string
		for _, one := range joined.Unwrap() {
			for _, text := range g.failures(one) {
				if !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
		return out
	}
	return []string{g.failure(err)}
}

// failure formats an error as the last words of a command. What an API server says
// begins as in kubectl. An object that does not exist is described as in kubectl, too.
func (g *globals) failure(err error) string {
	var told *toldError
	if errors.As(err, &told) {
		return told.message + g.hint(err)
	}
	text := brief(err)
	var connecting *uselessError
	if errors.As(err, &connecting) { // says all there is to say
		text = connecting.Error()
	}
	var answer *apierrors.StatusError
	if !errors.As(err, &answer) || answer.ErrStatus.Reason == metav1.StatusReasonUnknown {
		return "error: " + text
	}
	if missing := answer.ErrStatus.Details; apierrors.IsNotFound(answer) && missing != nil && missing.Name != "" {
		text = answer.ErrStatus.Message
		var request *source.Error
		if g.several && errors.As(err, &request) {
			text += " in cluster " + request.Cluster
		}
	}
	return fmt.Sprintf("Error from server (%s): %s", answer.ErrStatus.Reason, text) + g.hint(answer)
}

// hint says how to authenticate at a server that refuses callers without credentials.
func (g *globals) hint(err error) string {
	if g.conn.server == "" || !apierrors.IsUnauthorized(err) {
		return ""
	}
	return "; authenticate with --token-file, --token or --client-certificate"
}

// brief formats an error without the long URLs of Go's HTTP client. The errors
// around them name the request and the cluster.
func brief(err error) string {
	text := err.Error()
	var each func(error)
	each = func(err error) {
		if u, ok := err.(*url.Error); ok {
			text = strings.ReplaceAll(text, u.Error(), u.Err.Error())
		}
		switch err := err.(type) {
		case interface{ Unwrap() error }:
			if next := err.Unwrap(); next != nil {
				each(next)
			}
		case interface{ Unwrap() []error }:
			for _, next := range err.Unwrap() {
				each(next)
			}
		}
	}
	each(err)
	return text
}
