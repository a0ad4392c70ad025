package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// populate makes a few objects of several kinds.
func (r *rig) populate() {
	r.Helper()
	for _, o := range []fakeapi.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Labels: map[string]string{"k8s-app": "kube-dns", "tier": "system"}}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "n1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-2", Labels: map[string]string{"app": "web", "v": "2"}}, Spec: corev1.PodSpec{NodeName: "n2"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
	} {
		_, err := r.cluster.Create(o)
		r.must(err)
	}
}

func TestRoutes(t *testing.T) {
	r := start(t, options{})
	r.populate()
	coredns, web := "kube-system/coredns", "default/web"
	pods := []string{"default/web-1", "default/web-2"}
	for path, want := range map[string][]string{
		"/deploy?labels[k8s-app]=kube-dns":                     {coredns},
		"/deploy?labels%5Bk8s-app%5D=kube-dns":                 {coredns},
		"/deploy?labels[k8s-app]=kube-dns&labels[tier]=system": {coredns},
		"/deploy?labels[k8s-app]=kube-dns&labels[tier]=other":  {},
		"/deploy?labels[app]=web&labels[app]=api":              {},
		"/deploy":                                                  {web, coredns},
		"/deployments.apps":                                        {web, coredns},
		"/deployments.v1.apps/":                                    {web, coredns},
		"/Deployment?namespace=default":                            {web},
		"/po?labelSelector=app%3Dweb,v":                            {pods[1]},
		"/po?labelSelector=app%3Dweb&labelSelector=!v":             {pods[0]},
		"/po?labelSelector=app%3Dweb&labels[v]=2":                  {pods[1]},
		"/pods?fieldSelector=spec.nodeName%3Dn1":                   {pods[0]},
		"/pods?fieldSelector=metadata.name!%3Dweb-1":               {pods[1]},
		"/core/v1/pods":                                            pods,
		"/core/v1/pods?limit=0":                                    pods,
		"/core/v1/pods?watch=false":                                pods,
		"/core/v1/pods/default":                                    pods,
		"/core/v1/pods/nowhere":                                    {},
		"/core/v1/pods/default/web-1":                              {pods[0]},
		"/core/v1/po/default/web%2D1":                              {pods[0]},
		"/core/v1/nodes":                                           {"n1", "n2"},
		"/core/v1/nodes/n1":                                        {"n1"},
		"/apps/v1/deployments":                                     {web, coredns},
		"/apps/v1/deploy/kube-system/coredns":                      {coredns},
		"/clusters/test/deploy":                                    {web, coredns},
		"/clusters/test/apps/v1/deployments":                       {web, coredns},
		"/clusters/test/apps/v1/deployments/default":               {web},
		"/clusters/test/apps/v1/deployments/default/web":           {web},
		"/clusters/test/core/v1/nodes/n2?source=cache":             {"n2"},
		"/clusters/test/core/v1/nodes?fieldSelector=metadata.name": nil, // malformed
	} {
		for _, source := range []string{"", "live"} {
			if source != "" && !strings.Contains(path, "source=") {
				sep := "?"
				if strings.Contains(path, "?") {
					sep = "&"
				}
				path += sep + "source=" + source
			}
			a := r.get(path)
			if want == nil {
				if a.code != http.StatusBadRequest {
					t.Errorf("%s: %d %s", path, a.code, a.body)
				}
				continue
			}
			if a.code != http.StatusOK || a.ResourceVersion == "" || a.Continue != "" {
				t.Errorf("%s: %d %s", path, a.code, a.body)
			}
			same(t, path, a.names(), want)
			if bytes.Contains(a.Data, []byte(`"items"`)) || !bytes.HasSuffix(a.body, []byte("}\n")) {
				t.Errorf("%s: %s", path, a.body)
			}
		}
	}
	var one meta
	r.must(json.Unmarshal(r.get("/core/v1/pods/default/web-1").Data, &one))
	if one.Kind != "Pod" || one.APIVersion != "v1" {
		t.Errorf("kind and apiVersion are %q and %q", one.Kind, one.APIVersion)
	}
}

func TestPages(t *testing.T) {
	r := start(t, options{})
	var want []string
	for i := range 25 {
		r.set("default", fmt.Sprintf("cm-%02d", i), "1")
		want = append(want, fmt.Sprintf("default/cm-%02d", i))
	}
	for _, source := range []string{"cache", "live"} {
		var got []string
		next, pages := "", 0
		for {
			a := r.get("/cm?limit=10&source=" + source + next)
			if a.code != http.StatusOK {
				t.Fatalf("%d %s", a.code, a.body)
			}
			got = append(got, a.names()...)
			if pages++; a.Continue == "" {
				break
			}
			if a.Remaining == nil || int(*a.Remaining) != len(want)-len(got) {
				t.Errorf("remaining: %s", a.body[len(a.body)-100:])
			}
			if url.QueryEscape(a.Continue) != a.Continue {
				t.Errorf("the token %q has to be escaped", a.Continue)
			}
			next = "&continue=" + a.Continue
		}
		same(t, source, got, want)
		if pages != 3 {
			t.Errorf("%d pages", pages)
		}
		if a := r.get("/cm?limit=10&namespace=default&source=" + source + next); a.code != http.StatusGone || a.Reason != "Expired" {
			t.Errorf("a token of another query: %d %s", a.code, a.body)
		}
	}
}

