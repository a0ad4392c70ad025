package clientgo

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// handlerName names a handler in logs: by its type, or by where its functions
// are defined.
func handlerName(h cache.ResourceEventHandler) string {
	switch h := h.(type) {
	case nil:
		return "<nil>"
	case cache.ResourceEventHandlerFuncs:
		return funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	case *cache.ResourceEventHandlerFuncs:
		return funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	case cache.ResourceEventHandlerDetailedFuncs:
		return funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	}
	return fmt.Sprintf("%T", h)
}

// funcsName names the functions of a handler by the package or function that
// encloses them all, or by the name of each if there is none.
func funcsName(functions ...any) string {
	var names, scopes []string
	for _, f := range functions {
		v := reflect.ValueOf(f)
		if v.IsNil() {
			continue
		}
		name := "unknown"
		if fn := runtime.FuncForPC(v.Pointer()); fn != nil {
			name = fn.Name()
		}
		names = append(names, name)
		scope := name
		if dot := strings.LastIndexByte(name, '.'); dot > 0 {
			scope = name[:dot]
		}
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	switch len(scopes) {
	case 0:
		return fmt.Sprintf("%d functions, none of them set", len(functions))
	case 1:
		return scopes[0]
	}
	return strings.Join(names, "+")
}
