package table

import (
	"strings"
	"time"

	"github.com/tidwall/gjson"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	certificates = "certificates.k8s.io"
	coordination = "coordination.k8s.io"
	flowcontrol  = "flowcontrol.apiserver.k8s.io"
	rbac         = "rbac.authorization.k8s.io"
)

func policies() []kind {
	return []kind{
		{group: "policy", kind: "PodDisruptionBudget", columns: []column{
			name,
			text("Min Available", "The minimum number of pods that must be available.", at("spec.minAvailable", "N/A")),
			text("Max Unavailable", "The maximum number of pods that may be unavailable.", at("spec.maxUnavailable", "N/A")),
			integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.", number("status.disruptionsAllowed")),
			age,
		}},
		{group: "autoscaling", kind: "HorizontalPodAutoscaler", columns: autoscalerColumns()},
		{group: "scheduling.k8s.io", kind: "PriorityClass", columns: []column{
			name,
			integer("Value", doc(schedulingv1.PriorityClass{}, "value"), number("value")),
			boolean("Global-Default", doc(schedulingv1.PriorityClass{}, "globalDefault"), flag("globalDefault", false)),
			age,
			text("PreemptionPolicy", doc(schedulingv1.PriorityClass{}, "preemptionPolicy"), at("preemptionPolicy")),
		}},
		{group: "node.k8s.io", kind: "RuntimeClass", columns: []column{name, text("Handler", "", at("handler")), age}},
		{group: coordination, kind: "Lease", columns: []column{
			name, text("Holder", doc(coordinationv1.LeaseSpec{}, "holderIdentity"), at("spec.holderIdentity")), age,
		}},
		{group: coordination, kind: "LeaseCandidate", columns: []column{
			name,
			text("LeaseName", doc(coordinationv1alpha2.LeaseCandidateSpec{}, "leaseName"), at("spec.leaseName")),
			text("BinaryVersion", "", at("spec.binaryVersion")),
			text("EmulationVersion", "", at("spec.emulationVersion")),
			age,
		}},
		{group: flowcontrol, kind: "FlowSchema", orderedFrom: 2, columns: []column{
			name,
			text("PriorityLevel", doc(flowcontrolv1.PriorityLevelConfigurationReference{}, "name"), at("spec.priorityLevelConfiguration.name")),
			text("MatchingPrecedence", doc(flowcontrolv1.FlowSchemaSpec{}, "matchingPrecedence"), number("spec.matchingPrecedence")),
			text("DistinguisherMethod", doc(flowcontrolv1.FlowSchemaSpec{}, "distinguisherMethod"), at("spec.distinguisherMethod.type", "<none>")),
			age,
			text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", func(o *object) any {
				if dangling := condition(o.get("status.conditions"), string(flowcontrolv1.FlowSchemaConditionDangling)); dangling.Exists() {
					return str(dangling.Get("status"))
				}
				return "?"
			}),
		}},
		{group: flowcontrol, kind: "PriorityLevelConfiguration", columns: []column{
			name,
			text("Type", doc(flowcontrolv1.PriorityLevelConfigurationSpec{}, "type"), at("spec.type")),
			text("NominalConcurrencyShares", doc(flowcontrolv1.LimitedPriorityLevelConfiguration{}, "nominalConcurrencyShares"), numberIn("spec.limited", "nominalConcurrencyShares")),
			text("Queues", doc(flowcontrolv1.QueuingConfiguration{}, "queues"), numberIn("spec.limited.limitResponse.queuing", "queues")),
			text("HandSize", doc(flowcontrolv1.QueuingConfiguration{}, "handSize"), numberIn("spec.limited.limitResponse.queuing", "handSize")),
			text("QueueLengthLimit", doc(flowcontrolv1.QueuingConfiguration{}, "queueLengthLimit"), numberIn("spec.limited.limitResponse.queuing", "queueLengthLimit")),
			age,
		}},
		{group: rbac, kind: "RoleBinding", columns: bindingColumns("roleBinding", doc(rbacv1.RoleBinding{}, "roleRef"))},
		{group: rbac, kind: "ClusterRoleBinding", columns: bindingColumns("clusterRoleBinding", doc(rbacv1.ClusterRoleBinding{}, "roleRef"))},
		{group: certificates, kind: "CertificateSigningRequest", columns: []column{
			name, age,
			text("SignerName", doc(certificatesv1beta1.CertificateSigningRequestSpec{}, "signerName"), orIfEmpty("spec.signerName", "<none>")),
			text("Requestor", doc(certificatesv1beta1.CertificateSigningRequestSpec{}, "request"), at("spec.username")),
			text("RequestedDuration", doc(certificatesv1beta1.CertificateSigningRequestSpec{}, "expirationSeconds"), func(o *object) any {
				if seconds := o.get("spec.expirationSeconds"); is(seconds) {
					return duration.HumanDuration(time.Duration(seconds.Int()) * time.Second)
				}
				return "<none>"
			}),
			text("Condition", doc(certificatesv1beta1.CertificateSigningRequestStatus{}, "conditions"), signingStatus),
		}},
		{group: certificates, kind: "ClusterTrustBundle", columns: []column{
			name, text("SignerName", doc(certificatesv1beta1.ClusterTrustBundleSpec{}, "signerName"), orIfEmpty("spec.signerName", "<none>")),
		}},
		{group: certificates, kind: "PodCertificateRequest", columns: []column{
			name,
			text("PodName", doc(certificatesv1beta1.PodCertificateRequestSpec{}, "podName"), at("spec.podName")),
			text("ServiceAccountName", doc(certificatesv1beta1.PodCertificateRequestSpec{}, "serviceAccountName"), at("spec.serviceAccountName")),
			text("NodeName", doc(certificatesv1beta1.PodCertificateRequestSpec{}, "nodeName"), at("spec.nodeName")),
			text("SignerName", doc(certificatesv1beta1.PodCertificateRequestSpec{}, "signerName"), at("spec.signerName")),
			text("State", "Is the request Pending, Issued, Denied, or Failed?", func(o *object) any {
				state := "Pending"
				for _, kind := range each(o.get("status.conditions"), "type") {
					switch kind {
					case certificatesv1beta1.PodCertificateRequestConditionTypeIssued, certificatesv1beta1.PodCertificateRequestConditionTypeDenied, certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
						state = kind
					}
				}
				return state
			}),
			text("UnverifiedUserAnnotations", doc(certificatesv1beta1.PodCertificateRequestSpec{}, "unverifiedUserAnnotations"), pairs("spec.unverifiedUserAnnotations")),
		}},
	}
}

