package cli

import "sigs.k8s.io/json"

// decode decodes JSON as Kubernetes does: keys are case-sensitive, and whole
// numbers are int64.
func decode(body []byte, into any) error {
	return json.UnmarshalCaseSensitivePreserveInts(body, into)
}
