package matrix

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// strips are the methods and functions of package time whose result has no
// monotonic clock reading: it changes when the wall clock is set. Round and Truncate
// of durations have the same names and do not matter.
var strips = map[string]bool{
	"Unix": true, "UnixNano": true, "UnixMilli": true, "UnixMicro": true, "UTC": true, "Local": true, "In": true,
	"AddDate": true, "Round": true, "Truncate": true, "Parse": true, "ParseInLocation": true, "Date": true, "MarshalJSON": true,
}

// harmless are the calls that print a time or round a duration. Nothing is decided
// by their results.
var harmless = map[string]string{
	"informer/metrics/metrics.go":                    "UnixNano", // the time of the last error
	"informer/clientgo/status.go":                    "Unix",     // the time of the last contact
	"informer/clientgo/reflector.go":                 "UnixNano", // the same
	"informer/clientgo/reflector_watch.go":           "UnixNano", // the same
	"internal/reflector/reflector.go":                "Round",    // a duration in the log
	"cmd/tidings/internal/server/pages.go":           "UTC Truncate",
	"cmd/tidings/internal/server/middleware.go":      "Unix",  // a deadline that has passed
	"cmd/tidings/internal/kubeapi/table/object.go":   "Parse", // how old objects are
	"cmd/tidings/internal/kubeapi/table/table.go":    "UTC",
	"cmd/tidings/internal/cli/events.go":             "UTC Local",          // times that are printed
	"cmd/tidings/internal/cli/watcher.go":            "Round",              // a duration in a message
	"cmd/tidings/internal/cli/changes.go":            "Unix UTC",           // moments that are asked for
	"cmd/tidings/internal/cli/historyline.go":        "Local Date",         // times that are printed
	"cmd/tidings/internal/cli/past.go":               "Local",              // times that are printed
	"cmd/tidings/internal/livetable/row.go":          "Unix UnixMilli",     // ages that are shown
	"cmd/tidings/internal/cli/connection.go":         "Parse",              // times that are printed, durations of flags
	"cmd/tidings/internal/cli/serve.go":              "Round",              // times that are printed, durations of flags
	"cmd/tidings/internal/cli/serveaccess.go":        "Parse",              // times that are printed, durations of flags
	"cmd/tidings/internal/history/version.go":        "UTC Unix UnixNano",  // times that are stored, and shown
	"cmd/tidings/internal/mirror/connection.go":      "Round",              // durations in messages
	"cmd/tidings/internal/read/past.go":              "Parse Truncate UTC", // moments that callers name
	"cmd/tidings/internal/server/health.go":          "Round",              // times that are shown
	"cmd/tidings/internal/server/metrics.go":         "Unix",               // times that are shown
	"cmd/tidings/internal/server/server.go":          "Round",              // times that are shown
	"cmd/tidings/internal/cli/table.go":              "MarshalJSON",        // of an object
	"cmd/tidings/internal/fleet/answer.go":           "Parse",              // of a URL
	"cmd/tidings/internal/fleet/logreader.go":        "Round",              // durations in messages
	"cmd/tidings/internal/relations/object.go":       "Parse",              // ages that are shown
	"cmd/tidings/internal/server/fleet.go":           "Round",              // durations that are shown
	"cmd/tidings/internal/server/tools.go":           "Parse",              // of a URL
	"cmd/tidings/internal/agents/changes.go":         "UTC",                // times that are shown
	"cmd/tidings/internal/agents/find.go":            "UTC Unix UnixMilli", // ages and times that are shown
	"cmd/tidings/internal/agents/wait.go":            "Round",              // a duration that is shown
	"cmd/tidings/internal/relations/certificates.go": "Parse UTC",          // certificates expire by the wall clock
}

// simulated are the packages that make up a cluster, for tests and the demo.
var simulated = map[string]bool{
	"internal/controlplane": true, "internal/samplepods": true, "internal/fakeapi": true, "cmd/tidings/internal/demo": true,
}

// Waits, expiries and cache lifetimes use the monotonic clock: a step of the wall
// clock does not change them.
func TestNothingDependsOnTheWallClock(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	files := 0
	for _, part := range []string{"informer", "internal", "cluster", "cmd/tidings/internal"} {
		err := fs.WalkDir(os.DirFS(root), part, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && simulated[name]:
				return fs.SkipDir
			case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if imports(file, "time") {
				check(t, set, name, file)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were checked", files)
	}
}

func imports(file *ast.File, name string) bool {
	for _, i := range file.Imports {
		if i.Path.Value == `"`+name+`"` {
			return true
		}
	}
	return false
}

func check(t *testing.T, set *token.FileSet, name string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strips[selector.Sel.Name] || strings.Contains(harmless[name], selector.Sel.Name) {
			return true
		}
		t.Errorf("%s: %s strips the monotonic clock reading: decisions based on this time change when the clock is set", set.Position(call.Pos()), selector.Sel.Name)
		return true
	})
}
