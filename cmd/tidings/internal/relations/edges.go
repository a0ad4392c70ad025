package relations

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// relation is an edge that is not one of ownership: how objects of one kind name or
// select others.
type relation struct {
	from string // the kind, as Kind.group
	name string
	to   string // the kinds it may lead to, separated by spaces; "" for any kind
	find func(o Object, to func(target))
}

// target is what an object names or selects.
type target struct {
	kind      string               // as Kind.group
	namespace string               // "" for a kind that is not namespaced
	name      string               // "" with labels
	uid       string               // if the object says it
	labels    labels.Selector      // selects objects of the namespace
	field     string               // that says so
	having    func(Object) bool    // of those that labels select; nil for all
	optional  bool                 // the object need not exist
	found     func(*around, *Node) // is called with the object if the caller may see it
}

// Kinds that are no objects of a cluster.
const (
	image = "Image"
	user  = "User"
	group = "Group"
)

const gatewayAPI = ".gateway.networking.k8s.io"

// relationTable has all edges that are known. One edge leads from an object to those that
// it names; a walk also follows them back.
var relationTable = []relation{
	{"Service", "selects", "Pod", func(o Object, to func(target)) {
		if selector := texts(o.get("spec.selector")); len(selector) > 0 {
			to(target{kind: "Pod", namespace: o.Namespace, labels: labels.SelectorFromSet(selector), field: "spec.selector"})
		}
	}},
	{"EndpointSlice.discovery.k8s.io", "is of", "Service", func(o Object, to func(target)) {
		to(target{kind: "Service", namespace: o.Namespace, name: o.labels()["kubernetes.io/service-name"], field: "metadata.labels"})
	}},
	{"EndpointSlice.discovery.k8s.io", "leads to", "Pod", func(o Object, to func(target)) {
		each(o.get("endpoints"), "targetRef", func(ref gjson.Result) {
			if ref.Get("kind").Str == "Pod" {
				to(target{kind: "Pod", namespace: o.Namespace, name: ref.Get("name").Str, uid: ref.Get("uid").Str, field: "endpoints[].targetRef"})
			}
		})
	}},
	{"Ingress.networking.k8s.io", "routes to", "Service", func(o Object, to func(target)) {
		name := func(field string) func(gjson.Result) {
			return func(name gjson.Result) {
				to(target{kind: "Service", namespace: o.Namespace, name: name.Str, field: field})
			}
		}
		name("spec.defaultBackend")(o.get("spec.defaultBackend.service.name"))
		each(o.get("spec.rules"), "http.paths", func(paths gjson.Result) {
			each(paths, "backend.service.name", name("spec.rules[].http.paths[].backend"))
		})
	}},
	{"Ingress.networking.k8s.io", "has the certificate", "Secret", func(o Object, to func(target)) {
		each(o.get("spec.tls"), "secretName", named(o, "Secret", "spec.tls[].secretName", to))
	}},
	{"Ingress.networking.k8s.io", "is of the class", "IngressClass.networking.k8s.io", clusterWide("IngressClass.networking.k8s.io", "spec.ingressClassName")},
	{"HTTPRoute" + gatewayAPI, "routes to", "Service", routed},
	{"GRPCRoute" + gatewayAPI, "routes to", "Service", routed},
	{"TLSRoute" + gatewayAPI, "routes to", "Service", routed},
	{"TCPRoute" + gatewayAPI, "routes to", "Service", routed},
	{"UDPRoute" + gatewayAPI, "routes to", "Service", routed},
	{"HTTPRoute" + gatewayAPI, "is part of", "Gateway" + gatewayAPI, attached},
	{"GRPCRoute" + gatewayAPI, "is part of", "Gateway" + gatewayAPI, attached},
	{"TLSRoute" + gatewayAPI, "is part of", "Gateway" + gatewayAPI, attached},
	{"TCPRoute" + gatewayAPI, "is part of", "Gateway" + gatewayAPI, attached},
	{"UDPRoute" + gatewayAPI, "is part of", "Gateway" + gatewayAPI, attached},
	{"Gateway" + gatewayAPI, "has the certificate", "Secret", func(o Object, to func(target)) {
		each(o.get("spec.listeners"), "tls.certificateRefs", func(refs gjson.Result) {
			reference(o, refs, "Secret", "spec.listeners[].tls.certificateRefs", to)
		})
	}},
	{"Gateway" + gatewayAPI, "is of the class", "GatewayClass" + gatewayAPI, clusterWide("GatewayClass"+gatewayAPI, "spec.gatewayClassName")},
	{"Pod", "uses", "ConfigMap Secret", podSources},
	{"Pod", "mounts", "PersistentVolumeClaim", func(o Object, to func(target)) {
		each(o.get("spec.volumes"), "persistentVolumeClaim.claimName", named(o, "PersistentVolumeClaim", "spec.volumes[].persistentVolumeClaim", to))
	}},
	{"Pod", "runs as", "ServiceAccount", func(o Object, to func(target)) {
		to(target{kind: "ServiceAccount", namespace: o.Namespace, name: o.str("spec.serviceAccountName"), field: "spec.serviceAccountName"})
	}},
	{"Pod", "runs on", "Node", clusterWide("Node", "spec.nodeName")},
	{"Pod", "is kept off", "Node", taintedNodes},
	{"Pod", "was refused as", "ServiceAccount", refusalsOfPod},
	{"Pod", "runs", image, func(o Object, to func(target)) {
		for _, list := range containerLists {
			each(o.get("spec."+list), "image", func(name gjson.Result) { to(target{kind: image, name: name.Str, field: "spec." + list + "[].image"}) })
		}
	}},
	{"ServiceAccount", "has", "Secret", func(o Object, to func(target)) {
		each(o.get("imagePullSecrets"), "name", named(o, "Secret", "imagePullSecrets", to))
		each(o.get("secrets"), "name", named(o, "Secret", "secrets", to))
	}},
	{"PersistentVolumeClaim", "is bound to", "PersistentVolume", clusterWide("PersistentVolume", "spec.volumeName")},
	{"PersistentVolumeClaim", "is of the class", "StorageClass.storage.k8s.io", clusterWide("StorageClass.storage.k8s.io", "spec.storageClassName")},
	{"PersistentVolume", "is of the class", "StorageClass.storage.k8s.io", clusterWide("StorageClass.storage.k8s.io", "spec.storageClassName")},
	{"HorizontalPodAutoscaler.autoscaling", "scales", "", func(o Object, to func(target)) {
		ref := o.get("spec.scaleTargetRef")
		to(target{kind: kindName(ref.Get("apiVersion").Str, ref.Get("kind").Str), namespace: o.Namespace, name: ref.Get("name").Str, field: "spec.scaleTargetRef"})
	}},
	{"NetworkPolicy.networking.k8s.io", "is for", "Pod", podsBy("spec.podSelector")},
	{"PodDisruptionBudget.policy", "is for", "Pod", podsBy("spec.selector")},
	{"RoleBinding.rbac.authorization.k8s.io", "grants", "Role.rbac.authorization.k8s.io ClusterRole.rbac.authorization.k8s.io", role},
	{"ClusterRoleBinding.rbac.authorization.k8s.io", "grants", "ClusterRole.rbac.authorization.k8s.io", role},
	{"RoleBinding.rbac.authorization.k8s.io", "is for", "ServiceAccount " + user + " " + group, subjects},
	{"ClusterRoleBinding.rbac.authorization.k8s.io", "is for", "ServiceAccount " + user + " " + group, subjects},
	{"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "calls", "Service", webhooks},
	{"MutatingWebhookConfiguration.admissionregistration.k8s.io", "calls", "Service", webhooks},
	{"CustomResourceDefinition.apiextensions.k8s.io", "calls", "Service", service("spec.conversion.webhook.clientConfig.service")},
	{"APIService.apiregistration.k8s.io", "calls", "Service", service("spec.service")},
	{"Deployment.apps", "is refused by", "ResourceQuota", quotaOfSet},
	{"ReplicaSet.apps", "is refused by", "ResourceQuota", quotaOfSet},
	{"ReplicationController", "is refused by", "ResourceQuota", quotaOfSet},
	{"Event", "is about", "", about("involvedObject")},
	{"Event", "tells of", "ResourceQuota ServiceAccount", refusalsOfEvent},
}

// targets yields what an object names or selects, by the relations for its kind.
func (o Object) targets(yield func(relation, target)) {
	kind := kindName(o.APIVersion, o.Kind)
	for _, r := range relationTable {
		if r.from == kind {
			r.find(o, func(t target) {
				if t.name != "" || t.labels != nil || t.uid != "" {
					yield(r, t)
				}
			})
		}
	}
}

// kindName returns Kind.group.
func kindName(apiVersion, kind string) string {
	if of, _, grouped := strings.Cut(apiVersion, "/"); grouped {
		return kind + "." + of
	}
	return kind
}

// each calls visit with a field of each element of a list, if it is there.
func each(list gjson.Result, path string, visit func(gjson.Result)) {
	list.ForEach(func(_, element gjson.Result) bool {
		if v := element.Get(path); v.Exists() {
			visit(v)
		}
		return true
	})
}

// eachMember calls visit with each member of each element of a list of objects.
func eachMember(list gjson.Result, visit func(name string, value gjson.Result)) {
	list.ForEach(func(_, element gjson.Result) bool {
		if element.IsObject() {
			element.ForEach(func(name, value gjson.Result) bool {
				visit(name.Str, value)
				return true
			})
		}
		return true
	})
}

// texts returns an object of strings.
func texts(of gjson.Result) map[string]string {
	out := map[string]string{}
	of.ForEach(func(key, value gjson.Result) bool {
		out[key.Str] = value.Str
		return true
	})
	return out
}

// named leads to an object of the same namespace.
func named(o Object, kind, field string, to func(target)) func(gjson.Result) {
	return func(name gjson.Result) {
		to(target{kind: kind, namespace: o.Namespace, name: name.Str, field: field})
	}
}

// clusterWide leads to the object that a field names.
func clusterWide(kind, field string) func(Object, func(target)) {
	return func(o Object, to func(target)) { to(target{kind: kind, name: o.str(field), field: field}) }
}

// reference leads to the objects of references of the Gateway API.
func reference(o Object, refs gjson.Result, fallback, field string, to func(target)) {
	refs.ForEach(func(_, ref gjson.Result) bool {
		kind := fallback
		if k := ref.Get("kind").Str; k != "" {
			kind, _, _ = strings.Cut(fallback, ".")
			if kind = strings.TrimSuffix(k+strings.TrimPrefix(fallback, kind), "."); ref.Get("group").Exists() {
				kind = strings.TrimSuffix(k+"."+ref.Get("group").Str, ".")
			}
		}
		namespace := o.Namespace
		if n := ref.Get("namespace").Str; n != "" {
			namespace = n
		}
		to(target{kind: kind, namespace: namespace, name: ref.Get("name").Str, field: field})
		return true
	})
}

func routed(o Object, to func(target)) {
	each(o.get("spec.rules"), "backendRefs", func(refs gjson.Result) { reference(o, refs, "Service", "spec.rules[].backendRefs", to) })
}

func attached(o Object, to func(target)) {
	reference(o, o.get("spec.parentRefs"), "Gateway"+gatewayAPI, "spec.parentRefs", to)
}

var containerLists = []string{"initContainers", "containers", "ephemeralContainers"}

// podSources leads to the ConfigMaps and Secrets that a pod mounts or reads.
func podSources(o Object, to func(target)) {
	add := func(kind, field, key string, source gjson.Result) {
		to(target{kind: kind, namespace: o.Namespace, name: source.Get(key).Str, field: field, optional: source.Get("optional").Bool()})
	}
	eachMember(o.get("spec.volumes"), func(name string, v gjson.Result) {
		switch name {
		case "configMap":
			add("ConfigMap", "spec.volumes[].configMap", "name", v)
		case "secret":
			add("Secret", "spec.volumes[].secret", "secretName", v)
		case "projected":
			eachMember(v.Get("sources"), func(name string, v gjson.Result) {
				switch name {
				case "configMap":
					add("ConfigMap", "spec.volumes[].projected.sources[].configMap", "name", v)
				case "secret":
					add("Secret", "spec.volumes[].projected.sources[].secret", "name", v)
				}
			})
		}
	})
	for _, list := range containerLists {
		in := "spec." + list
		eachMember(o.get(in), func(name string, v gjson.Result) {
			switch name {
			case "envFrom":
				eachMember(v, func(name string, v gjson.Result) {
					switch name {
					case "configMapRef":
						add("ConfigMap", in+"[].envFrom[].configMapRef", "name", v)
					case "secretRef":
						add("Secret", in+"[].envFrom[].secretRef", "name", v)
					}
				})
			case "env":
				each(v, "valueFrom", func(v gjson.Result) {
					if key := v.Get("configMapKeyRef"); key.Exists() {
						add("ConfigMap", in+"[].env[].valueFrom.configMapKeyRef", "name", key)
					}
					if key := v.Get("secretKeyRef"); key.Exists() {
						add("Secret", in+"[].env[].valueFrom.secretKeyRef", "name", key)
					}
				})
			}
		})
	}
	each(o.get("spec.imagePullSecrets"), "name", func(name gjson.Result) {
		to(target{kind: "Secret", namespace: o.Namespace, name: name.Str, field: "spec.imagePullSecrets", optional: true})
	})
}

// taintedNodes leads a pod that no node is good enough for to those that Kubernetes keeps
// pods off, because they are full or not ready.
func taintedNodes(o Object, to func(target)) {
	c := condition(o.get("status.conditions"), "PodScheduled")
	if c.Get("status").Str != "False" || !strings.Contains(c.Get("message").Str, "taint") {
		return
	}
	to(target{
		kind: "Node", labels: labels.SelectorFromSet(texts(o.get("spec.nodeSelector"))), field: "status.conditions[PodScheduled].message",
		having: func(node Object) (tainted bool) {
			node.get("spec.taints").ForEach(func(_, t gjson.Result) bool {
				tainted = strings.HasPrefix(t.Get("key").Str, "node.kubernetes.io/") && t.Get("effect").Str != "PreferNoSchedule"
				return !tainted
			})
			return tainted
		},
	})
}

// podsBy leads to the pods that a label selector selects.
func podsBy(field string) func(Object, func(target)) {
	return func(o Object, to func(target)) {
		given := o.get(field)
		if !given.IsObject() {
			return
		}
		var parsed metav1.LabelSelector
		if json.Unmarshal([]byte(given.Raw), &parsed) != nil {
			return
		}
		if selector, err := metav1.LabelSelectorAsSelector(&parsed); err == nil {
			to(target{kind: "Pod", namespace: o.Namespace, labels: selector, field: field})
		}
	}
}

const rbac = ".rbac.authorization.k8s.io"

func role(o Object, to func(target)) {
	t := target{kind: o.str("roleRef.kind") + rbac, name: o.str("roleRef.name"), field: "roleRef"}
	if t.kind == "Role"+rbac {
		t.namespace = o.Namespace
	}
	to(t)
}

func subjects(o Object, to func(target)) {
	o.get("subjects").ForEach(func(_, s gjson.Result) bool {
		t := target{kind: s.Get("kind").Str, name: s.Get("name").Str, field: "subjects"}
		if t.kind == "ServiceAccount" {
			t.namespace = s.Get("namespace").Str
		}
		to(t)
		return true
	})
}

func service(field string) func(Object, func(target)) {
	return func(o Object, to func(target)) {
		s := o.get(field)
		to(target{kind: "Service", namespace: s.Get("namespace").Str, name: s.Get("name").Str, field: field})
	}
}

func webhooks(o Object, to func(target)) {
	each(o.get("webhooks"), "clientConfig.service", func(s gjson.Result) {
		to(target{kind: "Service", namespace: s.Get("namespace").Str, name: s.Get("name").Str, field: "webhooks[].clientConfig.service"})
	})
}

func about(field string) func(Object, func(target)) {
	return func(o Object, to func(target)) {
		ref := o.get(field)
		to(target{
			kind:      kindName(ref.Get("apiVersion").Str, ref.Get("kind").Str),
			namespace: ref.Get("namespace").Str, name: ref.Get("name").Str, uid: ref.Get("uid").Str, field: field, optional: true,
		})
	}
}
