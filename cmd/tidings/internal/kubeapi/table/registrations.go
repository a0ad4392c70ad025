package table

import (
	"cmp"
	"encoding/json"

	"github.com/tidwall/gjson"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const admission = "admissionregistration.k8s.io"

func registrations() []kind {
	webhooks := []column{name, integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration", size("webhooks")), age}
	paramKind := text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", func(o *object) any {
		if p := o.get("spec.paramKind"); is(p) {
			return p.Get("apiVersion").Str + "/" + p.Get("kind").Str
		}
		return "<unset>"
	})
	binding := []column{
		name,
		text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to", at("spec.policyName")),
		text("ParamRef", "ParamRef indicates the param resource which sets the configuration param", paramRef),
		age,
	}
	return []kind{
		{group: admission, kind: "MutatingWebhookConfiguration", columns: webhooks},
		{group: admission, kind: "ValidatingWebhookConfiguration", columns: webhooks},
		{group: admission, kind: "ValidatingAdmissionPolicy", columns: []column{
			name, integer("Validations", "Validations indicates the number of validation rules defined in this configuration", size("spec.validations")), paramKind, age,
		}},
		{group: admission, kind: "MutatingAdmissionPolicy", columns: []column{
			name, integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration", size("spec.mutations")), paramKind, age,
		}},
		{group: admission, kind: "ValidatingAdmissionPolicyBinding", columns: binding},
		{group: admission, kind: "MutatingAdmissionPolicyBinding", columns: binding},
		{group: "apiregistration.k8s.io", kind: "APIService", columns: []column{
			name,
			text("Service", "The reference to the service that hosts this API endpoint.", func(o *object) any {
				if s := o.get("spec.service"); is(s) {
					return s.Get("namespace").Str + "/" + s.Get("name").Str
				}
				return "Local"
			}),
			text("Available", "Whether this service is available.", func(o *object) any {
				available := condition(o.get("status.conditions"), "Available")
				if !available.Exists() {
					return "Unknown"
				}
				status := str(available.Get("status"))
				if reason := available.Get("reason").Str; status != "True" && reason != "" {
					status += " (" + reason + ")"
				}
				return status
			}),
			age,
		}},
		{group: "internal.apiserver.k8s.io", kind: "StorageVersion", columns: []column{
			name,
			text("CommonEncodingVersion", doc(apiserverinternalv1alpha1.StorageVersionStatus{}, "commonEncodingVersion"), at("status.commonEncodingVersion", "<unset>")),
			text("StorageVersions", doc(apiserverinternalv1alpha1.StorageVersionStatus{}, "storageVersions"), func(o *object) any {
				var out []string
				iterate(o.get("status.storageVersions"), func(_, v gjson.Result) bool {
					out = append(out, v.Get("apiServerID").Str+"="+v.Get("encodingVersion").Str)
					return true
				})
				return few(out, 3, ",", "<unset>")
			}),
			age,
		}},
		{group: "storagemigration.k8s.io", kind: "StorageVersionMigration", columns: []column{
			withFormat("", name),
			text("Resource", "GroupResource to migrate", func(o *object) any {
				r := metav1.GroupResource{Group: o.get("spec.resource.group").Str, Resource: o.get("spec.resource.resource").Str}
				return r.String()
			}),
			text("Status", "Status of the migration", func(o *object) any {
				status := "Unknown"
				iterate(o.get("status.conditions"), func(_, c gjson.Result) bool {
					switch kind := c.Get("type").Str; kind {
					case "Running", "Failed", "Succeeded":
						if c.Get("status").Str == "True" {
							status = kind
						}
					}
					return true
				})
				return status
			}),
		}},
	}
}

// paramRef returns the name or the selector of a policy's parameter.
func paramRef(o *object) any {
	ref := o.get("spec.paramRef")
	switch selector := ref.Get("selector"); {
	case ref.Get("name").Str != "":
		// Without a namespace it is unknown whether the parameter is namespaced.
		return cmp.Or(ref.Get("namespace").Str, "*") + "/" + ref.Get("name").Str
	case is(selector):
		s := &metav1.LabelSelector{}
		if err := json.Unmarshal([]byte(selector.Raw), s); err == nil {
			return s.String()
		}
	}
	return "<unset>"
}
