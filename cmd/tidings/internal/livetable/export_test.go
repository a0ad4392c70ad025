package livetable

// Len is the number of tables that are kept up to date.
func (t *Tables) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// Orders is the number of orders of all tables.
func (t *Tables) Orders() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.open {
		one.mu.Lock()
		n += len(one.orders)
		one.mu.Unlock()
	}
	return n
}