// numberIn makes cells with the integer of a field in a part of the object, or <none> if
// that part does not exist.
func numberIn(part, field string) func(*object) any {
	return func(o *object) any {
		if p := o.get(part); is(p) {
			return p.Get(field).Int()
		}
		return "<none>"
	}
}

func bindingColumns(kind, aboutRole string) []column {
	subjects := func(kind string) func(*object) any {
		return func(o *object) any {
			var out []string
			iterate(o.get("subjects"), func(_, s gjson.Result) bool {
				if s.Get("kind").Str == kind {
					subject := str(s.Get("name"))
					if kind == rbacv1.ServiceAccountKind {
						subject = s.Get("namespace").Str + "/" + subject
					}
					out = append(out, subject)
				}
				return true
			})
			return strings.Join(out, ", ")
		}
	}
	return []column{
		name,
		text("Role", aboutRole, func(o *object) any { return o.get("roleRef.kind").Str + "/" + o.get("roleRef.name").Str }),
		age,
		wide(text("Users", "Users in the "+kind, subjects(rbacv1.UserKind))),
		wide(text("Groups", "Groups in the "+kind, subjects(rbacv1.GroupKind))),
		wide(text("ServiceAccounts", "ServiceAccounts in the "+kind, subjects(rbacv1.ServiceAccountKind))),
	}
}

func signingStatus(o *object) any {
	conditions := o.get("status.conditions")
	has := func(kind certificatesv1.RequestConditionType) bool {
		return condition(conditions, string(kind)).Exists()
	}
	status := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		status = "Denied"
	case has(certificatesv1.CertificateApproved):
		status = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		status += ",Failed"
	}
	if o.get("status.certificate").Str != "" {
		status += ",Issued"
	}
	return status
}
