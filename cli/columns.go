package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is one column of a table of objects, made here where no API server
// makes the table.
type column struct {
	name  string
	wide  bool // only in wide tables
	value func(object) string
}

// object reads the fields of an object without failing.
type object map[string]any

func (o object) at(fields ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, fields...)
	return v
}

// text is a field as it stands in a table; absent ones are empty.
func (o object) text(fields ...string) string {
	v := o.at(fields...)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (o object) number(fields ...string) int64 {
	switch v := o.at(fields...).(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

// list is a list of objects; what is not one is left out.
func (o object) list(fields ...string) []object {
	values, _ := o.at(fields...).([]any)
	var out []object
	for _, v := range values {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func (o object) size(fields ...string) string {
	m, _ := o.at(fields...).(map[string]any)
	return fmt.Sprint(len(m))
}

func (o object) condition(kind string) string {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == kind {
			return c.text("status")
		}
	}
	return ""
}

// field makes a column of a field.
func field(name string, fields ...string) column {
	return column{name: name, value: func(o object) string { return o.text(fields...) }}
}

// count makes a column of a number that is left out when 0.
func counted(name string, fields ...string) column {
	return column{name: name, value: func(o object) string { return fmt.Sprint(o.number(fields...)) }}
}

// of makes a column of a progress like 2/3.
func of(name string, part, whole []string) column {
	return column{name: name, value: func(o object) string {
		return fmt.Sprintf("%d/%d", o.number(part...), o.number(whole...))
	}}
}

func wider(c column) column { c.wide = true; return c }

var replicas = []string{"spec", "replicas"}

// columns are what is worth knowing of the objects of common kinds, between name
// and age.
var columns = map[string][]column{
	"Pod": {
		{name: "READY", value: podReady}, {name: "STATUS", value: podStatus}, {name: "RESTARTS", value: podRestarts},
		wider(field("IP", "status", "podIP")), wider(field("NODE", "spec", "nodeName")),
	},
	"Deployment.apps": {
		of("READY", []string{"status", "readyReplicas"}, replicas),
		counted("UP-TO-DATE", "status", "updatedReplicas"), counted("AVAILABLE", "status", "availableReplicas"),
	},
	"ReplicaSet.apps": {
		counted("DESIRED", replicas...), counted("CURRENT", "status", "replicas"), counted("READY", "status", "readyReplicas"),
	},
	"StatefulSet.apps": {of("READY", []string{"status", "readyReplicas"}, replicas)},
	"DaemonSet.apps": {
		counted("DESIRED", "status", "desiredNumberScheduled"), counted("CURRENT", "status", "currentNumberScheduled"),
		counted("READY", "status", "numberReady"), counted("UP-TO-DATE", "status", "updatedNumberScheduled"),
		counted("AVAILABLE", "status", "numberAvailable"),
	},
	"Job.batch": {
		{name: "STATUS", value: jobStatus}, of("COMPLETIONS", []string{"status", "succeeded"}, []string{"spec", "completions"}),
	},
	"CronJob.batch": {
		field("SCHEDULE", "spec", "schedule"), field("SUSPEND", "spec", "suspend"),
		{name: "ACTIVE", value: func(o object) string { return fmt.Sprint(len(o.list("status", "active"))) }},
		{name: "LAST SCHEDULE", value: func(o object) string { return since(o.text("status", "lastScheduleTime")) }},
	},
	"Service": {
		field("TYPE", "spec", "type"), field("CLUSTER-IP", "spec", "clusterIP"), {name: "EXTERNAL-IP", value: externalIP},
		{name: "PORT(S)", value: servicePorts},
	},
	"Ingress.networking.k8s.io": {field("CLASS", "spec", "ingressClassName"), {name: "HOSTS", value: hosts}},
	"Node": {
		{name: "STATUS", value: nodeStatus}, {name: "ROLES", value: nodeRoles},
		field("VERSION", "status", "nodeInfo", "kubeletVersion"),
	},
	"Namespace":             {field("STATUS", "status", "phase")},
	"ConfigMap":             {{name: "DATA", value: func(o object) string { return o.size("data") }}},
	"Secret":                {field("TYPE", "type"), {name: "DATA", value: func(o object) string { return o.size("data") }}},
	"PersistentVolumeClaim": {field("STATUS", "status", "phase"), field("VOLUME", "spec", "volumeName"), field("CAPACITY", "status", "capacity", "storage"), field("STORAGECLASS", "spec", "storageClassName")},
	"PersistentVolume": {
		field("CAPACITY", "spec", "capacity", "storage"), field("STATUS", "status", "phase"),
		{name: "CLAIM", value: func(o object) string {
			return strings.Trim(o.text("spec", "claimRef", "namespace")+"/"+o.text("spec", "claimRef", "name"), "/")
		}},
	},
	"HorizontalPodAutoscaler.autoscaling": {
		{name: "REFERENCE", value: func(o object) string {
			return o.text("spec", "scaleTargetRef", "kind") + "/" + o.text("spec", "scaleTargetRef", "name")
		}},
		field("MINPODS", "spec", "minReplicas"), field("MAXPODS", "spec", "maxReplicas"), counted("REPLICAS", "status", "currentReplicas"),
	},
	"Event":               eventColumns,
	"Event.events.k8s.io": eventColumns,
}

var eventColumns = []column{
	{name: "LAST SEEN", value: func(o object) string {
		return since(cmp.Or(o.text("series", "lastObservedTime"), o.text("lastTimestamp"), o.text("eventTime"), o.text("metadata", "creationTimestamp")))
	}},
	field("TYPE", "type"), field("REASON", "reason"),
	{name: "OBJECT", value: func(o object) string {
		about := object{}
		for _, key := range []string{"involvedObject", "regarding"} {
			if m, ok := o.at(key).(map[string]any); ok {
				about = m
			}
		}
		return strings.ToLower(about.text("kind")) + "/" + about.text("name")
	}},
	{name: "MESSAGE", value: func(o object) string { return cmp.Or(o.text("message"), o.text("note")) }},
}

// columnsOf are the columns of a kind beyond its name and age.
func columnsOf(u *unstructured.Unstructured) []column {
	gk := u.GroupVersionKind().GroupKind()
	return columns[gk.String()]
}

// since is how long ago a time of the API was, like "5m".
func since(timestamp string) string {
	t, err := time.Parse(time.RFC3339Nano, timestamp)
	if err != nil {
		return ""
	}
	return duration.HumanDuration(time.Since(t))
}

func age(u *unstructured.Unstructured) string {
	return since(object(u.Object).text("metadata", "creationTimestamp"))
}

func podReady(o object) string {
	ready, statuses := 0, o.list("status", "containerStatuses")
	for _, s := range statuses {
		if s.text("ready") == "true" {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, max(len(statuses), len(o.list("spec", "containers"))))
}

// podStatus is the one word that says how a pod is, as kubectl finds it: what a
// container waits for or ended with says more than the phase.
func podStatus(o object) string {
	status := cmp.Or(o.text("status", "reason"), o.text("status", "phase"))
	for i, s := range o.list("status", "initContainerStatuses") {
		reason := cmp.Or(s.text("state", "terminated", "reason"), s.text("state", "waiting", "reason"))
		if s.at("state", "terminated") != nil && s.number("state", "terminated", "exitCode") == 0 || s.text("started") == "true" {
			continue
		}
		if reason == "" || reason == "PodInitializing" {
			return fmt.Sprintf("Init:%d/%d", i, len(o.list("spec", "initContainers")))
		}
		return "Init:" + reason
	}
	for _, s := range o.list("status", "containerStatuses") {
		status = cmp.Or(s.text("state", "waiting", "reason"), s.text("state", "terminated", "reason"), status)
	}
	if o.at("metadata", "deletionTimestamp") != nil {
		return "Terminating"
	}
	return status
}

func podRestarts(o object) string {
	var n int64
	for _, s := range o.list("status", "containerStatuses") {
		n += s.number("restartCount")
	}
	return fmt.Sprint(n)
}

func jobStatus(o object) string {
	switch {
	case o.condition("Complete") == "True":
		return "Complete"
	case o.condition("Failed") == "True":
		return "Failed"
	case o.condition("Suspended") == "True":
		return "Suspended"
	}
	return "Running"
}

func externalIP(o object) string {
	var out []string
	for _, in := range o.list("status", "loadBalancer", "ingress") {
		out = append(out, cmp.Or(in.text("ip"), in.text("hostname")))
	}
	ips, _ := o.at("spec", "externalIPs").([]any)
	for _, ip := range ips {
		out = append(out, fmt.Sprint(ip))
	}
	return strings.Join(append(out, slices.DeleteFunc([]string{o.text("spec", "externalName")}, func(s string) bool { return s == "" })...), ",")
}

func servicePorts(o object) string {
	var out []string
	for _, p := range o.list("spec", "ports") {
		s := p.text("port")
		if node := p.text("nodePort"); node != "" {
			s += ":" + node
		}
		out = append(out, s+"/"+cmp.Or(p.text("protocol"), "TCP"))
	}
	return strings.Join(out, ",")
}

func hosts(o object) string {
	var out []string
	for _, r := range o.list("spec", "rules") {
		out = append(out, cmp.Or(r.text("host"), "*"))
	}
	return strings.Join(out, ",")
}

func nodeStatus(o object) string {
	status := map[string]string{"True": "Ready", "False": "NotReady"}[o.condition("Ready")]
	status = cmp.Or(status, "Unknown")
	if o.text("spec", "unschedulable") == "true" {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o object) string {
	labels, _ := o.at("metadata", "labels").(map[string]any)
	var roles []string
	for key := range labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return strings.Join(roles, ",")
}
