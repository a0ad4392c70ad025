package source

// LimitMessages lowers the maximum size of one object for the duration of a test.
func LimitMessages(t interface{ Cleanup(func()) }, limit uint64) {
	before := maxMessage
	maxMessage = limit
	t.Cleanup(func() { maxMessage = before })
}
