package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	gvkJob     = batchv1.SchemeGroupVersion.WithKind("Job")
	gvkCronJob = batchv1.SchemeGroupVersion.WithKind("CronJob")
)

func jobOver(job *batchv1.Job) (over, failed bool) {
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return true, c.Type == batchv1.JobFailed
		}
	}
	return false, false
}

// syncJob runs the pods of a Job until enough have succeeded or too many have
// failed.
func (s *simulation) syncJob(job *batchv1.Job) {
	if over, _ := jobOver(job); over {
		return
	}
	var active, ready, succeeded, failed int32
	for _, pod := range owned[*corev1.Pod](s, gvrPods, job) {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
		case pod.Status.Phase == corev1.PodFailed:
			failed++
		case pod.DeletionTimestamp == nil:
			active++
			if isReady(pod) {
				ready++
			}
		}
	}
	want, parallel, limit := replicasOf(job.Spec.Completions), replicasOf(job.Spec.Parallelism), int32(6)
	if job.Spec.BackoffLimit != nil {
		limit = *job.Spec.BackoffLimit
	}
	for failed <= limit && active < min(parallel, want-succeeded) {
		pod := s.newPod(job, gvkJob, &job.Spec.Template)
		pod.Labels[batchv1.JobNameLabel] = job.Name
		pod.Labels[batchv1.ControllerUidLabel] = string(job.UID)
		pod, ok := create(s, gvrPods, pod)
		if !ok {
			break
		}
		s.event(job, normal, "job-controller", "SuccessfulCreate", "Created pod: %s", pod.Name)
		active++
	}
	mutateStatus(s, ref{gvrJobs, job.Namespace, job.Name}, "kube-controller-manager", func(job *batchv1.Job) {
		st := &job.Status
		if st.StartTime == nil {
			st.StartTime = ptr(s.stamp())
		}
		st.Active, st.Succeeded, st.Failed, st.Ready, st.Terminating = active, succeeded, failed, &ready, ptr(int32(0))
		st.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
		switch {
		case succeeded >= want:
			st.CompletionTime = ptr(s.stamp())
			s.endJob(job, batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
			s.endJob(job, batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
		case failed > limit:
			s.endJob(job, batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
			s.endJob(job, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
		}
	})
	switch {
	case succeeded >= want:
		s.event(job, normal, "job-controller", "Completed", "Job completed")
	case failed > limit:
		s.event(job, warning, "job-controller", batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	default:
		return
	}
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		r, uid := ref{gvrJobs, job.Namespace, job.Name}, job.UID
		s.after(time.Duration(*ttl)*time.Second, func() {
			if job, ok := get[*batchv1.Job](s, r); ok && job.UID == uid {
				s.removeNow(r)
			}
		})
	}
}

func (s *simulation) endJob(job *batchv1.Job, kind batchv1.JobConditionType, reason, message string) {
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastProbeTime: s.stamp(), LastTransitionTime: s.stamp(),
	})
}

// syncCronJob updates the list of active jobs and deletes old ones. It schedules a
// CronJob that it sees for the first time.
func (s *simulation) syncCronJob(cron *batchv1.CronJob) {
	if !s.ticking[cron.UID] {
		if every, ok := scheduleInterval(cron.Spec.Schedule); ok {
			s.ticking[cron.UID] = true
			s.tick(ref{gvrCronJobs, cron.Namespace, cron.Name}, cron.UID, every)
		}
	}
	var active []corev1.ObjectReference
	var good, bad []*batchv1.Job
	for _, job := range owned[*batchv1.Job](s, gvrJobs, cron) {
		switch over, failed := jobOver(job); {
		case !over:
			about := referTo(job)
			active = append(active, about)
		case failed:
			bad = append(bad, job)
		default:
			good = append(good, job)
		}
	}
	mutateStatus(s, ref{gvrCronJobs, cron.Namespace, cron.Name}, "kube-controller-manager", func(cron *batchv1.CronJob) {
		cron.Status.Active = active
		for _, job := range good {
			if t := job.Status.CompletionTime; t != nil && (cron.Status.LastSuccessfulTime == nil || cron.Status.LastSuccessfulTime.Before(t)) {
				cron.Status.LastSuccessfulTime = t
			}
		}
	})
	s.dropJobs(good, 3)
	s.dropJobs(bad, 1)
}

func (s *simulation) dropJobs(jobs []*batchv1.Job, keep int) {
	slices.SortStableFunc(jobs, func(a, b *batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, job := range jobs[:max(0, len(jobs)-keep)] {
		s.removeNow(ref{gvrJobs, job.Namespace, job.Name})
	}
}

// tick starts the jobs of a CronJob by its schedule.
func (s *simulation) tick(r ref, uid types.UID, every time.Duration) {
	// By the minute of simulated time, regardless of the speed.
	s.after(every-s.clock%every, func() {
		cron, ok := get[*batchv1.CronJob](s, r)
		if !ok || cron.UID != uid {
			delete(s.ticking, uid)
			return
		}
		if cron.Spec.Suspend == nil || !*cron.Spec.Suspend {
			s.startJob(cron)
		}
		s.tick(r, uid, every)
	})
}

func (s *simulation) startJob(cron *batchv1.CronJob) {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("%s-%d", cron.Name, s.now().Unix()/60),
			Namespace:       cron.Namespace,
			Labels:          copyMap(cron.Spec.JobTemplate.Labels),
			Annotations:     map[string]string{"batch.kubernetes.io/cronjob-scheduled-timestamp": s.now().UTC().Format(time.RFC3339)},
			OwnerReferences: controllerRef(cron, gvkCronJob),
		},
		Spec: *cron.Spec.JobTemplate.Spec.DeepCopy(),
	}
	if _, taken := get[*batchv1.Job](s, ref{gvrJobs, job.Namespace, job.Name}); taken {
		job.Name += "-" + s.suffix(4) // at high speed there are several a minute
	}
	s.manage(job, gvkJob, "kube-controller-manager")
	if _, ok := create(s, gvrJobs, job); !ok {
		return
	}
	mutateStatus(s, ref{gvrCronJobs, cron.Namespace, cron.Name}, "kube-controller-manager", func(cron *batchv1.CronJob) {
		cron.Status.LastScheduleTime = ptr(s.stamp())
	})
	s.event(cron, normal, "cronjob-controller", "SuccessfulCreate", "Created job %s", job.Name)
}

// scheduleInterval parses the schedules "*/N * * * *" and "M * * * *".
func scheduleInterval(schedule string) (time.Duration, bool) {
	fields := strings.Fields(schedule)
	if len(fields) != 5 || strings.Join(fields[1:], "") != "****" {
		return 0, false
	}
	if fields[0] == "*" {
		return time.Minute, true
	}
	if n, ok := strings.CutPrefix(fields[0], "*/"); ok {
		minutes, err := strconv.Atoi(n)
		return time.Duration(minutes) * time.Minute, err == nil && minutes > 0
	}
	_, err := strconv.Atoi(fields[0])
	return time.Hour, err == nil
}