func TestErrors(t *testing.T) {
	forbidden := func(_ fakeapi.User, a fakeapi.Access) bool { return a.Resource != "services" }
	r := start(t, options{cluster: fakeapi.Options{Allow: forbidden}})
	for path, want := range map[string]struct {
		code   int
		reason string
		exists string // one of those
	}{
		"/podz":                                            {404, "UnknownResource", "pods"},
		"/gizmos":                                          {404, "UnknownResource", "pods"},
		"/apps/v2/deployments":                             {404, "UnknownResource", "deployments.apps"},
		"/nogroup/v1/pods":                                 {404, "UnknownResource", "pods"},
		"/core/v1/pods/default/nobody":                     {404, "NotFound", ""},
		"/core/v1/nodes/nobody":                            {404, "NotFound", ""},
		"/core/v1/nodes/nobody?source=live":                {404, "NotFound", ""},
		"/core/v1/nodes/a/b":                               {400, "Invalid", ""},
		"/nodes?namespace=default":                         {400, "Invalid", ""},
		"/core/v1/pods/default?namespace=other":            {400, "Invalid", ""},
		"/core/v1/pods/..%2f..%2fnodes":                    {400, "Invalid", ""},
		"/core/v1/pods/default/..%2fx?source=live":         {400, "Invalid", ""},
		"/core/v1/pods/default/%2e%2e?source=live":         {400, "Invalid", ""},
		"/clusters/nowhere/pods":                           {404, "UnknownCluster", "test"},
		"/clusters/nowhere":                                {404, "UnknownCluster", "test"},
		"/pods/default":                                    {404, "NoRoute", "/{resource}"},
		"/a/b/c/d/e/f":                                     {404, "NoRoute", "/{resource}"},
		"/core//pods":                                      {404, "NoRoute", "/{resource}"},
		"/pods?colour=red":                                 {400, "Invalid", "labelSelector"},
		"/pods?labelselector=a":                            {400, "Invalid", "labelSelector"},
		"/pods?since=5":                                    {400, "Invalid", "limit"},
		"/pods?labelSelector=a%20b":                        {400, "Invalid", ""},
		"/pods?labels[a%20b]=c":                            {400, "Invalid", ""},
		"/pods?labels[a=c":                                 {400, "Invalid", "labels[key]"},
		"/pods?fieldSelector=a":                            {400, "Invalid", ""},
		"/pods?fieldSelector=spec.colour%3Dred":            {400, "Invalid", "spec.nodeName"},
		"/pods?limit=many":                                 {400, "Invalid", ""},
		"/pods?limit=-1":                                   {400, "Invalid", ""},
		"/pods?limit=1&limit=2":                            {400, "Invalid", ""},
		"/pods?continue=damaged":                           {400, "Invalid", ""},
		"/pods?source=elsewhere":                           {400, "Invalid", "live"},
		"/pods?watch=perhaps":                              {400, "Invalid", "true"},
		"/pods?watch=true&limit=5":                         {400, "Invalid", "since"},
		"/pods?watch=true&since=yesterday":                 {400, "Invalid", ""},
		"/core/v1/pods/default/x?limit=1":                  {400, "Invalid", "source"},
		"/pods?a=%zz":                                      {400, "Invalid", ""},
		"/secrets":                                         {403, "Withheld", ""},
		"/core/v1/secrets/default/x?source=live":           {403, "Withheld", ""},
		"/clusters/test/core/v1/secret?watch=true":         {403, "Withheld", ""},
		"/services":                                        {403, "Forbidden", ""},
		"/services?source=live":                            {403, "Forbidden", ""},
		"/pods?" + strings.Repeat("labels[a]=b&", 9000/12): {414, "Invalid", ""},
	} {
		a := r.get(path)
		if a.code != want.code || a.Reason != want.reason || a.Error == "" {
			t.Errorf("%.80s: %d %s; want %d %s", path, a.code, a.body, want.code, want.reason)
		}
		if want.exists != "" && !slices.Contains(a.Exists, want.exists) {
			t.Errorf("%.80s: %s is not among %v", path, want.exists, a.Exists)
		}
		if len(a.Data) > 0 {
			t.Errorf("%.80s: an error with data: %s", path, a.body)
		}
	}
	if a := r.get("/services"); !strings.Contains(a.Error, `cannot list resource "services"`) || !strings.Contains(a.Error, "can-i list services)") {
		t.Errorf("the API server's words and the way out are missing: %s", a.Error)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "BREW"} {
		req, _ := http.NewRequest(method, r.url+"/pods", strings.NewReader("{}"))
		if a := r.do(req); a.code != http.StatusMethodNotAllowed || a.Reason == "" || a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d %s", method, a.code, a.body)
		}
	}
	req, _ := http.NewRequest(http.MethodHead, r.url+"/pods", nil)
	if a := r.do(req); a.code != http.StatusOK || len(a.body) != 0 {
		t.Errorf("HEAD: %d %q", a.code, a.body)
	}
}

