package read

import (
	"context"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A CustomResourceDefinition declares the selectable fields of its objects (KEP-4358).
// The definitions are mirrored like any other resource, from the first use of such a
// field on.

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definitionPatience is how long the first list of the definitions may take before
// the needed one is read from the API server.
const definitionPatience = 2 * time.Second

// Selectable reports whether a selector of the query can use a field. It makes the
// fields of a custom resource known to the query.
func (q *Query) Selectable(ctx context.Context, field string) bool {
	if q.fieldOf(field) != nil {
		return true
	}
	kind := q.resource.GVK().GroupKind()
	if _, builtIn := selectables[kind]; builtIn || !strings.Contains(q.resource.Group, ".") {
		return false
	}
	if q.custom == nil {
		q.custom = selectableFields(q.Definition(ctx), q.resource.Version)
	}
	return q.custom[field] != nil
}

// fieldOf returns the reader of a field, nil if the query cannot select by it.
func (q *Query) fieldOf(name string) selectable {
	if read := fieldOf(q.resource.GVK().GroupKind(), name); read != nil {
		return read
	}
	return q.custom[name]
}

// OwnFields reports whether a built-in kind has selectable fields other than its name
// and namespace.
func OwnFields(kind schema.GroupKind) bool {
	_, own := selectables[kind]
	return own
}

// Definition returns the JSON of the CustomResourceDefinition of the query's resource,
// nil if there is none or the mirror may not read it.
func (q *Query) Definition(ctx context.Context) []byte {
	c := q.params.Cluster
	r, err := c.Connection().ResourceFor(ctx, definitions)
	if err != nil {
		return nil
	}
	name := q.resource.GroupResource().String()
	patience, cancel := context.WithTimeout(ctx, definitionPatience)
	defer cancel()
	if inf, err := c.Ready(patience, r, ""); err == nil {
		if found, ok := inf.Engine().Get("", name); ok {
			return found.JSON()
		}
	}
	one := &Query{params: Params{Cluster: c, Resource: definitions, Verb: Get, Name: name}, resource: r}
	found, err := one.getLive(ctx)
	if err != nil {
		return nil
	}
	return found.JSON()
}

// selectableFields returns the selectable fields of one version of a definition.
func selectableFields(definition []byte, version string) map[string]selectable {
	out := map[string]selectable{}
	gjson.GetBytes(definition, "spec.versions").ForEach(func(_, v gjson.Result) bool {
		if v.Get("name").Str == version {
			v.Get("selectableFields.#.jsonPath").ForEach(func(_, path gjson.Result) bool {
				name := strings.TrimPrefix(path.Str, ".")
				parts := strings.Split(name, ".")
				for i := range parts {
					parts[i] = gjson.Escape(parts[i])
				}
				out[name] = field(strings.Join(parts, "."))
				return true
			})
		}
		return true
	})
	return out
}
