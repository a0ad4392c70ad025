package source

// LimitMessages lowers the limit of what one object may take, for as long as a
// test takes: reaching the real one takes long.
func LimitMessages(t interface{ Cleanup(func()) }, limit uint64) {
	before := maxMessage
	maxMessage = limit
	t.Cleanup(func() { maxMessage = before })
}
