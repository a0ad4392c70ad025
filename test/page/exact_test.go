package page_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// addWidgets makes a cluster serve a custom resource.
func addWidgets(tb testing.TB, c *fakeapi.Cluster) {
	tb.Helper()
	if err := c.AddResource(metav1.APIResource{Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"}}); err != nil {
		tb.Fatal(err)
	}
}

func widget(name string, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": name}, "status": status,
	}}
}

// Numbers are shown as the cluster has them, also those that JavaScript cannot hold.
func TestNumbersAreExact(t *testing.T) {
	s, c := startRemembering(t)
	addWidgets(t, c)
	numbers := func(id, ratio string) map[string]any {
		return map[string]any{"id": json.Number(id), "ratio": json.Number(ratio), "most": json.Number("1e3"), "all": []any{json.Number("18446744073709551617")}, "small": json.Number("0.5")}
	}
	put(t, c, widget("web", numbers("9007199254740993", "1.0")))
	put(t, c, widget("other", numbers("-9007199254740995", "2.50")))
	p := visit(t, s, "#/widgets?object=shop/web&columns=.status.id,.status.ratio", "410")
	for _, fact := range []string{"id 9007199254740993", "ratio 1.0", "most 1e3", "all 18446744073709551617", "small 0.5"} {
		p.awaitText(".object .scroll", fact)
	}
	p.await("the columns have them", "document.querySelector('tbody').innerText.includes('9007199254740993\\t1.0')")
	p.press("y")
	for _, line := range []string{"id: 9007199254740993", "ratio: 1.0", "most: 1e3", "- 18446744073709551617", "small: 0.5"} {
		p.awaitText(".object pre", line)
	}
	p.press("h")
	p.awaitText(".lanes", "Widget web")
	p.await("the history has begun", "!/loading|not shown/.test(document.querySelector('.object .scroll').innerText)")
	put(t, c, widget("web", numbers("9007199254740992", "1.50")))
	p.awaitText(".changes", ".status.id 9007199254740993 → 9007199254740992")
	p.awaitText(".changes", ".status.ratio 1.0 → 1.50")
	evaluate[string](p, "location.hash = '#/widgets?object=shop/web&view=compare&with=shop/other'")
	p.awaitText(".object .fields", ".status.id 9007199254740992 → -9007199254740995")
	p.awaitText(".object .fields", ".status.ratio 1.50 → 2.50")
}
