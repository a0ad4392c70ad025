package relations

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Finding is something that is wrong with an object.
type Finding struct {
	// Message says what is wrong, in the words of the cluster where it has some.
	Message string `json:"message"`
	// Field is the field that says so.
	Field string `json:"field"`
}

// maxFindings bounds what is told of one object.
const maxFindings = 10

// maxMessage bounds the text of a finding that comes from the cluster.
const maxMessage = 300

// rule finds what is wrong with objects of some kinds.
type rule struct {
	kinds string // Kind.group, separated by spaces; "" for all kinds
	find  func(o Object, now time.Time, found func(field, format string, args ...any))
}

// rules is the table of all that can be found, from the general to the specific: the last
// finding about an object is the likeliest cause. What no rule finds is not claimed to be
// right.
var rules = []rule{
	{"Pod", podScheduling},
	{"Pod", podFailure},
	{"Pod", podContainers},
	{"Deployment.apps StatefulSet.apps ReplicaSet.apps ReplicationController", fewer("status.readyReplicas", "spec.replicas", 1)},
	{"Deployment.apps", badCondition("Progressing", "False")},
	{"Deployment.apps ReplicaSet.apps ReplicationController", badCondition("ReplicaFailure", "True")},
	{"DaemonSet.apps", fewer("status.numberReady", "status.desiredNumberScheduled", 0)},
	{"Job.batch", badCondition("Failed", "True")},
	{"PersistentVolumeClaim PersistentVolume", volumePhase},
	{"Node", badCondition("Ready", "False", "Unknown")},
	{"Node", badCondition("MemoryPressure", "True")},
	{"Node", badCondition("DiskPressure", "True")},
	{"Node", badCondition("PIDPressure", "True")},
	{"Node", badCondition("NetworkUnavailable", "True")},
	{"HorizontalPodAutoscaler.autoscaling", badCondition("AbleToScale", "False")},
	{"HorizontalPodAutoscaler.autoscaling", badCondition("ScalingActive", "False")},
	{"APIService.apiregistration.k8s.io", badCondition("Available", "False")},
	{"CustomResourceDefinition.apiextensions.k8s.io", badCondition("Established", "False")},
	{"ResourceQuota", quota},
	{"Service", loadBalancer},
	{"Event", warning},
	{"Secret", expiredSecret},
	{"*", badCondition("Ready", "False")}, // of custom resources
	{"Certificate.cert-manager.io", expiredCertificate},
	{"", beingDeleted},
}

// Wrong returns what is wrong with the object at a time, by the rules for its kind.
func (o Object) Wrong(now time.Time) (findings []Finding) {
	kind := o.groupKind()
	name := strings.TrimSuffix(kind.Kind+"."+kind.Group, ".")
	for _, r := range rules {
		switch {
		case r.kinds == "":
		case r.kinds == "*":
			if !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io") {
				continue
			}
		case !strings.Contains(" "+r.kinds+" ", " "+name+" "):
			continue
		}
		r.find(o, now, func(field, format string, args ...any) {
			if len(findings) == maxFindings {
				return
			}
			findings = append(findings, Finding{shortened(fmt.Sprintf(format, args...), maxMessage), field})
		})
	}
	return findings
}

