package table_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(controlplane.Tests(m, controlplane.WithAPIServerFlags(
		// Serve every API, and run no controller on the stored objects.
		"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true",
		"--enable-priority-and-fairness=false",
	)))
}
