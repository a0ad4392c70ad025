package discovery_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }
