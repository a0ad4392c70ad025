package hostile

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
)

const (
	customGroup = "hostile.example.com"
	// oddNamespace is a name that is also a path segment of the API.
	oddNamespace = "namespaces"
	perNamespace = 3 // objects of each resource
)

var namespaceNames = []string{"team-0", "team-1", "team-2", "kube-system", oddNamespace, "0--0"}

// resource is a resource with objects in the world.
type resource struct {
	group, version, plural string
	namespaced             bool
	prefix                 string // of the names of objects
	// body of an object without its metadata; %s is a canary.
	body string
}

func (r resource) root() string {
	if r.group == "" {
		return "/api/" + r.version
	}
	return "/apis/" + r.group + "/" + r.version
}

func (r resource) path(namespace, name string) string {
	p := r.root()
	if r.namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + r.plural
	if name != "" {
		p += "/" + name
	}
	return p
}

var namespaces = resource{"", "v1", "namespaces", false, "", ``}

const podSpec = `{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"%s"}]}]}`

var resources = []resource{
	{"", "v1", "secrets", true, "s-", `"stringData":{"k":"%s"}`},
	{"", "v1", "configmaps", true, "c-", `"data":{"k":"%s"}`},
	{"", "v1", "pods", true, "p-", `"spec":` + podSpec},
	{"", "v1", "services", true, "v-", `"spec":{"clusterIP":"None","selector":{"k":"%s"}}`},
	{"", "v1", "events", true, "e-", `"message":"%s","reason":"R","type":"Normal","involvedObject":{"kind":"Pod","name":"p-0","namespace":"NAMESPACE"}`},
	{"apps", "v1", "replicasets", true, "x", `"spec":{"replicas":0,"selector":{"matchLabels":{"k":"%[1]s"}},"template":{"metadata":{"labels":{"k":"%[1]s"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`},
	{"apps", "v1", "deployments", true, "d-", `"spec":{"replicas":0,"selector":{"matchLabels":{"k":"%[1]s"}},"template":{"metadata":{"labels":{"k":"%[1]s"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`},
	{"rbac.authorization.k8s.io", "v1", "roles", true, "r-", `"rules":[{"apiGroups":[""],"resources":["%s"],"verbs":["get"]}]`},
	{customGroup, "v1", "gadgets", true, "g-", `"kind":"Gadget","apiVersion":"` + customGroup + `/v1","spec":{"text":"%s","replicas":1}`},
	{customGroup, "v1", "sprockets", false, "k-", `"kind":"Sprocket","apiVersion":"` + customGroup + `/v1","spec":{"text":"%s"}`},
	{"", "v1", "nodes", false, "n-", `"spec":{"providerID":"%s"}`},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", false, "odd:name with space;é-", `"rules":[{"apiGroups":[""],"resources":["%s"],"verbs":["get"]}]`},
	namespaces,
}

// world is the content of the cluster with the locations of the canaries.
type world struct {
	client   *http.Client
	host     string
	rnd      *rand.Rand
	canaries map[string]location
	callers  []*caller
	// version is a resourceVersion after all objects were created.
	version string
	// before is an earlier resourceVersion.
	before string
	// begun is when all namespaces existed.
	begun time.Time
}

func newWorld(config *rest.Config, rnd *rand.Rand) (*world, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &world{client: client, host: config.Host, rnd: rnd, canaries: map[string]location{}}, nil
}

// do makes a request as the administrator. It ignores AlreadyExists.
func (w *world) do(ctx context.Context, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.host+strings.NewReplacer(" ", "%20", "é", "%C3%A9").Replace(path), bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusConflict {
		return out, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, out)
	}
	return out, nil
}

// canary returns a new canary.
func (w *world) canary(r resource, namespace, name, part string) string {
	id := make([]byte, canaryID/2)
	for i := range id {
		id[i] = byte(w.rnd.Uint32())
	}
	c := canaryMark + hex.EncodeToString(id)
	if part == "name" {
		name = "(of that name)"
	}
	w.canaries[c] = location{r, namespace, name, part}
	return c
}

func (w *world) metadata(r resource, namespace, name string) string {
	return fmt.Sprintf(`"metadata":{"name":%q,"labels":{"app":"a%d","canary":%q},"annotations":{"canary":%q}}`,
		name, len(name)%3, w.canary(r, namespace, name, "label"), w.canary(r, namespace, name, "annotation"))
}

func (w *world) create(ctx context.Context, r resource, namespace, name string) error {
	body := strings.ReplaceAll(r.body, "NAMESPACE", namespace)
	if strings.Contains(body, "%") {
		body = fmt.Sprintf(body, w.canary(r, namespace, name, "content"))
	}
	body = strings.TrimSuffix(w.metadata(r, namespace, name)+","+body, ",")
	_, err := w.do(ctx, http.MethodPost, r.path(namespace, ""), "{"+body+"}")
	return err
}

func definition(plural, kind, scope string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%[1]s.%[4]s"},"spec":{"group":%[4]q,"scope":%[3]q,"names":{"plural":%[1]q,"kind":%[2]q},
		"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"replicas":{"type":"integer"}}}}}}}]}}`,
		plural, kind, scope, customGroup)
}

