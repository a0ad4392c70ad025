package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// etcd exits by itself when it fails.
func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}
