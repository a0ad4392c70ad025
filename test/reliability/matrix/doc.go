// Package matrix is the fault matrix. Each row puts one fault between a mirror and a
// real kube-apiserver while objects are written, and checks what a user sees, how long
// it lasts, how many requests the API server gets, and whether anything was lost,
// doubled or out of order. A run makes the table in docs/reliability.md:
//
//	go test -race ./matrix            # run it, and compare with the table
//	go test ./matrix -update -runs 3  # write the table
package matrix