// fill creates all objects.
func (w *world) fill(ctx context.Context) error {
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, d := range []string{definition("gadgets", "Gadget", "Namespaced"), definition("sprockets", "Sprocket", "Cluster")} {
		if _, err := w.do(ctx, http.MethodPost, definitions, d); err != nil {
			return err
		}
	}
	for _, name := range namespaceNames {
		if name == "kube-system" { // it exists, or is created by the server, without canaries
			_, _ = w.do(ctx, http.MethodPost, namespaces.path("", ""), `{"metadata":{"name":"kube-system"}}`)
			continue
		}
		if err := w.create(ctx, namespaces, "", name); err != nil {
			return err
		}
	}
	for _, plural := range []string{"gadgets", "sprockets"} {
		for {
			if _, err := w.do(ctx, http.MethodGet, "/apis/"+customGroup+"/v1/"+plural, ""); err == nil {
				break
			}
			if !soak.Sleep(ctx, 50*time.Millisecond) {
				return fmt.Errorf("%s are not served: %w", plural, ctx.Err())
			}
		}
	}
	w.begun = time.Now()
	var err error
	if w.before, err = w.now(ctx); err != nil {
		return err
	}
	for _, r := range resources {
		in := namespaceNames
		if !r.namespaced {
			in = []string{""}
		}
		for _, namespace := range in {
			for i := range perNamespace {
				name := fmt.Sprint(r.prefix, i)
				switch {
				case r == namespaces:
					continue
				case r.plural == "replicasets" && i == 0:
					name = "x"
				case i == perNamespace-1:
					name = w.canary(r, namespace, "", "name")
				}
				if err := w.create(ctx, r, namespace, name); err != nil {
					return err
				}
			}
		}
	}
	if err := w.makeCallers(ctx); err != nil {
		return err
	}
	w.version, err = w.now(ctx)
	return err
}

// live gives the histories of the mirrors something that the cluster no longer has: of
// each resource, in each namespace, an object that is created, changed and deleted, and an
// older version of another.
func (w *world) live(ctx context.Context, name string) error {
	for _, r := range resources {
		in := namespaceNames
		if !r.namespaced {
			in = []string{""}
		}
		for _, namespace := range in {
			if r == namespaces {
				continue // its content takes long to delete
			}
			name := r.prefix + name
			if err := w.create(ctx, r, namespace, name); err != nil {
				return err
			}
			stays := r.prefix + "0"
			if r.plural == "replicasets" {
				stays = "x"
			}
			for _, name := range []string{name, stays} {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"canary":%q}}}`, w.canary(r, namespace, name, "annotation"))
				if _, err := w.do(ctx, http.MethodPatch, r.path(namespace, name), patch); err != nil {
					return err
				}
			}
			if _, err := w.do(ctx, http.MethodDelete, r.path(namespace, name)+"?gracePeriodSeconds=0", ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// now returns the current version of the cluster.
func (w *world) now(ctx context.Context) (string, error) {
	body, err := w.do(ctx, http.MethodGet, "/api/v1/configmaps?limit=1", "")
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(body, &list)
	return list.Metadata.ResourceVersion, err
}

// makeCallers creates a service account with rights and a token for each caller.
func (w *world) makeCallers(ctx context.Context) error {
	for _, c := range users() {
		if _, err := w.do(ctx, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", fmt.Sprintf(`{"metadata":{"name":%q}}`, c.name)); err != nil {
			return err
		}
		for i, r := range c.rules {
			if err := w.grant(ctx, c.name, fmt.Sprint(c.name, "-", i), r); err != nil {
				return err
			}
		}
		body, err := w.do(ctx, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/"+c.name+"/token",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":86400}}`)
		if err != nil {
			return err
		}
		var token struct {
			Status struct {
				Token string `json:"token"`
			} `json:"status"`
		}
		if err := json.Unmarshal(body, &token); err != nil {
			return err
		}
		c.token = token.Status.Token
		w.callers = append(w.callers, c)
	}
	return nil
}

// grant grants a service account a right.
func (w *world) grant(ctx context.Context, account, name string, r rule) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	rules, err := json.Marshal([]map[string][]string{{"apiGroups": {r.group}, "resources": r.resources, "verbs": r.verbs, "resourceNames": r.names}})
	if err != nil {
		return err
	}
	root, kind := rbac+"cluster", "ClusterRole"
	if r.namespace != "" {
		root, kind = rbac+"namespaces/"+r.namespace+"/", "Role"
	}
	if _, err := w.do(ctx, http.MethodPost, root+"roles", fmt.Sprintf(`{"metadata":{"name":%q},"rules":%s}`, name, rules)); err != nil {
		return err
	}
	_, err = w.do(ctx, http.MethodPost, root+"rolebindings", fmt.Sprintf(`{"metadata":{"name":%[1]q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%[2]q,"name":%[1]q},
		"subjects":[{"kind":"ServiceAccount","namespace":"default","name":%[3]q}]}`, name, kind, account))
	return err
}
