package table

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
)

const (
	resourceGroup = "resource.k8s.io"
	scheduling    = "scheduling.k8s.io"
)

// resources are the kinds of dynamic resource allocation and of gang scheduling.
func resources() []kind {
	return []kind{
		{group: resourceGroup, kind: "DeviceClass", columns: []column{name, age}},
		{group: resourceGroup, kind: "ResourceClaimTemplate", columns: []column{name, age}},
		{group: resourceGroup, kind: "ResourceClaim", columns: []column{
			name, text("State", "A summary of the current state (allocated, pending, reserved, etc.).", claimState), age,
		}},
		{group: resourceGroup, kind: "ResourceSlice", columns: []column{
			name,
			text("Node", doc(resourcev1.ResourceSliceSpec{}, "nodeName"), at("spec.nodeName")),
			text("Driver", doc(resourcev1.ResourceSliceSpec{}, "driver"), at("spec.driver")),
			text("Pool", doc(resourcev1.ResourcePool{}, "name"), at("spec.pool.name")),
			age,
		}},
		{group: resourceGroup, kind: "DeviceTaintRule", columns: []column{
			name,
			text("Key", doc(resourcev1.DeviceTaint{}, "key"), at("spec.taint.key")),
			text("Value", doc(resourcev1.DeviceTaint{}, "value"), at("spec.taint.value")),
			text("Effect", doc(resourcev1.DeviceTaint{}, "effect"), at("spec.taint.effect")),
			text("TimeAdded", doc(resourcev1.DeviceTaint{}, "timeAdded"), func(o *object) any {
				if added := o.get("spec.taint.timeAdded"); is(added) {
					return ago{when: timeOf(added)}
				}
				return ""
			}),
			age,
		}},
		{group: resourceGroup, kind: "ResourcePoolStatusRequest", columns: []column{
			name,
			text("Driver", "The driver to query pools for.", at("spec.driver")),
			text("Total", "Total number of devices across all pools.", pools("totalDevices")),
			text("Available", "Number of available devices across all pools.", pools("availableDevices")),
			text("Allocated", "Number of allocated devices across all pools.", pools("allocatedDevices")),
			text("Unavailable", "Number of unavailable devices across all pools.", pools("unavailableDevices")),
			text("Errors", "Number of pools with validation errors.", pools("validationError")),
			integer("Pools", "Total number of matching pools.", number("status.poolCount")),
			text("Status", "Processing status.", poolsStatus),
			text("Completed", "Time since the observation completed.", func(o *object) any {
				if last := poolsEnd(o); last.Get("type").Str == "Complete" {
					return ago{when: timeOf(last.Get("lastTransitionTime"))}
				}
				return "<none>"
			}),
		}},
		{group: scheduling, kind: "Workload", columns: []column{name, age}},
		{group: scheduling, kind: "PodGroup", columns: []column{
			name,
			text("Policy", doc(schedulingv1alpha3.PodGroupSpec{}, "schedulingPolicy"), func(o *object) any {
				if is(o.get("spec.schedulingPolicy.gang")) {
					return "Gang"
				}
				return "Basic"
			}),
			text("Workload", "Name of the referenced Workload object", at("spec.podGroupTemplateRef.workload.workloadName", "<none>")),
			text("Status", "Status of the PodGroup", groupStatus),
			age,
		}},
	}
}

func claimState(o *object) any {
	var states []string
	allocated := is(o.get("status.allocation"))
	if o.deleted() {
		states = append(states, "deleted")
	} else if !allocated {
		states = append(states, "pending")
	}
	if allocated {
		states = append(states, "allocated")
		if size("status.reservedFor")(o) != int64(0) {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}

// poolsEnd returns the condition with which a request has ended, if it has.
func poolsEnd(o *object) (end gjson.Result) {
	iterate(o.get("status.conditions"), func(_, c gjson.Result) bool {
		if kind := c.Get("type").Str; (kind == "Complete" || kind == "Failed") && c.Get("status").Str == "True" {
			end = c
		}
		return !end.Exists()
	})
	return end
}

func poolsStatus(o *object) any {
	status := cmp.Or(str(poolsEnd(o).Get("type")), "Pending")
	count := o.get("status.poolCount").Int()
	if listed := int64(len(o.get("status.pools").Array())); status == "Complete" && count > listed {
		status = fmt.Sprintf("Complete (%d/%d pools)", listed, count)
	}
	return status
}

// pools makes cells with the sum of a field over all pools, or the number of pools that
// have the field if it is not a number.
func pools(field string) func(*object) any {
	return func(o *object) any {
		if !is(o.status.Result) || poolsEnd(o).Get("type").Str == "Failed" {
			return "-"
		}
		var sum int64
		iterate(o.get("status.pools"), func(_, p gjson.Result) bool {
			switch v := p.Get(field); {
			case v.Type == gjson.Number:
				sum += v.Int()
			case is(v):
				sum++
			}
			return true
		})
		return fmt.Sprint(sum)
	}
}

func groupStatus(o *object) any {
	conditions := o.get("status.conditions")
	if target := last(conditions, "DisruptionTarget"); target.Exists() {
		return str(target.Get("reason"))
	}
	switch scheduled := last(conditions, "PodGroupScheduled"); {
	case !scheduled.Exists():
		return "Pending"
	case scheduled.Get("status").Str == "True":
		return "Scheduled"
	}
	return "Unschedulable"
}

// last returns the last condition of a type.
func last(list gjson.Result, kind string) (found gjson.Result) {
	iterate(list, func(_, c gjson.Result) bool {
		if c.Get("type").Str == kind {
			found = c
		}
		return true
	})
	return found
}
