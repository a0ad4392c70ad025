package table_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(controlplane.Tests(m, controlplane.WithAPIServerFlags(
		// Everything that can be served is, and what is stored is not acted on.
		"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true",
		"--enable-priority-and-fairness=false",
	)))
}