// shortened cuts a text after so many bytes.
func shortened(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// because appends a reason and a message of the cluster to a text.
func because(text string, of gjson.Result) string {
	for _, name := range []string{"reason", "message"} {
		if s := strings.TrimSpace(of.Get(name).Str); s != "" {
			text += ": " + s
		}
	}
	return text
}

// badCondition finds a condition of a type with one of some values.
func badCondition(kind string, bad ...string) func(Object, time.Time, func(string, string, ...any)) {
	return func(o Object, _ time.Time, found func(string, string, ...any)) {
		c := condition(o.get("status.conditions"), kind)
		for _, value := range bad {
			if c.Get("status").Str == value {
				found("status.conditions["+kind+"]", "%s", because(kind+" is "+value, c))
			}
		}
	}
}

// fewer finds that one number is less than another, which has a default.
func fewer(have, want string, unset int64) func(Object, time.Time, func(string, string, ...any)) {
	return func(o Object, _ time.Time, found func(string, string, ...any)) {
		wanted := unset
		if v := o.get(want); v.Exists() {
			wanted = v.Int()
		}
		if n := o.get(have).Int(); n < wanted {
			found(have, "%d of %d are ready", n, wanted)
		}
	}
}

func podScheduling(o Object, _ time.Time, found func(string, string, ...any)) {
	if c := condition(o.get("status.conditions"), "PodScheduled"); c.Get("status").Str == "False" {
		found("status.conditions[PodScheduled]", "%s", because("not scheduled", c))
	}
}

func podFailure(o Object, _ time.Time, found func(string, string, ...any)) {
	if o.str("status.phase") == "Failed" {
		found("status.phase", "%s", because("Failed", o.get("status")))
	}
}

// waitingIsNormal are the reasons of containers that are being started.
var waitingIsNormal = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

func podContainers(o Object, _ time.Time, found func(string, string, ...any)) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		o.get("status." + list).ForEach(func(_, c gjson.Result) bool {
			name := c.Get("name").Str
			at := fmt.Sprintf("status.%s[%s]", list, name)
			state, last := c.Get("state"), c.Get("lastState.terminated")
			switch waiting, ended := state.Get("waiting"), state.Get("terminated"); {
			case waiting.Exists():
				if !waitingIsNormal[waiting.Get("reason").Str] {
					found(at+".state.waiting", "%s", because("container "+name, waiting))
				}
				if last.Exists() {
					found(at+".lastState.terminated", "%s", because(fmt.Sprintf("container %s ended with exit code %d", name, last.Get("exitCode").Int()), last))
				}
			case ended.Exists() && ended.Get("exitCode").Int() != 0:
				found(at+".state.terminated", "%s", because(fmt.Sprintf("container %s ended with exit code %d", name, ended.Get("exitCode").Int()), ended))
			case state.Get("running").Exists() && c.Get("ready").Type == gjson.False && list == "containerStatuses":
				found(at+".ready", "container %s runs and is not ready", name)
				if last.Exists() {
					found(at+".lastState.terminated", "%s", because(fmt.Sprintf("container %s ended with exit code %d before", name, last.Get("exitCode").Int()), last))
				}
			}
			return true
		})
	}
}

func warning(o Object, _ time.Time, found func(string, string, ...any)) {
	if message := o.str("message"); message != "" && o.str("type") == "Warning" {
		found("message", "%s", message)
	}
}

func volumePhase(o Object, _ time.Time, found func(string, string, ...any)) {
	switch phase := o.str("status.phase"); phase {
	case "Pending", "Lost", "Failed":
		found("status.phase", "%s", because(phase, o.get("status")))
	}
}

func loadBalancer(o Object, _ time.Time, found func(string, string, ...any)) {
	if o.str("spec.type") == "LoadBalancer" && o.get("status.loadBalancer.ingress.#").Int() == 0 {
		found("status.loadBalancer", "the load balancer has no address yet")
	}
}

// quota finds the resources of which all is used, if both amounts are written alike.
func quota(o Object, _ time.Time, found func(string, string, ...any)) {
	used := o.get("status.used").Map()
	o.get("status.hard").ForEach(func(name, hard gjson.Result) bool {
		if hard.Str != "" && hard.Str != "0" && used[name.Str].Str == hard.Str {
			found("status.used["+name.Str+"]", "all %s of %s are used", hard.Str, name.Str)
		}
		return true
	})
}

func beingDeleted(o Object, _ time.Time, found func(string, string, ...any)) {
	since := o.str("metadata.deletionTimestamp")
	if since == "" {
		return
	}
	var waits []string
	o.get("metadata.finalizers").ForEach(func(_, f gjson.Result) bool {
		waits = append(waits, f.Str)
		return true
	})
	if len(waits) > 0 {
		found("metadata.finalizers", "being deleted since %s, waits for %s", since, strings.Join(waits, ", "))
	}
}
