package table

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
)

func coreKinds() []kind {
	return []kind{
		{group: "", kind: "Service", columns: []column{
			name,
			text("Type", doc(corev1.ServiceSpec{}, "type"), at("spec.type")),
			text("Cluster-IP", doc(corev1.ServiceSpec{}, "clusterIP"), func(o *object) any {
				return or(o.get("spec.clusterIPs.0"), cmp.Or(str(o.get("spec.clusterIP")), "<none>"))
			}),
			text("External-IP", doc(corev1.ServiceSpec{}, "externalIPs"), externalIP),
			text("Port(s)", doc(corev1.ServiceSpec{}, "ports"), servicePorts),
			age,
			wide(text("Selector", doc(corev1.ServiceSpec{}, "selector"), pairs("spec.selector"))),
		}},
		{group: "", kind: "Endpoints", columns: []column{
			//lint:ignore SA1019 It is deprecated, but API servers serve it.
			name, text("Endpoints", doc(corev1.Endpoints{}, "subsets"), endpoints), age,
		}},
		{group: "", kind: "Node", columns: []column{
			name,
			text("Status", "The status of the node", nodeStatus),
			text("Roles", "The roles of the node", nodeRoles),
			age,
			text("Version", doc(corev1.NodeSystemInfo{}, "kubeletVersion"), at("status.nodeInfo.kubeletVersion")),
			wide(text("Internal-IP", doc(corev1.NodeStatus{}, "addresses"), nodeAddress(corev1.NodeInternalIP))),
			wide(text("External-IP", doc(corev1.NodeStatus{}, "addresses"), nodeAddress(corev1.NodeExternalIP))),
			wide(text("OS-Image", doc(corev1.NodeSystemInfo{}, "osImage"), orIfEmpty("status.nodeInfo.osImage", "<unknown>"))),
			wide(text("Kernel-Version", doc(corev1.NodeSystemInfo{}, "kernelVersion"), func(o *object) any {
				kernel := cmp.Or(str(o.get("status.nodeInfo.kernelVersion")), "<unknown>")
				if arch := o.get("status.nodeInfo.architecture").Str; arch != "" {
					kernel += " (" + arch + ")"
				}
				return kernel
			})),
			wide(text("Container-Runtime", doc(corev1.NodeSystemInfo{}, "containerRuntimeVersion"), orIfEmpty("status.nodeInfo.containerRuntimeVersion", "<unknown>"))),
		}},
		{group: "", kind: "Namespace", columns: []column{name, text("Status", "The status of the namespace", at("status.phase")), age}},
		{group: "", kind: "ConfigMap", columns: []column{name, text("Data", doc(corev1.ConfigMap{}, "data"), size("data", "binaryData")), age}},
		{group: "", kind: "Secret", columns: []column{
			name, text("Type", doc(corev1.Secret{}, "type"), at("type")), text("Data", doc(corev1.Secret{}, "data"), size("data")), age,
		}},
		{group: "", kind: "ServiceAccount", columns: []column{name, age}},
		{group: "", kind: "ComponentStatus", columns: []column{
			name,
			text("Status", "Status of the component conditions", func(o *object) any {
				switch healthy := condition(o.get("conditions"), "Healthy"); {
				case !healthy.Exists():
					return "Unknown"
				case healthy.Get("status").Str == "True":
					return "Healthy"
				}
				return "Unhealthy"
			}),
			text("Message", "Message of the component conditions", func(o *object) any { return str(condition(o.get("conditions"), "Healthy").Get("message")) }),
			text("Error", "Error of the component conditions", func(o *object) any { return str(condition(o.get("conditions"), "Healthy").Get("error")) }),
		}},
		{group: "", kind: "ResourceQuota", columns: []column{
			name,
			text("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", quota(false)),
			text("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", quota(true)),
			age,
		}},
		{group: "", kind: "Event", columns: eventColumns("firstTimestamp", "lastTimestamp", "count", "involvedObject", "source", "reportingComponent", "message")},
		{group: "events.k8s.io", kind: "Event", columns: eventColumns("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "regarding", "deprecatedSource", "reportingController", "note")},
	}
}

func externalIP(o *object) any {
	external, none := texts(o.get("spec.externalIPs")), "<none>"
	switch corev1.ServiceType(o.get("spec.type").Str) {
	case corev1.ServiceTypeExternalName:
		return str(o.get("spec.externalName"))
	case corev1.ServiceTypeLoadBalancer:
		external, none = append(balancers(o), external...), "<pending>"
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
	default:
		return "<unknown>"
	}
	if len(external) == 0 {
		return none
	}
	return strings.Join(external, ",")
}

// balancers returns the distinct addresses or names of load balancers.
func balancers(o *object) []string {
	var out []string
	iterate(o.get("status.loadBalancer.ingress"), func(_, in gjson.Result) bool {
		if address := cmp.Or(str(in.Get("ip")), str(in.Get("hostname"))); address != "" {
			out = append(out, address)
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func servicePorts(o *object) any {
	var out []string
	iterate(o.get("spec.ports"), func(_, p gjson.Result) bool {
		port := fmt.Sprint(p.Get("port").Int())
		if node := p.Get("nodePort").Int(); node > 0 {
			port += fmt.Sprintf(":%d", node)
		}
		out = append(out, port+"/"+p.Get("protocol").Str)
		return true
	})
	return cmp.Or(strings.Join(out, ","), "<none>")
}

// endpoints lists the endpoints with their ports, or the addresses if there are no ports.
func endpoints(o *object) any {
	subsets := o.get("subsets").Array()
	if len(subsets) == 0 {
		return "<none>"
	}
	var out []string
	for _, s := range subsets {
		addresses := each(s.Get("addresses"), "ip")
		ports := each(s.Get("ports"), "port")
		if len(ports) == 0 {
			out = append(out, addresses...)
		}
		for _, port := range ports {
			for _, ip := range addresses {
				out = append(out, net.JoinHostPort(ip, port))
			}
		}
	}
	return few(out, 3, ",", "")
}

func nodeStatus(o *object) any {
	status := "Unknown"
	iterate(o.get("status.conditions"), func(_, c gjson.Result) bool {
		if c.Get("type").Str == string(corev1.NodeReady) {
			status = "NotReady"
			if c.Get("status").Str == "True" {
				status = "Ready"
			}
		}
		return true
	})
	if o.get("spec.unschedulable").Bool() {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o *object) any {
	var roles []string
	for key, value := range mapOf(o.get("metadata.labels")) {
		role, found := strings.CutPrefix(key, "node-role.kubernetes.io/")
		if key == "kubernetes.io/role" {
			role, found = value, true
		}
		if found && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return cmp.Or(strings.Join(slices.Compact(roles), ","), "<none>")
}

func nodeAddress(kind corev1.NodeAddressType) func(*object) any {
	return func(o *object) any {
		return or(condition(o.get("status.addresses"), string(kind)).Get("address"), "<none>")
	}
}

// quota makes cells with the used and hard amounts of resources: those of limits, or the
// others.
func quota(limits bool) func(*object) any {
	return func(o *object) any {
		hard, used := mapOf(o.get("status.hard")), mapOf(o.get("status.used"))
		var out []string
		for resource := range hard {
			if strings.HasPrefix(resource, "limits.") == limits {
				out = append(out, fmt.Sprintf("%s: %s/%s", resource, cmp.Or(used[resource], "0"), hard[resource]))
			}
		}
		slices.SortFunc(out, func(a, b string) int {
			a, _, _ = strings.Cut(a, ": ")
			b, _, _ = strings.Cut(b, ": ")
			return cmp.Compare(a, b)
		})
		return strings.Join(out, ", ")
	}
}

// eventColumns returns the columns of events. Their fields have different names in the two
// groups.
func eventColumns(first, last, count, about, source, controller, message string) []column {
	named := name
	named.Priority = 1
	firstSeen := func(o *object) ago {
		if t := timeOf(o.get(first)); !t.IsZero() {
			return ago{when: t}
		}
		return ago{when: timeOf(o.get("eventTime"))}
	}
	return []column{
		text("Last Seen", doc(corev1.Event{}, "lastTimestamp"), func(o *object) any {
			if is(o.get("series")) {
				return ago{when: timeOf(o.get("series.lastObservedTime"))}
			}
			if t := timeOf(o.get(last)); !t.IsZero() {
				return ago{when: t}
			}
			return firstSeen(o)
		}),
		text("Type", doc(corev1.Event{}, "type"), at("type")),
		text("Reason", doc(corev1.Event{}, "reason"), at("reason")),
		text("Object", doc(corev1.Event{}, "involvedObject"), func(o *object) any {
			target := strings.ToLower(o.get(about + ".kind").Str)
			if of := o.get(about + ".name").Str; of != "" {
				target += "/" + of
			}
			return target
		}),
		wide(text("Subobject", doc(corev1.ObjectReference{}, "fieldPath"), at(about+".fieldPath"))),
		wide(text("Source", doc(corev1.Event{}, "source"), func(o *object) any {
			component := cmp.Or(str(o.get(source+".component")), str(o.get(controller)))
			if instance := cmp.Or(o.get(source+".host").Str, o.get("reportingInstance").Str); instance != "" {
				component += ", " + instance
			}
			return component
		})),
		text("Message", doc(corev1.Event{}, "message"), func(o *object) any { return strings.TrimSpace(str(o.get(message))) }),
		wide(text("First Seen", doc(corev1.Event{}, "firstTimestamp"), func(o *object) any { return firstSeen(o) })),
		wide(text("Count", doc(corev1.Event{}, "count"), func(o *object) any {
			if is(o.get("series")) {
				return o.get("series.count").Int()
			}
			return max(o.get(count).Int(), 1) // newer events have no count
		})),
		named,
	}
}

// controller returns the kind, group and name of the controlling owner of an object.
func controller(o *object) any {
	owner := "<none>"
	iterate(o.get("metadata.ownerReferences"), func(_, r gjson.Result) bool {
		if !r.Get("controller").Bool() {
			return true
		}
		group := ""
		if g, _, versioned := strings.Cut(r.Get("apiVersion").Str, "/"); versioned {
			group = "." + g
		}
		owner = strings.ToLower(r.Get("kind").Str+group) + "/" + r.Get("name").Str
		return false
	})
	return owner
}
