package table_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// upstream is the real API server.
type upstream struct {
	client *http.Client
	host   string
}

func connect(t *testing.T) (*controlplane.Cluster, *upstream) {
	cp := controlplane.Shared(t)
	client, err := rest.HTTPClientFor(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return cp, &upstream{client, cp.URL()}
}

func (u *upstream) do(ctx context.Context, method, path, accept string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}

// table gets a path as a Table with whole objects. The answer was made between asked and
// answered.
func (u *upstream) table(t *testing.T, path string) (out *metav1.Table, asked, answered time.Time) {
	t.Helper()
	asked = time.Now()
	answer, err := u.do(t.Context(), http.MethodGet, path+"?includeObject=Object", "application/json;as=Table;g=meta.k8s.io;v=v1", nil)
	answered = time.Now()
	if err != nil {
		t.Fatal(err)
	}
	out = &metav1.Table{}
	if err := json.Unmarshal(answer, out); err != nil {
		t.Fatal(err)
	}
	return out, asked, answered
}

// served is a resource that can be listed.
type served struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
}

func (s served) path(namespace string) string {
	path := "/apis/" + s.GroupVersion().String()
	if s.Group == "" {
		path = "/api/" + s.Version
	}
	if namespace != "" && s.namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + s.resource
}

// resources returns all built-in resources of the API server, in every version.
func (u *upstream) resources(t *testing.T, cp *controlplane.Cluster) []served {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfigAndClient(cp.AdminConfig(), u.client)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []served
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && gv.Group != "table.example.com" {
				out = append(out, served{gv.WithKind(r.Kind), r.Name, r.Namespaced})
			}
		}
	}
	return out
}

// difference compares a row of upstream with ours at any time between the request and the
// answer, and a second more on each side, because clocks may be set. "" means that they are
// the same.
func difference(p *table.Printer, want metav1.TableRow, asked, answered time.Time) string {
	row, err := p.Row(want.Object.Raw)
	if err != nil {
		return err.Error()
	}
	diff := ""
	asked, answered = asked.Add(-time.Second), answered.Add(time.Second)
	for at := asked; ; at = at.Add(20 * time.Millisecond) { // two ages with fractions of a second fit each other for less than a second
		if at.After(answered) {
			at = answered
		}
		// Compare what a client reads.
		var got metav1.TableRow
		b, err := json.Marshal(metav1.TableRow{Cells: row.Cells(at), Conditions: row.Conditions()})
		if err != nil {
			return err.Error()
		}
		if err := json.Unmarshal(b, &got); err != nil {
			return err.Error()
		}
		d := cmp.Diff(want.Cells, got.Cells) + cmp.Diff(want.Conditions, got.Conditions)
		if d == "" {
			return ""
		}
		if diff == "" {
			diff = d
		}
		if at.Equal(answered) {
			return fmt.Sprintf("between %s and %s:\n%s", asked.Format(time.RFC3339Nano), answered.Format(time.RFC3339Nano), diff)
		}
	}
}

// sameDescribed compares column definitions, and whether they have descriptions. The text
// of descriptions is not compared: most are the documentation of an API type, which changes
// between versions of Kubernetes, and this repository uses a newer version than the API
// server.
var sameDescribed = cmp.Comparer(func(a, b metav1.TableColumnDefinition) bool {
	described := (a.Description == "") == (b.Description == "")
	a.Description, b.Description = "", ""
	return described && a == b
})

func TestColumnsAreUpstreams(t *testing.T) {
	cp, u := connect(t)
	for _, r := range u.resources(t, cp) {
		t.Run(r.String(), func(t *testing.T) {
			want, asked, answered := u.table(t, r.path(""))
			p := table.For(r.GroupVersionKind, nil)
			if d := cmp.Diff(want.ColumnDefinitions, p.Columns(), sameDescribed); d != "" {
				t.Errorf("columns, want -, have +\n%s", d)
			}
			for _, row := range want.Rows {
				forgive(t, r, p, row)
				if d := difference(p, row, asked, answered); d != "" {
					t.Errorf("cells, want -, have +\n%s\nof %s", d, row.Object.Raw)
				}
			}
		})
	}
}
