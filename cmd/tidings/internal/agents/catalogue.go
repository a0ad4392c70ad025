package agents

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// argument is an argument of tools.
type argument struct {
	kind string // string, integer, boolean, list
	text string
}

// arguments are those of all tools. They mean the same everywhere.
var arguments = map[string]argument{
	"cluster":       {"string", "name of the cluster; default: the default one"},
	"resource":      {"string", "any name kubectl takes: pods, deploy, widgets.example.com"},
	"namespace":     {"string", "default: all that you may read"},
	"name":          {"string", "of one object"},
	"labelSelector": {"string", "as in kubectl -l"},
	"fieldSelector": {"string", "as in kubectl --field-selector"},
	"filter":        {"string", "words; each must be in a shown cell, or in none after !"},
	"columns":       {"list", `columns, and paths of fields such as .spec.nodeName, .spec.containers[*].image, .status.conditions[?(@.type=="Ready")].status; "*": all`},
	"sort":          {"string", "a column or path; -Age: descending"},
	"by":            {"list", "1 to 3 columns or paths"},
	"fields":        {"list", "paths as in columns; default: the whole object"},
	"from":          {"integer", "first row or line, from 0"},
	"limit":         {"integer", "rows, 1 to 500; default 50"},
	"maxBytes":      {"integer", "size of the answer, 1024 to 65536; default 8192"},
	"since":         {"string", "version of an earlier answer, a time, or -15m (times need a history)"},
	"until":         {"string", "a time or -5m; default: now"},
	"moment":        {"string", "a time, -15m, or a version"},
	"neighbours":    {"boolean", "add what these objects name or select, and what names or selects them"},
	"for":           {"string", `"condition=Ready", "condition=Ready=False", ".status.phase=Running" (or !=), "change", "create" or "delete"`},
	"seconds":       {"integer", "deadline, 1 to 50; default 30"},
}

// tool is one of the tools.
type tool struct {
	name, text string
	required   []string
	optional   []string
	call       func(*call) (*answer, error)
}

// tools is the catalogue.
var tools []tool

func init() { // the calls refer to the catalogue
	tools = []tool{
		{"clusters", "Lists the clusters with their health; of one cluster, the resources that can be read.",
			nil, []string{"cluster", "filter", "maxBytes"}, (*call).clusters},
		{"find", "Lists objects as a table: kubectl's columns or your own, filtered and sorted by the server.",
			[]string{"resource"}, []string{"cluster", "namespace", "labelSelector", "fieldSelector", "filter", "columns", "sort", "from", "limit", "maxBytes"}, (*call).find},
		{"count", "Counts objects, grouped by the values of columns or fields. Use it before listing many.",
			[]string{"resource"}, []string{"cluster", "namespace", "labelSelector", "fieldSelector", "filter", "by", "maxBytes"}, (*call).count},
		{"get", "Shows one object, whole or some fields.",
			[]string{"resource", "name"}, []string{"cluster", "namespace", "fields", "from", "maxBytes"}, (*call).get},
		{"changes", "What has changed since a version or time, field by field, one entry per object, newest first. Give the version of your last answer to see what is new.",
			[]string{"resource", "since"}, []string{"cluster", "namespace", "name", "labelSelector", "fieldSelector", "until", "from", "maxBytes"}, (*call).changes},
		{"at", "find, or get with a name, of a moment in the past; needs a server with a history.",
			[]string{"resource", "moment"}, []string{"cluster", "namespace", "name", "fields", "labelSelector", "fieldSelector", "filter", "columns", "sort", "from", "limit", "maxBytes"}, (*call).at},
		{"tree", "Owners of an object, what it owns, what is wrong with each, and the likely cause.",
			[]string{"resource", "name"}, []string{"cluster", "namespace", "neighbours", "moment", "maxBytes"}, (*call).tree},
		{"wait", "Waits until a condition of one object holds, or the deadline.",
			[]string{"resource", "name", "for"}, []string{"cluster", "namespace", "fields", "seconds", "maxBytes"}, (*call).wait},
	}
}

// overrides are descriptions that differ from tool to tool.
var overrides = map[[2]string]string{
	{"clusters", "cluster"}:  "list the resources of this one",
	{"clusters", "filter"}:   "part of a resource's name",
	{"changes", "resource"}:  "one or, separated by commas, up to 8 resources",
	{"changes", "namespace"}: "one, or several separated by commas; default: all",
	{"wait", "fields"}:       "paths to show of the object",
}

// takes are the arguments of the tool.
func (t tool) takes() []string { return slices.Concat(t.required, t.optional) }

// schema is the JSON schema of the arguments.
func (t tool) schema() json.RawMessage {
	type property struct {
		Type        string            `json:"type"`
		Items       map[string]string `json:"items,omitempty"`
		Description string            `json:"description"`
	}
	properties := map[string]property{}
	for _, name := range t.takes() {
		a := arguments[name]
		p := property{Type: a.kind, Description: a.text}
		if a.kind == "list" {
			p.Type, p.Items = "array", map[string]string{"type": "string"}
		}
		if text := overrides[[2]string{t.name, name}]; text != "" {
			p.Description = text
		}
		properties[name] = p
	}
	out, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": append([]string{}, t.required...), "additionalProperties": false})
	if err != nil {
		panic(err) // cannot happen: all of it is JSON
	}
	return out
}

// described are the tools as they are listed. They are the same for all callers.
var described = sync.OnceValue(func() []*mcp.Tool {
	no := false
	var out []*mcp.Tool
	for _, t := range tools {
		out = append(out, &mcp.Tool{Name: t.name, Description: t.text, InputSchema: t.schema(), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}})
	}
	return out
})

// instructions are for the client's model.
const instructions = `Reads Kubernetes clusters from a live mirror; nothing can be changed. Begin with tree of an object that does not work (it names the likely cause), or count and find to get an overview. ` +
	`Each answer has a version: changes since=VERSION tells what is new after it. Answers are cut at maxBytes and say how to get the rest. ` + notice
