package demo

type Workload struct{}
type simulation struct{}
