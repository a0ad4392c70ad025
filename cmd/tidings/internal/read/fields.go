package read

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// selectable reads the value of a field that a selector can use.
type selectable func(*Object) string

func fieldName(o *Object) string      { return o.GetName() }
func fieldNamespace(o *Object) string { return o.GetNamespace() }

// field reads the first of the paths that has a value.
func field(paths ...string) selectable {
	return func(o *Object) string {
		for _, p := range paths {
			if v := gjson.GetBytes(o.JSON(), p); v.String() != "" {
				return v.String()
			}
		}
		return ""
	}
}

// or reads a field that is omitted if it has its default value.
func or(path, otherwise string) selectable {
	return func(o *Object) string {
		if v := gjson.GetBytes(o.JSON(), path); v.Exists() && v.Type != gjson.Null {
			return v.String()
		}
		return otherwise
	}
}

// selectables are the selectable fields of the built-in kinds beside metadata.name and
// metadata.namespace, as kube-apiserver defines them: the fields are in conversion.go
// of each API group, their values in ToSelectableFields of each strategy.go.
var selectables = map[schema.GroupKind]map[string]selectable{
	{Kind: "Pod"}: {
		"spec.nodeName":            field("spec.nodeName"),
		"spec.host":                field("spec.nodeName"), // used by very old clients
		"spec.restartPolicy":       field("spec.restartPolicy"),
		"spec.schedulerName":       field("spec.schedulerName"),
		"spec.serviceAccountName":  field("spec.serviceAccountName"),
		"spec.hostNetwork":         or("spec.hostNetwork", "false"),
		"status.phase":             field("status.phase"),
		"status.podIP":             field("status.podIPs.0.ip"),
		"status.podIPs":            field(), // kube-apiserver accepts it, and it has no value
		"status.nominatedNodeName": field("status.nominatedNodeName"),
	},
	{Kind: "Node"}:                  {"spec.unschedulable": or("spec.unschedulable", "false")},
	{Kind: "Namespace"}:             {"status.phase": field("status.phase")},
	{Kind: "Secret"}:                {"type": field("type")},
	{Kind: "Service"}:               {"spec.clusterIP": field("spec.clusterIP"), "spec.type": field("spec.type")},
	{Kind: "ReplicationController"}: {"status.replicas": or("status.replicas", "0")},
	{Kind: "Event"}: {
		"involvedObject.kind":            field("involvedObject.kind"),
		"involvedObject.namespace":       field("involvedObject.namespace"),
		"involvedObject.name":            field("involvedObject.name"),
		"involvedObject.uid":             field("involvedObject.uid"),
		"involvedObject.apiVersion":      field("involvedObject.apiVersion"),
		"involvedObject.resourceVersion": field("involvedObject.resourceVersion"),
		"involvedObject.fieldPath":       field("involvedObject.fieldPath"),
		"reason":                         field("reason"),
		"reportingComponent":             field("reportingComponent"),
		"source":                         field("source.component", "reportingComponent"),
		"type":                           field("type"),
	},
	{Group: "events.k8s.io", Kind: "Event"}: {
		"regarding.kind":            field("regarding.kind"),
		"regarding.namespace":       field("regarding.namespace"),
		"regarding.name":            field("regarding.name"),
		"regarding.uid":             field("regarding.uid"),
		"regarding.apiVersion":      field("regarding.apiVersion"),
		"regarding.resourceVersion": field("regarding.resourceVersion"),
		"regarding.fieldPath":       field("regarding.fieldPath"),
		"reason":                    field("reason"),
		"reportingController":       field("reportingController"),
		"type":                      field("type"),
	},
	{Group: "batch", Kind: "Job"}: {"status.successful": or("status.succeeded", "0")},

	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {"spec.signerName": field("spec.signerName")},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        {"spec.signerName": field("spec.signerName")},
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}: {
		"spec.signerName": field("spec.signerName"),
		"spec.podName":    field("spec.podName"),
		"spec.nodeName":   field("spec.nodeName"),
	},
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}: {
		"spec.nodeName": field("spec.nodeName"),
		"spec.driver":   field("spec.driver"),
	},
}

// withoutNamespace are the kinds that do not accept metadata.namespace in a field
// selector. Other kinds that are not namespaced accept it.
var withoutNamespace = map[schema.GroupKind]bool{
	{Kind: "Node"}:      true,
	{Kind: "Namespace"}: true,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: true,
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        true,
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:     true,
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                 true,
}

// fieldOf returns the reader of a field of a kind, nil if selectors cannot use it.
func fieldOf(kind schema.GroupKind, name string) selectable {
	switch {
	case name == "metadata.name":
		return fieldName
	case name == "metadata.namespace" && !withoutNamespace[kind]:
		return fieldNamespace
	}
	return selectables[kind][name]
}

// FieldNames lists the selectable fields of a built-in resource.
func FieldNames(r cluster.Resource) []string {
	kind := r.GVK().GroupKind()
	names := []string{"metadata.name"}
	if !withoutNamespace[kind] {
		names = append(names, "metadata.namespace")
	}
	for name := range selectables[kind] {
		if name != "spec.host" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// checkFields returns an error if the field selector uses a field that is not
// selectable.
func (q *Query) checkFields(ctx context.Context) error {
	if q.params.Fields == nil {
		return nil
	}
	for _, req := range q.params.Fields.Requirements() {
		if !q.Selectable(ctx, req.Field) {
			names := slices.Sorted(maps.Keys(q.custom))
			names = append(names, FieldNames(q.resource)...)
			return &mirror.Error{Reason: mirror.Invalid, Exists: names, Message: fmt.Sprintf("%s cannot be selected by the field %.80q; the fields are: %s", q.resource, req.Field, strings.Join(names, ", "))}
		}
	}
	return nil
}

// attributes implements [fields.Fields] for an object.
type attributes struct {
	query *Query
	*Object
	cache *selectorCache // if not nil, shared by the selectors of all watches
	seen  *fieldValues   // else the values that this selector has read
}

// fieldValues are the field values of one object. With them a selector of thousands of
// terms expands and parses the object once for each field, not once for each term.
type fieldValues struct {
	object *Object
	read   []fieldValue
}

type fieldValue struct{ name, value string }

func (v *fieldValues) get(o *Object, name string, read selectable) string {
	if v.object != o {
		v.object, v.read = o, v.read[:0]
	}
	for _, f := range v.read {
		if f.name == name {
			return f.value
		}
	}
	value := read(o)
	v.read = append(v.read, fieldValue{name, value})
	return value
}

// Has implements [fields.Fields].
func (o attributes) Has(name string) bool { return o.query.fieldOf(name) != nil }

// Get implements [fields.Fields].
func (o attributes) Get(name string) string {
	read := o.query.fieldOf(name)
	switch {
	case read == nil:
		return ""
	case o.cache != nil:
		return o.cache.field(o.Object, name, read)
	}
	return o.seen.get(o.Object, name, read)
}
