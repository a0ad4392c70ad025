package cli

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// limitMemory sets the runtime's memory limit and returns it in bytes, 0 for none.
// The limit comes from the flag, or GOMEMLIMIT, or the control group, less a tenth
// for memory that the runtime does not count.
func limitMemory(flag string) (int64, error) {
	if flag != "" {
		q, err := resource.ParseQuantity(flag)
		if err != nil || q.Value() <= 0 {
			return 0, fmt.Errorf("--memory-limit %q: give an amount of memory, such as 512Mi or 2Gi", flag)
		}
		debug.SetMemoryLimit(q.Value())
		return q.Value(), nil
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit, nil
	}
	limit, ok := cgroupMemory(os.DirFS("/"))
	if !ok {
		return 0, nil
	}
	limit -= limit / 10
	debug.SetMemoryLimit(limit)
	return limit, nil
}

// cgroupMemory returns the lowest memory limit (memory.max of cgroup v2) of the
// process's control group and its ancestors, if there is one.
func cgroupMemory(root fs.FS) (limit int64, ok bool) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(groups)) {
		group, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !found {
			continue
		}
		for at := path.Clean("/" + group); ; at = path.Dir(at) {
			most, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", at, "memory.max"))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(most)), 10, 64); err == nil && bad == nil && n > 0 && (!ok || n < limit) {
				limit, ok = n, true
			}
			if at == "/" {
				return limit, ok
			}
		}
	}
	return 0, false
}
