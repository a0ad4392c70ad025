//go:build deps

// Package compat keeps the dependencies of client-go's and controller-runtime's
// tests in go.mod.
package compat

import (
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/client-go/tools/cache"
	_ "sigs.k8s.io/controller-runtime/pkg/cache"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/controller-runtime/pkg/log/zap"
	_ "sigs.k8s.io/randfill"
)
