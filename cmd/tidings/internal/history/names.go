package history

import "slices"

// shortNames are the short names of built-in resources. A history does not have them, and
// without the cluster nothing else knows them.
var shortNames = map[string]string{
	"cm": "configmaps", "cs": "componentstatuses", "ep": "endpoints", "ev": "events", "limits": "limitranges",
	"no": "nodes", "ns": "namespaces", "po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims",
	"quota": "resourcequotas", "rc": "replicationcontrollers", "sa": "serviceaccounts", "svc": "services",
	"deploy": "deployments", "ds": "daemonsets", "rs": "replicasets", "sts": "statefulsets", "cj": "cronjobs",
	"hpa": "horizontalpodautoscalers", "ing": "ingresses", "netpol": "networkpolicies", "pdb": "poddisruptionbudgets",
	"pc": "priorityclasses", "sc": "storageclasses", "vac": "volumeattributesclasses", "csr": "certificatesigningrequests",
	"crd": "customresourcedefinitions", "crds": "customresourcedefinitions",
}

// Plural returns the plural name of a built-in resource that has this short name, and
// other names as they are.
func Plural(name string) string {
	if plural := shortNames[name]; plural != "" {
		return plural
	}
	return name
}

// ShortNames lists the short names of a built-in resource.
func ShortNames(plural string) []string {
	var found []string
	for short, of := range shortNames {
		if of == plural {
			found = append(found, short)
		}
	}
	slices.Sort(found)
	return found
}
