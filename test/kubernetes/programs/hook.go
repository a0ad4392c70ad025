//go:build informerhook

package main

import (
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
)

func init() {
	if os.Getenv("INFORMERS") != "tidings" {
		return
	}
	cache.NewInformerHook = func(lw cache.ListerWatcher, example runtime.Object, options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
		inf := clientgo.NewSharedIndexInformerWithOptions(lw, example, options)
		if err := clientgo.ShareParts(inf); err != nil {
			panic(err)
		}
		return inf
	}
}
