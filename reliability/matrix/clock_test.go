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

// strips are the methods and functions of package time after which a time has no
// reading of the monotonic clock any more, so that it moves when somebody sets the
// time of day. Round and Truncate of durations have the same names and do not
// matter.
var strips = map[string]bool{
	"Unix": true, "UnixNano": true, "UnixMilli": true, "UnixMicro": true, "UTC": true, "Local": true, "In": true,
	"AddDate": true, "Round": true, "Truncate": true, "Parse": true, "ParseInLocation": true, "Date": true, "MarshalJSON": true,
}

// shown are the places that do so to show a time to somebody, or that round a
// duration. Nothing is decided by them.
var shown = map[string]string{
	"informer/metrics/metrics.go":          "UnixNano", // the time of the last error
	"informer/clientgo/status.go":          "Unix",     // the time of the last contact
	"informer/clientgo/reflector.go":       "UnixNano", // the same
	"informer/clientgo/reflector_watch.go": "UnixNano", // the same
	"internal/reflector/reflector.go":      "Round",    // a duration in the log
	"server/pages.go":                      "UTC Truncate",
	"server/middleware.go":                 "Unix",  // a deadline that has passed
	"kubeapi/table/object.go":              "Parse", // how old objects are
	"kubeapi/table/table.go":               "UTC",
}

// Whatever waits, expires or is believed for a while does so by the monotonic
// clock: a step of the wall clock changes nothing about it.
func TestNothingDependsOnTheWallClock(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	for _, part := range []string{"informer", "internal", "mirror", "server", "access", "kubeapi", "cluster"} {
		err := fs.WalkDir(os.DirFS(root), part, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (name == "internal/controlplane" || name == "internal/samplepods"): // for tests
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
				look(t, set, name, file)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were looked through", files)
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

func look(t *testing.T, set *token.FileSet, name string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strips[selector.Sel.Name] || strings.Contains(shown[name], selector.Sel.Name) {
			return true
		}
		t.Errorf("%s: %s takes the monotonic clock off a time: what is decided by it moves when somebody sets the clock", set.Position(call.Pos()), selector.Sel.Name)
		return true
	})
}
