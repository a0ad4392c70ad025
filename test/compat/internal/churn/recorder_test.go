package churn

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestVersionsAreToldByWhereTheyComeFrom(t *testing.T) {
	const collection = "/api/v1/namespaces/ns/pods"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.FormValue("sendInitialEvents") != "":
			fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"resourceVersion":"3"}}}`)
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		case req.FormValue("watch") != "":
			fmt.Fprintln(w, `{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"9"}}}`)
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}`)
		default:
			fmt.Fprintln(w, `{"metadata":{"resourceVersion":"7"},"items":[]}`)
		}
	}))
	defer server.Close()
	r := newRecorder(normalizer{"ns"}, []string{collection})
	client := http.Client{Transport: r.wrap(server.Client().Transport)}
	for _, query := range []string{
		"limit=500&resourceVersion=0",
		"watch=true&resourceVersion=7&timeoutSeconds=312&timeout=5m12s",
		"watch=true&resourceVersion=7", // which was the last before
		"watch=true&resourceVersion=9&sendInitialEvents=true",
		"watch=true&resourceVersion=20&timeoutSeconds=3",
	} {
		resp, err := client.Get(server.URL + collection + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		}
		resp.Body.Close()
	}
	requests, calls := r.drain()
	got := strings.Join(lines(requests["/api/v1/namespaces/NAMESPACE/pods"]), "\n")
	want := `list limit=500&resourceVersion=0: 200
watch resourceVersion=LAST&timeoutSeconds=5-10m: 200, then 410
watch resourceVersion=UNKNOWN: 200, then 410
watch resourceVersion=LAST&sendInitialEvents=true: 200
watch resourceVersion=LAST&timeoutSeconds=3: 200, then 410`
	if got != want || len(calls) != 0 {
		t.Errorf("requests:\n%s\nwant:\n%s\nand no calls, there are %v", got, want, calls)
	}

	resp, err := client.Post(server.URL+collection, "application/json", strings.NewReader(`{"metadata":{"namespace":"ns","uid":"1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, calls := r.drain(); len(calls) != 1 || calls[0].String() != `POST /api/v1/namespaces/NAMESPACE/pods 200 {"metadata":{"namespace":"NAMESPACE","uid":"SOME"}}` {
		t.Errorf("calls: %v", calls)
	}
}
