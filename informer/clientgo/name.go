package clientgo

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// funcsName names functions that belong together by the package or function
// they are in, or each if that is not the same.
func funcsName(functions ...any) string {
	var names, places []string
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
		place := name
		if dot := strings.LastIndexByte(name, '.'); dot > 0 {
			place = name[:dot]
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	switch len(places) {
	case 0:
		return fmt.Sprintf("%d functions, none of them set", len(functions))
	case 1:
		return places[0]
	}
	return strings.Join(names, "+")
}