func TestNotSyncedYet(t *testing.T) {
	hold := make(chan struct{})
	r := start(t, options{
		cluster: fakeapi.Options{NoWatchList: true}, fault: fakeapi.On("list", configMaps, &fakeapi.Fault{Until: hold}),
		mirror: mirror.Options{Wait: 100 * time.Millisecond, Resources: []string{"cm", mirror.Everything}},
	})
	eventually(t, "the first list is under way", func() bool { return r.cluster.Count("list", configMaps) > 0 })
	a := r.get("/cm")
	if a.code != http.StatusServiceUnavailable || a.Reason != "NotSynced" || a.header.Get("Retry-After") == "" || a.Progress == nil || a.Progress.Phase != "listing" {
		t.Errorf("%d %v %s", a.code, a.header, a.body)
	}
	if a := r.get("/readyz"); a.code != http.StatusServiceUnavailable {
		t.Errorf("ready before the first list: %s", a.body)
	}
	if a := r.get("/healthz"); a.code != http.StatusOK {
		t.Errorf("not healthy: %d %s", a.code, a.body)
	}
	close(hold)
	eventually(t, "the server is ready", func() bool { return r.get("/readyz").code == http.StatusOK })
	if a := r.get("/cm"); a.code != http.StatusOK {
		t.Errorf("%d %s", a.code, a.body)
	}
}

func TestSeveralClusters(t *testing.T) {
	r := start(t, options{})
	other := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(other)
	defer stop()
	r.set("default", "here", "1")
	r.must(r.mirror.Set(t.Context(), map[string]*rest.Config{"test": r.config, "other": config}))
	same(t, "test", r.get("/clusters/test/cm").names(), []string{"default/here"})
	same(t, "other", r.get("/clusters/other/cm").names(), []string{})
	a := r.get("/cm")
	if a.code != http.StatusBadRequest || a.Reason != "ClusterNeeded" {
		t.Errorf("%d %s", a.code, a.body)
	}
	same(t, "clusters", a.Exists, []string{"other", "test"})
	var list struct {
		Data []struct {
			Name, Health string
			Resources    map[string]struct{ Objects int }
		}
	}
	r.must(json.Unmarshal(r.get("/clusters").body, &list))
	if len(list.Data) != 2 || list.Data[1].Name != "test" || list.Data[1].Health != "ok" || list.Data[1].Resources["configmaps.v1"].Objects != 1 {
		t.Errorf("clusters: %+v", list)
	}
	if a := r.get("/clusters/other"); !bytes.Contains(a.body, []byte(`"deployments.v1.apps"`)) || bytes.Contains(a.body, []byte(`"secrets.v1"`)) {
		t.Errorf("what can be asked for: %s", a.body)
	}
	r.must(r.mirror.Set(t.Context(), nil))
	if a := r.get("/cm"); a.code != http.StatusServiceUnavailable {
		t.Errorf("without clusters: %d %s", a.code, a.body)
	}
}

func TestGzip(t *testing.T) {
	r := start(t, options{})
	for i := range 100 {
		r.set("default", fmt.Sprint("cm-", i), strings.Repeat("x", 100))
	}
	plain := r.get("/cm", "Accept-Encoding", "identity")
	packed := r.get("/cm", "Accept-Encoding", "gzip")
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.body) > len(plain.body)/4 {
		t.Fatalf("%v, %d of %d bytes", packed.header, len(packed.body), len(plain.body))
	}
	z, err := gzip.NewReader(bytes.NewReader(packed.body))
	r.must(err)
	unpacked, err := io.ReadAll(z)
	r.must(err)
	if !bytes.Equal(unpacked, plain.body) {
		t.Error("it is not the same")
	}
}

func TestIndex(t *testing.T) {
	r := start(t, options{})
	if a := r.get("/"); a.code != http.StatusOK || !bytes.Contains(a.body, []byte("/deploy?labels[k8s-app]=kube-dns")) {
		t.Errorf("%d %s", a.code, a.body)
	}
	a := r.get("/", "Accept", "application/json")
	var index struct{ Routes, Parameters, Clusters []string }
	r.must(json.Unmarshal(a.body, &index))
	if len(index.Routes) < 10 || !slices.Contains(index.Parameters, "labelSelector") || !slices.Contains(index.Clusters, "test") {
		t.Errorf("%s", a.body)
	}
}

func TestHostHeader(t *testing.T) {
	r := start(t, options{})
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8888": 200, "LOCALHOST.": 200, "tidings.localhost:1": 200, "127.0.0.1": 200, "127.9.9.9:80": 200, "[::1]:8888": 200,
		"evil.example": 403, "evil.example:8888": 403, "10.0.0.1": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "0.0.0.0": 403,
	} {
		if a := r.get("/healthz", "Host", host); a.code != want {
			t.Errorf("%s: %d %s", host, a.code, a.body)
		}
	}
}
