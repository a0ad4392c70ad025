package hostile

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestHostileRequests asks a kube-apiserver and mirrors of it what nobody in good
// faith would ask, for as long as HOSTILE says, and compares. HOSTILE_SEED asks the
// same again.
func TestHostileRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	o := Options{For: 90 * time.Second, Seed: uint64(time.Now().UnixNano())}
	var err error
	if s := os.Getenv("HOSTILE"); s != "" {
		if o.For, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("HOSTILE_SEED"); s != "" {
		if o.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("HOSTILE_SEED=%d", o.Seed)
	report, err := Run(t.Context(), o)
	if report != nil {
		var b strings.Builder
		report.Write(&b, MaxGroups)
		t.Log(b.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Findings(); n > 0 {
		t.Errorf("%d groups of findings", n)
	}
	for _, status := range []int{200, 400, 401, 403, 404, 405} {
		if report.Statuses[status] == 0 {
			t.Errorf("%d was never answered: that shows little", status)
		}
	}
}

// What is allowed to differ is written down where users read it.
func TestDifferencesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, d := range differences {
		if !strings.Contains(text, d.text) {
			t.Errorf("docs/server.md does not say %q", d.text)
		}
	}
}
