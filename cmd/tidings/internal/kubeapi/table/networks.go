package table

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

const networking = "networking.k8s.io"

func networks() []kind {
	return []kind{
		{group: networking, kind: "Ingress", columns: []column{
			name,
			text("Class", "The name of the IngressClass resource that should be used for additional configuration", at("spec.ingressClassName", "<none>")),
			text("Hosts", "Hosts that incoming requests are matched against before the ingress rule", hosts),
			text("Address", "Address is a list containing ingress points for the load-balancer", func(o *object) any { return strings.Join(balancers(o), ",") }),
			text("Ports", "Ports of TLS configurations that open", func(o *object) any {
				if size("spec.tls")(o) != int64(0) {
					return "80, 443"
				}
				return "80"
			}),
			age,
		}},
		{group: networking, kind: "IngressClass", columns: []column{
			nameOrDefault(networkingv1.AnnotationIsDefaultIngressClass),
			text("Controller", "Controller that is responsible for handling this class", at("spec.controller")),
			text("Parameters", "A reference to a resource with additional parameters", func(o *object) any {
				p := o.get("spec.parameters")
				if !is(p) {
					return "<none>"
				}
				kind := p.Get("kind").Str
				if group := p.Get("apiGroup"); is(group) {
					kind += "." + group.Str
				}
				return kind + "/" + p.Get("name").Str
			}),
			age,
		}},
		{group: networking, kind: "NetworkPolicy", columns: []column{
			name,
			text("Pod-Selector", doc(networkingv1.NetworkPolicySpec{}, "podSelector"), selector("spec.podSelector")),
			age,
		}},
		{group: networking, kind: "ServiceCIDR", columns: []column{
			name,
			text("CIDRs", doc(networkingv1.ServiceCIDRSpec{}, "cidrs"), func(o *object) any { return strings.Join(texts(o.get("spec.cidrs")), ",") }),
			age,
		}},
		{group: networking, kind: "IPAddress", columns: []column{
			name,
			text("ParentRef", doc(networkingv1.IPAddressSpec{}, "parentRef"), func(o *object) any {
				ref := o.get("spec.parentRef")
				if !is(ref) {
					return "<none>"
				}
				parent := ref.Get("resource").Str
				if group := ref.Get("group").Str; group != "" {
					parent += "." + group
				}
				parent = strings.ToLower(parent)
				if namespace := ref.Get("namespace").Str; namespace != "" {
					parent += "/" + namespace
				}
				return parent + "/" + ref.Get("name").Str
			}),
			{cell: age.cell}, // upstream has a cell for the age without a column
		}},
		{group: "discovery.k8s.io", kind: "EndpointSlice", columns: []column{
			name,
			text("AddressType", doc(discoveryv1.EndpointSlice{}, "addressType"), at("addressType")),
			text("Ports", doc(discoveryv1.EndpointSlice{}, "ports"), func(o *object) any {
				var out []string
				iterate(o.get("ports"), func(_, p gjson.Result) bool {
					out = append(out, or(p.Get("port"), or(p.Get("name"), "*")))
					return true
				})
				return few(out, 3, ",", "<unset>")
			}),
			text("Endpoints", doc(discoveryv1.EndpointSlice{}, "endpoints"), func(o *object) any {
				var out []string
				iterate(o.get("endpoints"), func(_, e gjson.Result) bool { out = append(out, texts(e.Get("addresses"))...); return true })
				return few(out, 3, ",", "<unset>")
			}),
			age,
		}},
	}
}

// hosts lists the first three hosts. The number of the others counts rules, even those
// without a host.
func hosts(o *object) any {
	rules := each(o.get("spec.rules"), "host")
	var out []string
	for _, host := range rules {
		if len(out) == 3 {
			return fmt.Sprintf("%s + %d more...", strings.Join(out, ","), len(rules)-3)
		}
		if host != "" {
			out = append(out, host)
		}
	}
	return cmp.Or(strings.Join(out, ","), "*")
}
