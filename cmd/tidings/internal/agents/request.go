package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// refusal is an answer of the server that is not what was asked for.
type refusal struct {
	Status  int
	Retry   string
	Message string   `json:"error"`
	Reason  string   `json:"reason"`
	Exists  []string `json:"exists"`
}

func (r *refusal) Error() string { return r.Reason + ": " + r.Message }

// advice says what to do about a refusal.
var advice = map[string]string{
	"UnknownCluster":   "clusters lists them.",
	"ClusterNeeded":    "Name one with cluster; clusters lists them.",
	"UnknownResource":  "clusters with a cluster and a filter lists the resources that can be read.",
	"NotMirrored":      "The server is told to mirror other resources only.",
	"Withheld":         "The server is not told to mirror Secrets; nothing else shows them.",
	"NotFound":         "find lists what there is; changes and at show what there was.",
	"Forbidden":        "The caller has no such right. Name a namespace that may be read, or ask for the right.",
	"Unauthorized":     "The client must send a token that the cluster accepts.",
	"Unreachable":      "The cluster does not answer the mirror. Other clusters, and at, may.",
	"NotSynced":        "The mirror is still reading it for the first time. Call again soon.",
	"TooManyRequests":  "Call again soon, or select less: a namespace, a labelSelector.",
	"Timeout":          "Select less: a namespace, a labelSelector.",
	"Expired":          "That is no longer kept. Ask with a later version or time.",
	"URITooLong":       "Shorten the arguments.",
	"MethodNotAllowed": "It cannot be read.",
}

// explain returns the text of an error for the caller.
func explain(err error) string {
	var r *refusal
	var w wrong
	switch {
	case errors.As(err, &w):
		return "error: " + string(w)
	case !errors.As(err, &r):
		return "error: the server did not answer\n" + mark + quote(cut(err.Error(), 500))
	}
	out := "error: " + quote(cut(r.Reason, 60)) + "\n" + mark + quote(cut(r.Message, 1000))
	if len(r.Exists) > 0 {
		more := ""
		if n := len(r.Exists); n > 30 {
			r.Exists, more = r.Exists[:30], fmt.Sprintf(", and %d more", n-30)
		}
		out += "\n" + mark + "there are: " + quote(cut(strings.Join(r.Exists, ", "), 1500)) + more
	}
	if r.Retry != "" {
		out += "\nRetry after " + quote(r.Retry) + "s."
	}
	if text := advice[r.Reason]; text != "" {
		out += "\n" + text
	}
	return out
}

// resourceName is what can be a name of a resource. Routes that are no resources are not.
var resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

var notResources = []string{"clusters", "healthz", "livez", "readyz", "metrics", "mcp", "page", "api", "apis", "openapi", "version"}

// path is the path of a resource, or of all if that is "".
func (c *call) path(resource string) (string, error) {
	path := ""
	if cluster := c.cluster(); cluster != "" {
		if c.Only != nil && !slices.Contains(c.Only, cluster) {
			return "", &refusal{Reason: "UnknownCluster", Message: fmt.Sprintf("there is no cluster %q", cluster), Exists: c.Only}
		}
		if cluster == "." || cluster == ".." {
			return "", wrongf("cluster: %q is not the name of a cluster", cluster)
		}
		path = "/clusters/" + url.PathEscape(cluster)
	}
	if resource == "" {
		return path, nil
	}
	resource = strings.ToLower(resource)
	if !resourceName.MatchString(resource) || slices.Contains(notResources, resource) {
		return "", wrongf("resource: %s cannot be the name of a resource, such as pods, deploy or widgets.example.com", quote(cut(resource, 80)))
	}
	return path + "/" + resource, nil
}

// maxResponse is the size of an answer of the server that is read.
const maxResponse = 64 << 20

// do makes a request. The caller closes the body.
func (c *call) do(path string, values url.Values) (*http.Response, error) {
	u := *c.Base
	u.Path, u.RawPath = "", ""
	u.RawQuery = values.Encode()
	joined := strings.TrimSuffix(c.Base.EscapedPath(), "/") + path
	unescaped, err := url.PathUnescape(joined)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath = unescaped, joined
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	response, err := c.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	out := &refusal{Status: response.StatusCode, Retry: response.Header.Get("Retry-After")}
	content, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if json.Unmarshal(content, out) != nil || out.Reason == "" {
		out.Reason, out.Message = "Status", fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return nil, out
}

// fetch makes a request and decodes the answer.
func (c *call) fetch(path string, values url.Values, into any) (http.Header, error) {
	response, err := c.do(path, values)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, maxResponse)).Decode(into); err != nil {
		return nil, fmt.Errorf("read the answer about %s: %w", path, err)
	}
	return response.Header, nil
}

// values are the parameters of a request that have the names of arguments.
func (c *call) values(names ...string) url.Values {
	out := url.Values{}
	for _, name := range names {
		if v := c.texts[name]; v != "" {
			out.Set(name, v)
		}
	}
	return out
}
