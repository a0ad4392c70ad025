//go:build !unix

package load

// cpuTime is unknown on this system.
func cpuTime() float64 { return 0 }
