package cli

import (
	"testing"
	"testing/fstest"
)

func TestGroupMemory(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, test := range map[string]struct {
		root fstest.MapFS
		want int64
	}{
		"none":           {fstest.MapFS{}, 0},
		"in a container": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("536870912\n")}, 536870912},
		"no limit":       {fstest.MapFS{"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n")}, 0},
		"of one above": {fstest.MapFS{
			"proc/self/cgroup":             file("1:name=systemd:/x\n0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("2000\n"), "sys/fs/cgroup/a/memory.max": file("1000\n"),
		}, 1000},
		"the first version": {fstest.MapFS{"proc/self/cgroup": file("9:memory:/a\n")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := cgroupMemory(test.root); got != test.want || ok != (test.want != 0) {
				t.Errorf("groupMemory() = %d, %v, want %d", got, ok, test.want)
			}
		})
	}
}
