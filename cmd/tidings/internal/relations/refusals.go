package relations

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/cluster"
)

// What the API server says when it refuses a request, as it is found in conditions, events
// and the last words of containers.
var (
	quotaExceeded = regexp.MustCompile(`exceeded quota: ([a-z0-9.-]+)(?:, (requested: .*))?`)
	notPermitted  = regexp.MustCompile(`User "system:serviceaccount:([a-z0-9-]+):([a-z0-9.-]+)" cannot (\S+) resource "([^"]+)"(?: in API group "[^"]*")?(?: in the namespace "([^"]+)")?`)
)

// refusedByQuota leads to the quota that a text names.
func refusedByQuota(o Object, text, field string, to func(target)) {
	m := quotaExceeded.FindStringSubmatch(text)
	if m == nil {
		return
	}
	message := fmt.Sprintf("it refuses objects of %s", o.Ref)
	if m[2] != "" {
		message += ": " + m[2]
	}
	to(target{kind: "ResourceQuota", namespace: o.Namespace, name: m[1], field: field, optional: true, found: func(_ *around, n *Node) {
		n.blame(Finding{shortened(message, maxMessage), "status.hard"})
	}})
}

// refusedAs leads to the ServiceAccount that lacked a right, according to a text.
func refusedAs(text, field string, to func(target)) {
	for _, m := range notPermitted.FindAllStringSubmatch(text, maxFindings) {
		namespace, name, right, in := m[1], m[2], m[3]+" "+m[4], m[5]
		to(target{kind: "ServiceAccount", namespace: namespace, name: name, field: field, optional: true, found: func(a *around, n *Node) {
			a.lacks(n, namespace, name, right, in)
		}})
	}
}

func quotaOfSet(o Object, to func(target)) {
	const kind = "ReplicaFailure"
	if c := condition(o.get("status.conditions"), kind); c.Get("status").Str == "True" {
		refusedByQuota(o, c.Get("message").Str, "status.conditions["+kind+"].message", to)
	}
}

func refusalsOfEvent(o Object, to func(target)) {
	about := o
	about.Ref = Ref{Kind: o.str("involvedObject.kind"), Name: o.str("involvedObject.name"), Namespace: o.Namespace}
	refusedByQuota(about, o.str("message"), "message", to)
	refusedAs(o.str("message"), "message", to)
}

func refusalsOfPod(o Object, to func(target)) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		o.get("status." + list).ForEach(func(_, c gjson.Result) bool {
			for _, ended := range []string{"state.terminated", "lastState.terminated"} {
				refusedAs(c.Get(ended+".message").Str, fmt.Sprintf("status.%s[%s].%s.message", list, c.Get("name").Str, ended), to)
			}
			return true
		})
	}
}

// blame adds a finding to a node that explains what is wrong elsewhere.
func (n *Node) blame(f Finding) {
	if !slices.Contains(n.Wrong, f) && len(n.Wrong) < maxFindings {
		n.Wrong = append(n.Wrong, f)
	}
}

// lacks adds to a ServiceAccount which right it lacked, and which bindings it has. It
// claims nothing unless all bindings can be seen that could grant the right.
func (a *around) lacks(n *Node, namespace, name, right, in string) {
	where, looked := "at the cluster scope", []string{"ClusterRoleBinding" + rbac}
	if in != "" {
		where, looked = fmt.Sprintf("in the namespace %q", in), append(looked, "RoleBinding"+rbac)
	}
	var bound []string
	for _, kind := range looked {
		r, ok := a.named(kind)
		if !ok {
			return
		}
		bindings, err := a.open([]cluster.Resource{r}, in)[0].all()
		if err != nil {
			a.cannotLook(r.String(), err)
			return
		}
		for _, b := range bindings {
			if o := NewObject(b.JSON()); grantsTo(o, namespace, name) {
				bound = append(bound, fmt.Sprintf("%s (%s/%s)", o.Ref, o.str("roleRef.kind"), o.str("roleRef.name")))
			}
		}
	}
	has := "no binding is for it"
	if len(bound) > 0 {
		slices.Sort(bound)
		has = "its bindings there are " + strings.Join(bound[:min(len(bound), 3)], ", ")
		if len(bound) > 3 {
			has += fmt.Sprintf(" and %d more", len(bound)-3)
		}
	}
	n.blame(Finding{shortened(fmt.Sprintf("it could not %s %s: %s", right, where, has), maxMessage), "subjects of bindings"})
}

// grantsTo reports whether a binding is for a ServiceAccount itself. Groups of all
// ServiceAccounts have the rights of everybody, such as discovery.
func grantsTo(binding Object, namespace, name string) (is bool) {
	binding.get("subjects").ForEach(func(_, s gjson.Result) bool {
		is = s.Get("kind").Str == "ServiceAccount" && s.Get("name").Str == name && s.Get("namespace").Str == namespace ||
			s.Get("kind").Str == "User" && s.Get("name").Str == "system:serviceaccount:"+namespace+":"+name ||
			s.Get("kind").Str == "Group" && s.Get("name").Str == "system:serviceaccounts:"+namespace
		return !is
	})
	return is
}
