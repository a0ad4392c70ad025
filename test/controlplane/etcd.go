package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// etcd runs etcd, which calls os.Exit if it fails.
func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}
