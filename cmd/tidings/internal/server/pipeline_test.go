package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// pipelineOf is a resource in the answer of /clusters.
type pipelineOf struct {
	Phase                    string
	Contact                  time.Time
	Objects                  int
	Bytes, Changes, Retained int64
	Requests                 struct{ Lists, Watches, Failed int }
	LastFailure              *struct{ Error string }
	Watches                  struct {
		Open   int
		Behind []struct{ Changes int }
	}
	History *struct {
		Begin    time.Time
		Versions int
	}
}

func (r *rig) pipeline(resource string) pipelineOf {
	r.Helper()
	var answer struct {
		Data   []struct{ Resources map[string]pipelineOf }
		Server *struct {
			Memory, HistoryBytes int64
		}
	}
	a := r.get("/clusters")
	r.must(json.Unmarshal(a.body, &answer))
	if len(answer.Data) != 1 || answer.Server == nil || answer.Server.Memory == 0 {
		r.Fatalf("/clusters: %s", a.body)
	}
	return answer.Data[0].Resources[resource]
}

// /clusters says how the changes of a resource come, and how far they have got.
func TestThePipeline(t *testing.T) {
	r := start(t, remember(t, options{}))
	first := r.set("default", "a", "1")
	r.get("/cm")
	r.reach("", "/cm", first)
	es := r.eventSource("/cm?watch=true")
	_, _ = es.next()
	r.reach("", "/cm", r.set("default", "b", "1"))
	eventually(t, "the watch has all changes", func() bool {
		p := r.pipeline("configmaps.v1")
		return p.Watches.Open == 1 && len(p.Watches.Behind) == 0
	})
	p := r.pipeline("configmaps.v1")
	if p.Phase != "watching" || p.Objects != 2 || p.Bytes == 0 || p.Changes != 2 || p.Retained != 1 || p.Requests.Lists != 1 || p.Requests.Watches == 0 || p.LastFailure != nil || time.Since(p.Contact) > time.Minute || p.History == nil || p.History.Versions == 0 || p.History.Begin.IsZero() {
		t.Errorf("the pipeline of configmaps is %+v", p)
	}
	r.cluster.SetDown(true)
	eventually(t, "the failure is told", func() bool {
		p := r.pipeline("configmaps.v1")
		return p.Phase != "watching" && p.Requests.Failed > 0 && p.LastFailure != nil
	})
	r.cluster.SetDown(false)
	eventually(t, "it goes on", func() bool { return r.pipeline("configmaps.v1").Phase == "watching" })
	if p := r.pipeline("configmaps.v1"); p.LastFailure == nil || strings.Contains(p.LastFailure.Error, "http") {
		t.Errorf("the last failure is %+v", p.LastFailure)
	}
}
