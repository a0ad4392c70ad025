package table

import (
	"cmp"

	"github.com/tidwall/gjson"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

func autoscalerColumns() []column {
	return []column{
		name,
		text("Reference", doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "scaleTargetRef"), func(o *object) any {
			return o.get("spec.scaleTargetRef.kind").Str + "/" + o.get("spec.scaleTargetRef.name").Str
		}),
		text("Targets", doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "metrics"), targets),
		text("MinPods", doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "minReplicas"), at("spec.minReplicas", "<unset>")),
		text("MaxPods", doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "maxReplicas"), number("spec.maxReplicas")),
		text("Replicas", doc(autoscalingv2.HorizontalPodAutoscalerStatus{}, "currentReplicas"), number("status.currentReplicas")),
		age,
	}
}

func targets(o *object) any {
	specs, statuses := metricsOf(o)
	var out []string
	for i, spec := range specs {
		var status gjson.Result
		if i < len(statuses) {
			status = statuses[i]
		}
		out = append(out, target(spec, status))
	}
	return few(out, 2, ", ", "<none>")
}

// metricsOf returns the metrics of an autoscaler and their statuses. In version 1 they are
// in annotations, except for the one of CPU, which comes last.
func metricsOf(o *object) (specs, statuses []gjson.Result) {
	if apiVersion := o.get("apiVersion").Str; apiVersion != "autoscaling/v1" {
		return o.get("spec.metrics").Array(), o.get("status.currentMetrics").Array()
	}
	if text, ok := o.annotation("autoscaling.alpha.kubernetes.io/metrics"); ok {
		specs = gjson.Parse(text).Array()
	}
	if utilization := o.get("spec.targetCPUUtilizationPercentage"); is(utilization) {
		specs = append(specs, gjson.Parse(`{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":`+utilization.Raw+`}}`))
	}
	if text, ok := o.annotation("autoscaling.alpha.kubernetes.io/current-metrics"); ok {
		statuses = gjson.Parse(text).Array()
	} else if utilization := o.get("status.currentCPUUtilizationPercentage"); is(utilization) {
		statuses = append(statuses, gjson.Parse(`{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":`+utilization.Raw+`}}`))
	}
	return specs, statuses
}

// metricSources are the fields of metrics by type.
var metricSources = map[autoscalingv2.MetricSourceType]string{
	autoscalingv2.ExternalMetricSourceType: "external", autoscalingv2.PodsMetricSourceType: "pods",
	autoscalingv2.ObjectMetricSourceType: "object", autoscalingv2.ResourceMetricSourceType: "resource",
	autoscalingv2.ContainerResourceMetricSourceType: "containerResource",
}

// target formats one metric: its current value and its target.
func target(spec, status gjson.Result) string {
	kind := autoscalingv2.MetricSourceType(spec.Get("type").Str)
	field, known := metricSources[kind]
	if !known {
		return "<unknown type>"
	}
	want, have := spec.Get(field), status.Get(field)
	average, none := amount(want, "target", "averageValue"), "<unknown>"
	if is(have) {
		none = "<nil>" // the status exists without this amount
	}
	switch kind {
	case autoscalingv2.PodsMetricSourceType:
		return cmp.Or(amount(have, "current", "averageValue"), none) + "/" + cmp.Or(average, "<nil>")
	case autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType:
		if average != "" {
			return cmp.Or(amount(have, "current", "averageValue"), "<unknown>") + "/" + average + " (avg)"
		}
		return cmp.Or(amount(have, "current", "value"), none) + "/" + cmp.Or(amount(want, "target", "value"), "<nil>")
	}
	resource := want.Get("name").Str + ": "
	if average != "" {
		return resource + cmp.Or(amount(have, "current", "averageValue"), none) + "/" + average
	}
	now, goal := "<unknown>", "<auto>"
	if u := amount(have, "current", "averageUtilization"); u != "" {
		now = u + "%"
	}
	if u := amount(want, "target", "averageUtilization"); u != "" {
		goal = u + "%"
	}
	return resource + now + "/" + goal
}

// olderNames are the names of amounts in version 1, after "target" and "current".
var olderNames = map[string]string{"averageValue": "AverageValue", "averageUtilization": "AverageUtilization", "value": "Value"}

// amount returns an amount of a metric, or "".
func amount(metric gjson.Result, side, what string) string {
	return or(metric.Get(side+"."+what), or(metric.Get(side+olderNames[what]), olderAverage(metric, what)))
}

// olderAverage returns the average of an object metric in version 1, where both target and
// current value are called averageValue.
func olderAverage(metric gjson.Result, what string) string {
	if what != "averageValue" {
		return ""
	}
	return or(metric.Get("averageValue"), "")
}
