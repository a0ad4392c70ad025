package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// encodeJSON writes v, which must be encodable, as JSON.
func encodeJSON(w io.Writer, indent string, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	_ = e.Encode(v)
	_, _ = w.Write(termsafe.JSON(b.Bytes()))
}
