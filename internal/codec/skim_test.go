package codec

import (
	"encoding/json"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/internal/samplepods"
)

// The skimmer understands what API servers send, and nothing that has been cut off.
func TestSkimmerReadsPods(t *testing.T) {
	for pod := range samplepods.All(1, 1) {
		for _, kind := range []string{"", "Pod"} {
			if pod.Kind, pod.APIVersion = kind, ""; kind != "" {
				pod.APIVersion = "v1"
			}
			content, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			s := skimmer{json: content}
			id, typed, ok := s.whole()
			if !ok || typed != (kind != "") || id.Namespace != pod.Namespace || id.Name != pod.Name || id.UID != string(pod.UID) || id.ResourceVersion != pod.ResourceVersion {
				t.Fatalf("%v, %v, %v; it stops at %.40s", id, typed, ok, content[s.at:])
			}
			s = skimmer{json: content}
			if again, ok := s.peek(); again != id || !ok || s.at > 300 {
				t.Fatalf("the first look finds %v, %v after %d of %d bytes", again, ok, s.at, len(content))
			}
			for end := range content {
				s := skimmer{json: content[:end]}
				if _, _, ok := s.whole(); ok {
					t.Fatalf("it understands %s", content[:end])
				}
			}
		}
	}
}

// What the skimmer understands is JSON, and other parsers understand the same.
func FuzzSkimmer(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"kind":"A","apiVersion":"b","metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"1","labels":{"a":"b"}},"spec":[1,-2,[],{},true,false,null,"\u00e9\n\\"]}`,
		`{"metadata":{"name":"a"},"metadata":{"name":"b","uid":"c"}}`, `{"kind":"A"}`, `{"kind":""}`, `{"metadata":null}`, `{"metadata":{"name":1}}`,
		`{"metadata":{"n\u0061me":"x"}}`, `{"metadata":{"labels":{"a":1}}}`, `{"a":01}`, `{"a":-}`, `{"a":1.5}`, `{"a":1e3}`, `{"a":1234567890123456789}`, `{"a":"\x"}`, `{"a":"\u12g4"}`,
		`{"a":[1,]}`, `{"a":1,}`, `{"a" :1}`, `{"a":1}}`, `{"a":tru}`, "{\"a\":\"\n\"}", "{\"a\":\"\xff\"}", `[]`, `"`, `{"a":"\`, `{"a":"\"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := skimmer{json: in}
		id, typed, ok := s.whole()
		if !ok {
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q is not JSON", in)
		}
		fields := 0
		want, err := identityOfJSON(in, func(key, value gjson.Result) {
			if key.Str == "kind" || key.Str == "apiVersion" {
				fields++
				if !isName(value) {
					t.Fatalf("%q has the %s %s", in, key.Str, value.Raw)
				}
			}
		})
		if err != nil || id != want || typed != (fields > 0) {
			t.Fatalf("%q: %v, %v, not %v with %d of kind and apiVersion, %v", in, id, typed, want, fields, err)
		}
	})
}
