package answers

import "net/http"

// Form is a form of a list.
type Form struct {
	Name, Accept, Query string
	Gzip                bool
	timed               bool // the response contains ages, so its length varies
}

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// Forms are all forms of a list, compressed and not.
func Forms() []Form {
	var out []Form
	for _, f := range []Form{
		{Name: "JSON", Accept: "application/json"},
		{Name: "JSON, pretty", Accept: "application/json", Query: "pretty=true"},
		{Name: "YAML", Accept: "application/yaml"},
		{Name: "Table", Accept: asTable, timed: true},
		{Name: "Table, includeObject=Object", Accept: asTable, Query: "includeObject=Object", timed: true},
		{Name: "protobuf", Accept: "application/vnd.kubernetes.protobuf"},
	} {
		out = append(out, f)
		f.Name, f.Gzip = f.Name+", gzip", true
		out = append(out, f)
	}
	return out
}

func (f Form) request(url string) (*http.Request, error) {
	if f.Query != "" {
		url += "?" + f.Query
	}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", f.Accept)
	if f.Gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	return req, nil
}
