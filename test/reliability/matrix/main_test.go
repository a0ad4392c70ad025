package matrix

import (
	"flag"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/internal/controlplane"
)

var (
	update = flag.Bool("update", false, "write the table of docs/reliability.md")
	runs   = flag.Int("runs", 1, "how often each row is run, for the medians")
)

// A dead connection is noticed after this many seconds of silence, and as many
// more without an answer to a ping. client-go's defaults are 30 and 15.
const pingSeconds = "10"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "20") // rows wait most of the time
	}
	os.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", pingSeconds)
	os.Setenv("HTTP2_PING_TIMEOUT_SECONDS", pingSeconds)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(controlplane.Tests(m))
}
