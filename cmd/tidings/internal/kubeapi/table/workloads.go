package table

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	aboutNames  = "Names of each container in the template."
	aboutImages = "Images referenced by each container in the template."
	aboutReady  = "Number of the pod with ready state"
)

// containers returns the wide columns of the containers in a pod template.
func containers(template string) (names, images column) {
	list := template + ".spec.containers"
	return wide(text("Containers", aboutNames, joined(list, "name"))), wide(text("Images", aboutImages, joined(list, "image")))
}

func selected(spec interface{ SwaggerDoc() map[string]string }, cell func(*object) any) column {
	return wide(text("Selector", doc(spec, "selector"), cell))
}

func workloads() []kind {
	names, images := containers("spec.template")
	ofJob, imagesOfJob := containers("spec.jobTemplate.spec.template")
	return []kind{
		{group: "", kind: "PodTemplate", columns: []column{
			name,
			text("Containers", aboutNames, joined("template.spec.containers", "name")),
			text("Images", aboutImages, joined("template.spec.containers", "image")),
			text("Pod Labels", "The labels for the pod template.", pairs("template.metadata.labels")),
		}},
		{group: "", kind: "ReplicationController", columns: []column{
			name,
			integer("Desired", doc(corev1.ReplicationControllerSpec{}, "replicas"), number("spec.replicas")),
			integer("Current", doc(corev1.ReplicationControllerStatus{}, "replicas"), number("status.replicas")),
			integer("Ready", doc(corev1.ReplicationControllerStatus{}, "readyReplicas"), number("status.readyReplicas")),
			age, names, images,
			selected(corev1.ReplicationControllerSpec{}, pairs("spec.selector")),
		}},
		{group: "apps", kind: "ReplicaSet", columns: []column{
			name,
			integer("Desired", doc(appsv1.ReplicaSetSpec{}, "replicas"), number("spec.replicas")),
			integer("Current", doc(appsv1.ReplicaSetStatus{}, "replicas"), number("status.replicas")),
			integer("Ready", doc(appsv1.ReplicaSetStatus{}, "readyReplicas"), number("status.readyReplicas")),
			age, names, images,
			selected(appsv1.ReplicaSetSpec{}, selector("spec.selector")),
		}},
		{group: "apps", kind: "Deployment", columns: []column{
			name,
			text("Ready", aboutReady, of("status.readyReplicas", "spec.replicas")),
			text("Up-to-date", doc(appsv1.DeploymentStatus{}, "updatedReplicas"), number("status.updatedReplicas")),
			text("Available", doc(appsv1.DeploymentStatus{}, "availableReplicas"), number("status.availableReplicas")),
			age, names, images,
			selected(appsv1.DeploymentSpec{}, func(o *object) any {
				s, err := labelSelector(o.get("spec.selector"))
				if err != nil {
					return "<invalid>"
				}
				compiled, err := metav1.LabelSelectorAsSelector(s)
				if err != nil {
					return "<invalid>"
				}
				return compiled.String()
			}),
		}},
		{group: "apps", kind: "StatefulSet", columns: []column{
			name, text("Ready", aboutReady, of("status.readyReplicas", "spec.replicas")), age, names, images,
		}},
		{group: "apps", kind: "DaemonSet", columns: []column{
			name,
			integer("Desired", doc(appsv1.DaemonSetStatus{}, "desiredNumberScheduled"), number("status.desiredNumberScheduled")),
			integer("Current", doc(appsv1.DaemonSetStatus{}, "currentNumberScheduled"), number("status.currentNumberScheduled")),
			integer("Ready", doc(appsv1.DaemonSetStatus{}, "numberReady"), number("status.numberReady")),
			integer("Up-to-date", doc(appsv1.DaemonSetStatus{}, "updatedNumberScheduled"), number("status.updatedNumberScheduled")),
			integer("Available", doc(appsv1.DaemonSetStatus{}, "numberAvailable"), number("status.numberAvailable")),
			text("Node Selector", doc(corev1.PodSpec{}, "nodeSelector"), pairs("spec.template.spec.nodeSelector")),
			age, names, images,
			selected(appsv1.DaemonSetSpec{}, selector("spec.selector")),
		}},
		{group: "apps", kind: "ControllerRevision", columns: []column{
			name,
			text("Controller", "Controller of the object", controller),
			text("Revision", doc(appsv1.ControllerRevision{}, "revision"), number("revision")),
			age,
		}},
		{group: "batch", kind: "Job", columns: []column{
			name,
			text("Status", "Status of the job.", jobStatus),
			text("Completions", doc(batchv1.JobStatus{}, "succeeded"), completions),
			text("Duration", "Time required to complete the job.", jobDuration),
			age, names, images,
			selected(batchv1.JobSpec{}, selector("spec.selector")),
		}},
		{group: "batch", kind: "CronJob", columns: []column{
			name,
			text("Schedule", doc(batchv1.CronJobSpec{}, "schedule"), at("spec.schedule")),
			text("Timezone", doc(batchv1.CronJobSpec{}, "timeZone"), at("spec.timeZone", "<none>")),
			boolean("Suspend", doc(batchv1.CronJobSpec{}, "suspend"), func(o *object) any {
				switch r := o.get("spec.suspend"); {
				case !is(r):
					return "<unset>"
				case r.Bool():
					return "True"
				}
				return "False"
			}),
			integer("Active", doc(batchv1.CronJobStatus{}, "active"), size("status.active")),
			text("Last Schedule", doc(batchv1.CronJobStatus{}, "lastScheduleTime"), func(o *object) any {
				if r := o.get("status.lastScheduleTime"); is(r) {
					return ago{when: timeOf(r)}
				}
				return "<none>"
			}),
			age, ofJob, imagesOfJob,
			selected(batchv1.JobSpec{}, selector("spec.jobTemplate.spec.selector")),
		}},
	}
}

// jobStatus returns the first status that applies to a job.
func jobStatus(o *object) any {
	conditions := o.get("status.conditions")
	for _, status := range []batchv1.JobConditionType{
		batchv1.JobComplete, batchv1.JobFailed, "Terminating", batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		if status == "Terminating" && o.deleted() || condition(conditions, string(status)).Get("status").Str == "True" {
			return string(status)
		}
	}
	return "Running"
}

func completions(o *object) any {
	done := o.get("status.succeeded").Int()
	if whole := o.get("spec.completions"); is(whole) {
		return fmt.Sprintf("%d/%d", done, whole.Int())
	}
	if parallel := o.get("spec.parallelism").Int(); parallel > 1 {
		return fmt.Sprintf("%d/1 of %d", done, parallel)
	}
	return fmt.Sprintf("%d/1", done)
}

func jobDuration(o *object) any {
	begun, ended := o.get("status.startTime"), o.get("status.completionTime")
	switch {
	case !is(begun):
		return ""
	case is(ended):
		return duration.HumanDuration(timeOf(ended).Sub(timeOf(begun)))
	}
	return ago{when: timeOf(begun)}
}
