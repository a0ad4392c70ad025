package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
)

// one is an answer with one object, without what is withheld.
type one struct {
	Data            map[string]any `json:"data"`
	ResourceVersion string         `json:"resourceVersion"`
	Moment          *past.Moment   `json:"moment"`
}

// maxValue is the length at which a text in a whole object is cut in the middle, and
// maxLine that of a line in which the text of a named field is broken.
const (
	maxValue = 300
	maxLine  = 1000
)

// object reads the object of the call.
func (c *call) object(values url.Values) (*one, http.Header, error) {
	path, err := c.path(c.texts["resource"])
	if err != nil {
		return nil, nil, err
	}
	for name, v := range c.values("name", "namespace") {
		values[name] = v
	}
	out := new(one)
	header, err := c.fetch(path, values, out)
	withhold(out.Data)
	return out, header, err
}

// get shows one object.
func (c *call) get() (*answer, error) {
	values := url.Values{}
	if moment := c.texts["moment"]; moment != "" {
		values.Set("at", moment)
	}
	from, err := c.number("from", 0, 0, maxFrom)
	if err != nil {
		return nil, err
	}
	o, header, err := c.object(values)
	if err != nil {
		return nil, err
	}
	a := c.answer()
	a.say("%s. version %s", c.of(), quote(o.ResourceVersion))
	if o.Moment != nil {
		a.moment(o.Moment)
	} else {
		a.freshness(header)
	}
	if isSecret(o.Data) {
		a.say("The values of a Secret are never shown.")
	}
	var lines []string
	if fields := c.lists["fields"]; len(fields) > 0 {
		lines, err = project(o.Data, fields)
	} else {
		shortened := 0
		lines, err = yamlLines(shorten(o.Data, &shortened))
		if shortened > 0 {
			a.then("%s cut in the middle: name them with fields to get them whole.", plural(shortened, "long text is", "long texts are"))
		}
	}
	if err != nil {
		return nil, err
	}
	total := len(lines)
	for _, line := range lines[min(from, total):] {
		a.data(line)
	}
	if from > 0 {
		a.say("Lines from %d of %d.", from, total)
	}
	a.shorter = func(n int) string {
		return fmt.Sprintf("For the rest, from=%d, name fields (there are %s), or raise maxBytes.", from+n, quote(topFields(o.Data)))
	}
	return a, nil
}

// topFields lists the fields of an object, with their sizes.
func topFields(o map[string]any) string {
	var out []string
	for name, v := range o {
		if content, err := json.Marshal(v); err == nil && len(content) > 200 {
			out = append(out, fmt.Sprintf(".%s %d B", name, len(content)))
		}
	}
	slices.Sort(out)
	return cut(strings.Join(out, ", "), 300)
}

// project returns the lines of some fields of an object.
func project(o map[string]any, fields []string) (lines []string, err error) {
	content, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	for _, path := range fields {
		value, ok := livetable.Lookup(path, content)
		if !ok {
			return nil, wrongf(`fields: %s is not the path of a field, such as .spec.nodeName, .metadata.labels['app'], .spec.containers[*].image or .status.conditions[?(@.type=="Ready")].status`, quote(cut(path, 80)))
		}
		switch {
		case !value.Exists():
			lines = append(lines, path+": (there is no such field)")
		case value.IsObject() || value.IsArray():
			below, err := yamlLines(json.RawMessage(value.Raw))
			if err != nil {
				return nil, err
			}
			lines = append(lines, path+":")
			for _, line := range below {
				lines = append(lines, "  "+line)
			}
		default:
			lines = append(lines, broken(path+": "+value.String())...)
		}
	}
	return lines, nil
}

func yamlLines(v any) ([]string, error) {
	content, err := json.Marshal(v)
	if err == nil {
		content, err = yaml.JSONToYAML(content)
	}
	if err != nil {
		return nil, fmt.Errorf("write the object: %w", err)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(content), "\n"), "\n") {
		lines = append(lines, broken(line)...)
	}
	return lines, nil
}

// broken breaks a text into lines that are not too long.
func broken(text string) (lines []string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		for len(line) > maxLine {
			end := strings.LastIndexFunc(line[:maxLine], func(rune) bool { return true })
			lines, line = append(lines, line[:end]), line[end:]
		}
		lines = append(lines, line)
	}
	return lines
}

// shorten returns a value with its long texts cut, and counts these.
func shorten(v any, n *int) any {
	switch v := v.(type) {
	case string:
		if len(v) > maxValue {
			*n++
			return cut(v, maxValue)
		}
	case map[string]any:
		for key, one := range v {
			v[key] = shorten(one, n)
		}
	case []any:
		for i, one := range v {
			v[i] = shorten(one, n)
		}
	}
	return v
}
