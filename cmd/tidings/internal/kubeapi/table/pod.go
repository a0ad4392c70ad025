package table

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func corePods() []kind {
	return []kind{{
		group: "", kind: "Pod",
		columns: []column{
			name,
			text("Ready", "The aggregate readiness state of this pod for accepting traffic.", func(o *object) any {
				return fmt.Sprintf("%d/%d", o.summary().ready, o.summary().containers)
			}),
			text("Status", "The aggregate status of the containers in this pod.", func(o *object) any { return o.summary().status }),
			text("Restarts", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.", func(o *object) any {
				return o.summary().restarts.cell()
			}),
			age,
			wide(text("IP", doc(corev1.PodStatus{}, "podIP"), func(o *object) any {
				return cmp.Or(str(o.get("status.podIPs.0.ip")), cmp.Or(str(o.get("status.podIP")), "<none>"))
			})),
			wide(text("Node", doc(corev1.PodSpec{}, "nodeName"), orIfEmpty("spec.nodeName", "<none>"))),
			wide(text("Nominated Node", doc(corev1.PodStatus{}, "nominatedNodeName"), orIfEmpty("status.nominatedNodeName", "<none>"))),
			wide(text("Readiness Gates", doc(corev1.PodSpec{}, "readinessGates"), readinessGates)),
		},
		completed: podCompleted,
	}}
}

var (
	podSucceeded = []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(corev1.PodSucceeded), Message: "The pod has completed successfully."}}
	podFailed    = []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(corev1.PodFailed), Message: "The pod failed."}}
)

func podCompleted(o *object) []metav1.TableRowCondition {
	switch corev1.PodPhase(o.get("status.phase").Str) {
	case corev1.PodSucceeded:
		return podSucceeded
	case corev1.PodFailed:
		return podFailed
	}
	return nil
}

// podSummary has the values for several columns of a pod.
type podSummary struct {
	status            string
	ready, containers int
	restarts          restarts
}

// restarts is a number of restarts and the time of the last one.
type restarts struct {
	n    int64
	last time.Time
}

func (r *restarts) add(status gjson.Result) {
	r.n += status.Get("restartCount").Int()
	if t := timeOf(status.Get("lastState.terminated.finishedAt")); t.After(r.last) {
		r.last = t
	}
}

func (r *restarts) cell() any {
	count := fmt.Sprint(r.n)
	if r.n == 0 || r.last.IsZero() {
		return count
	}
	return ago{when: r.last, before: count + " (", after: " ago)"}
}

// summary computes the summary of a pod. The reason for which a container waits or has
// ended takes precedence over the pod's phase, and an init container that has not
// succeeded over the containers after it.
func (o *object) summary() *podSummary {
	p := &o.pod
	if o.summarized {
		return p
	}
	o.summarized = true
	phase := o.get("status.phase").Str
	p.status = cmp.Or(str(o.get("status.reason")), str(o.get("status.phase")))
	conditions := o.get("status.conditions")
	iterate(conditions, func(_, c gjson.Result) bool {
		if c.Get("type").Str == string(corev1.PodScheduled) && c.Get("reason").Str == corev1.PodReasonSchedulingGated {
			p.status = corev1.PodReasonSchedulingGated
		}
		return true
	})
	iterate(o.get("spec.containers"), func(_, _ gjson.Result) bool { p.containers++; return true })
	if initializing := p.readInitContainers(o); !initializing || condition(conditions, string(corev1.PodInitialized)).Get("status").Str == "True" {
		p.readContainers(o.get("status.containerStatuses"), hasCondition(conditions, string(corev1.PodReady), "True"))
	}
	if o.deleted() {
		switch {
		case o.get("status.reason").Str == "NodeLost":
			p.status = "Unknown"
		case phase != string(corev1.PodFailed) && phase != string(corev1.PodSucceeded):
			p.status = "Terminating"
		}
	}
	return p
}

// hasCondition reports whether any condition has a type and a status.
func hasCondition(list gjson.Result, kind, status string) (found bool) {
	iterate(list, func(_, c gjson.Result) bool {
		found = c.Get("type").Str == kind && c.Get("status").Str == status
		return !found
	})
	return found
}

// readInitContainers reads the states of the init containers, and reports whether the pod
// waits for one of them. Those with restart policy Always (sidecars) count as containers.
func (p *podSummary) readInitContainers(o *object) (initializing bool) {
	sidecars, inits := map[string]bool{}, 0
	iterate(o.get("spec.initContainers"), func(_, c gjson.Result) bool {
		inits++
		always := c.Get("restartPolicy").Str == string(corev1.ContainerRestartPolicyAlways)
		sidecars[c.Get("name").Str] = always
		if always {
			p.containers++
		}
		return true
	})
	var ofSidecars restarts
	i := -1
	iterate(o.get("status.initContainerStatuses"), func(_, s gjson.Result) bool {
		i++
		sidecar := sidecars[s.Get("name").Str]
		p.restarts.add(s)
		if sidecar {
			ofSidecars.add(s)
		}
		terminated, waiting := s.Get("state.terminated"), s.Get("state.waiting.reason").Str
		switch {
		case is(terminated) && terminated.Get("exitCode").Int() == 0:
			return true
		case sidecar && s.Get("started").Bool():
			if s.Get("ready").Bool() {
				p.ready++
			}
			return true
		case is(terminated):
			p.status = "Init:" + ending(terminated)
		case waiting != "" && waiting != "PodInitializing":
			p.status = "Init:" + str(s.Get("state.waiting.reason"))
		default:
			p.status = fmt.Sprintf("Init:%d/%d", i, inits)
		}
		initializing = true
		return false
	})
	if !initializing || condition(o.get("status.conditions"), string(corev1.PodInitialized)).Get("status").Str == "True" {
		p.restarts = ofSidecars // the other init containers have succeeded
	}
	return initializing
}

// readContainers reads the states of the containers. The first one with a reason sets the
// status.
func (p *podSummary) readContainers(statuses gjson.Result, ready bool) {
	running, failure := false, ""
	list := statuses.Array()
	for i := len(list) - 1; i >= 0; i-- {
		s := list[i]
		p.restarts.add(s)
		terminated, waiting := s.Get("state.terminated"), s.Get("state.waiting.reason")
		switch {
		case waiting.Str != "":
			p.status = str(waiting)
		case is(terminated):
			p.status = ending(terminated)
			if terminated.Get("exitCode").Int() != 0 {
				failure = p.status
			}
		case s.Get("ready").Bool() && is(s.Get("state.running")):
			running = true
			p.ready++
		}
	}
	if p.status != "Completed" { // other containers may still run
		return
	}
	switch {
	case running && ready:
		p.status = "Running"
	case failure != "":
		p.status = failure
	case running:
		p.status = "NotReady"
	}
}

// ending describes how a container has ended.
func ending(terminated gjson.Result) string {
	if reason := str(terminated.Get("reason")); reason != "" {
		return reason
	}
	if signal := terminated.Get("signal").Int(); signal != 0 {
		return fmt.Sprintf("Signal:%d", signal)
	}
	return fmt.Sprintf("ExitCode:%d", terminated.Get("exitCode").Int())
}

func readinessGates(o *object) any {
	open, gates := 0, o.get("spec.readinessGates").Array()
	if len(gates) == 0 {
		return "<none>"
	}
	for _, gate := range gates {
		if condition(o.get("status.conditions"), gate.Get("conditionType").Str).Get("status").Str == "True" {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(gates))
}
