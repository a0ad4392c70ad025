package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidings-io/tidings/cmd/tidings/internal/cli"
)

// hostile is an API server of widgets that has the same text wherever there may
// be one.
func hostile(t testing.TB, text string) (kubeconfig string) {
	encode := func(v any) string {
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	s := encode(text)
	object := func(version int) string {
		return fmt.Sprintf(`{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":%s,"namespace":%s,"uid":"u","resourceVersion":"%d","labels":{"a":%s},"annotations":{%s:%s},
			"ownerReferences":[{"kind":%s,"name":%s}]},"spec":{"list":[{"name":%s,"value":%d}],"text":%s,"size":%d},"status":{"conditions":[{"type":%s,"message":%s,"status":"%d"}]}}`,
			s, s, version, s, s, s, s, s, s, version, encode(fmt.Sprint(text, "\n", version)), version, s, s, version)
	}
	refusal := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%s,"details":{"causes":[{"message":%s}]}}`, s, s)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"versions":[]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"groups":[{"name":"x.io","versions":[{"groupVersion":"x.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"x.io/v1","version":"v1"}}]}`)
		case r.URL.Path == "/apis/x.io/v1":
			fmt.Fprintf(w, `{"groupVersion":"x.io/v1","resources":[{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["get","list","watch"]},
				{"name":%s,"kind":%s,"singularName":%s,"shortNames":[%s],"categories":[%s],"namespaced":true,"verbs":["list","watch",%s]}]}`, s, s, s, s, s, s)
		case strings.Contains(r.URL.Path, "/namespaces/denied/"):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, refusal)
		case q.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case q.Get("watch") != "":
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n"+`{"type":"DELETED","object":%s}`+"\n", object(6), object(7))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case strings.Contains(r.Header.Get("Accept"), "as=Table"):
			fmt.Fprintf(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[{"name":"Name"},{"name":%s}],"rows":[{"cells":[%s,{"x":%s}],"object":{"metadata":{"name":%s,"namespace":%s}}}]}`, s, s, s, s, s)
		default:
			fmt.Fprintf(w, `{"kind":"WidgetList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"5"},"items":[%s]}`, object(5))
		}
	}))
	t.Cleanup(srv.Close)
	return kubeconfigOf(t, srv.URL)
}

// until is a writer that ends a command when it has written a text.
type until struct {
	mu   sync.Mutex
	b    bytes.Buffer
	text string
	end  func()
}

func (u *until) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.b.Write(p)
	if strings.Contains(u.b.String(), u.text) {
		u.end()
	}
	return len(p), nil
}

// obeyed are what a terminal does something else with than to show it.
func obeyed(s string) (r rune, found bool) {
	if !utf8.ValidString(s) {
		return utf8.RuneError, true
	}
	for _, r := range s {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return r, true
		}
	}
	return 0, false
}

// Whatever stands in objects, tables, discovery and errors, it does nothing to a
// terminal but stand there.
func FuzzTerminal(f *testing.F) {
	for _, seed := range []string{
		"x", "\x1b[2J", "\x1b]0;title\x07", "\x1bP+q\x1b\\", "\u009b31m", "\r\rfake", "a\x08\x7f", "\u202egnp.exe", "a\tb\nc", "\v\f\x00", "\u2028", "\x1b[201~rm -rf\n", "\xff\x9b31m", "'\"`$(x)\\", strings.Repeat("\x1b", 500),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "\u009b") // JSON has nothing else
		file := hostile(t, text)
		for _, args := range []string{
			"get widgets", "get widgets -o wide", "get widgets -o name", "get widgets -o json", "get widgets -o yaml", "get widgets/x -o json", "api-resources", "api-resources -o wide",
			"api-resources -o json", "api-resources -o name", "get widgets -n denied", "watch widgets --once -n denied", "watch widgets", "watch widgets -o wide", "watch widgets -o diff", "watch widgets -o json", "watch widgets -o yaml",
			"watch widgets -v debug", "__complete get widg", "__complete get widgets x", "get widgets -n denied -v debug",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			out, errs := &until{text: "DELETED", end: cancel}, &until{text: "\x00", end: func() {}}
			words := strings.Fields(args)
			if words[0] != "__complete" {
				words = append(words, "--kubeconfig", file)
			} else {
				words = append([]string{"__complete", "--kubeconfig", file}, words[1:]...)
			}
			begun := time.Now()
			cli.Run(ctx, cli.IO{Out: out, Err: errs}, words...)
			cancel()
			if time.Since(begun) > 25*time.Second {
				t.Errorf("%s: hangs, having said %q %q", args, out.b.String(), errs.b.String())
			}
			for _, said := range []string{out.b.String(), errs.b.String()} {
				if r, found := obeyed(said); found {
					t.Errorf("%s: a terminal would obey %U in %q", args, r, said)
				}
			}
			if strings.HasSuffix(args, "diff") && !strings.Contains(out.b.String(), "MODIFIED") {
				t.Errorf("%s: nothing of what was to be shown: %q %q", args, out.b.String(), errs.b.String())
			}
		}
	})
}
